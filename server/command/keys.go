package command

var keyCommands = []Command{}
