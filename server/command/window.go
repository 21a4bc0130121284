package command

var windowCommands = []Command{}
