package command

// clusterCommands are refused with the words that clients look for to find
// out that this is a single node.
var clusterCommands = []Command{{
	Name: "cluster", Group: "cluster", Since: "0.1.0",
	Syntax:  "subcommand [argument ...]",
	Summary: "Redis Cluster's commands, refused: a single node has no slots",
	Arity:   -2,
	Sub: []Command{
		noCluster("info", "", 2),
		noCluster("slots", "", 2),
		noCluster("shards", "", 2),
		noCluster("nodes", "", 2),
		noCluster("myid", "", 2),
		noCluster("keyslot", "key", 3),
	},
}}

func noCluster(name, syntax string, arity int) Command {
	return Command{
		Name: name, Group: "cluster", Since: "0.1.0", Syntax: syntax,
		Summary: "Refused: this is a single node", Arity: arity, Flags: Fast,
		Conn: func(c *ConnCtx) { c.W.Error(ErrNoCluster) },
	}
}
