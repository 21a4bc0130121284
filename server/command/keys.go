package command

import "github.com/stint-dev/stint/engine/limit"

var keyCommands = []Command{
	{
		Name: "del", Group: "keys", Since: "0.1.0", Arity: -2,
		Flags: Write, FirstKey: 1, LastKey: -1, Step: 1,
		Syntax:  "key [key …]",
		Summary: "Forgets keys, which are as new afterwards, and replies how many there were",
		Run:     del,
	},
	{
		Name: "unlink", Group: "keys", Since: "0.1.0", Arity: -2,
		Flags: Write | Fast, FirstKey: 1, LastKey: -1, Step: 1,
		Syntax:  "key [key …]",
		Summary: "Does what DEL does",
		Run:     del,
	},
	{
		Name: "exists", Group: "keys", Since: "0.1.0", Arity: -2,
		Flags: ReadOnly | Fast, FirstKey: 1, LastKey: -1, Step: 1,
		Syntax:  "key [key …]",
		Summary: "Counts those of the keys that hold something, which a full bucket does not",
		Run:     exists,
	},
	{
		Name: "type", Group: "keys", Since: "0.1.0", Arity: 2,
		Flags: ReadOnly | Fast, FirstKey: 1, LastKey: 1, Step: 1,
		Syntax:  "key",
		Summary: "Tells what a key holds: bucket, leak, fixed, sliding, log or none",
		Run:     typeOf,
	},
	{
		Name: "ttl", Group: "keys", Since: "0.1.0", Arity: 2,
		Flags: ReadOnly | Fast, FirstKey: 1, LastKey: 1, Step: 1,
		Syntax:  "key",
		Summary: "Tells in how many seconds, rounded up, a key is as new; -2 if it holds nothing",
		Run:     func(c *Ctx) { timeToLive(c, 1_000_000_000) },
	},
	{
		Name: "pttl", Group: "keys", Since: "0.1.0", Arity: 2,
		Flags: ReadOnly | Fast, FirstKey: 1, LastKey: 1, Step: 1,
		Syntax:  "key",
		Summary: "Tells in how many milliseconds, rounded up, a key is as new; -2 if it holds nothing",
		Run:     func(c *Ctx) { timeToLive(c, 1_000_000) },
	},
	{
		Name: "dbsize", Group: "keys", Since: "0.1.0", Arity: 1,
		Flags:   ReadOnly,
		Summary: "Counts the keys of the selected database that hold something",
		Run:     func(c *Ctx) { c.W.Int(c.Tx.Count()) },
	},
	{
		Name: "flushdb", Group: "keys", Since: "0.1.0", Arity: -1,
		Flags:   Write | Slow,
		Syntax:  "[ASYNC | SYNC]",
		Summary: "Forgets every key of the selected database",
		Run:     func(c *Ctx) { flush(c, c.Tx.FlushDB) },
	},
	{
		Name: "flushall", Group: "keys", Since: "0.1.0", Arity: -1,
		Flags:   Write | Slow,
		Syntax:  "[ASYNC | SYNC]",
		Summary: "Forgets every key of every database",
		Run:     func(c *Ctx) { flush(c, c.Tx.FlushAll) },
	},
}

// keys checks all the keys before anything is done to one of them.
func (c *Ctx) keys(args [][]byte) bool {
	for _, key := range args {
		if !c.key(key) {
			return false
		}
	}
	return true
}

// breatheEvery is how many keys one command works on under one lock, if they
// are in one shard: a million times the same key must not hold up its
// neighbours.
const breatheEvery = 128

// breathe lets go of the lock now and then. Commands on several keys take them
// one after the other anyway.
func (c *Ctx) breathe(i int) {
	if i%breatheEvery == breatheEvery-1 {
		c.Tx.End()
	}
}

func del(c *Ctx) {
	keys := c.Args[1:]
	if !c.keys(keys) {
		return
	}
	n := int64(0)
	for i, key := range keys {
		c.breathe(i)
		if c.Tx.Delete(key) {
			n++
		}
	}
	c.W.Int(n)
}

func exists(c *Ctx) {
	keys := c.Args[1:]
	if !c.keys(keys) {
		return
	}
	n := int64(0)
	for i, key := range keys {
		c.breathe(i)
		if c.Tx.Kind(key) != limit.None {
			n++
		}
	}
	c.W.Int(n)
}

func typeOf(c *Ctx) {
	if c.key(c.Args[1]) {
		c.W.Simple(c.Tx.Kind(c.Args[1]).String())
	}
}

// timeToLive replies the time until the key is as new in units of unit ns.
func timeToLive(c *Ctx, unit int64) {
	if !c.key(c.Args[1]) {
		return
	}
	at, ok := c.Tx.Expiry(c.Args[1])
	if !ok {
		c.W.Int(-2)
		return
	}
	left := at - c.Tx.Now()
	ttl := left / unit
	if left%unit != 0 {
		ttl++
	}
	c.W.Int(ttl)
}

// flush runs one of the two. There is nothing to do in the background: tables
// are swapped for empty ones.
func flush(c *Ctx, all func()) {
	if len(c.Args) > 2 || len(c.Args) == 2 && !foldEqual(c.Args[1], "ASYNC") && !foldEqual(c.Args[1], "SYNC") {
		c.W.Error(ErrSyntax)
		return
	}
	all()
	c.W.Simple("OK")
}
