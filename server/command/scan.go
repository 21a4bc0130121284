package command

var scanCommands = []Command{}
