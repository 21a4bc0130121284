package command

var limiterCommands = []Command{}
