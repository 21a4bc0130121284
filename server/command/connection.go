package command

var connectionCommands, clientCommands, describeCommands, infoCommands, configCommands, adminCommands, clusterCommands []Command
