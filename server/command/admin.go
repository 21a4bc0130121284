package command

import (
	"math"
	"strconv"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
)

// databases is how many there are.
const databases = engine.Databases

// adminCommands save, tell the time and set the test clock.
var adminCommands = []Command{
	{
		Name: "time", Group: "server", Since: "0.1.0",
		Summary: "Replies the time of decisions: unix seconds, and microseconds within the second",
		Arity:   1, Flags: Fast, Conn: timeNow,
	},
	{
		Name: "role", Group: "server", Since: "0.1.0",
		Summary: "Replies master: there are no replicas",
		Arity:   1, Flags: Fast,
		Conn: func(c *ConnCtx) {
			c.W.Array(3)
			c.W.BulkString("master")
			c.W.Int(0)
			c.W.Array(0)
		},
	},
	{
		Name: "wait", Group: "server", Since: "0.1.0",
		Syntax:  "numreplicas timeout",
		Summary: "Replies 0 at once: there are no replicas",
		Arity:   3, Conn: wait,
	},
	{
		Name: "save", Group: "server", Since: "0.1.0",
		Summary: "Replies when everything decided before is in the state file",
		Arity:   1, Flags: Admin | Slow,
		Conn: func(c *ConnCtx) {
			if persists(c) && saved(c, c.Server.Persist.Save()) {
				c.W.OK()
			}
		},
	},
	{
		Name: "bgsave", Group: "server", Since: "0.1.0",
		Syntax:  "[SCHEDULE]",
		Summary: "Begins to write to the state file and replies at once",
		Arity:   -1, Flags: Admin, Conn: backgroundSave,
	},
	{
		Name: "lastsave", Group: "server", Since: "0.1.0",
		Summary: "Replies the unix time, in seconds, when everything before was last known to be in the state file, of the start if it never was",
		Arity:   1, Flags: Fast,
		Conn: func(c *ConnCtx) { c.W.Int(lastSave(c.Server)) },
	},
	{
		Name: "debug", Group: "server", Since: "0.1.0",
		Syntax:  "subcommand [argument ...]",
		Summary: "The test clock; refused unless the server was started with --enable-debug-command",
		Arity:   -2,
		Sub: []Command{
			{
				Name: "clock", Group: "server", Since: "0.1.0", Syntax: "<ns | REAL>",
				Summary: "Freezes the clock at a time in unix ns from the next command on, or lets it run again",
				Arity:   3, Flags: Admin, Conn: debugClock,
			},
			{
				Name: "stamp", Group: "server", Since: "0.2.0",
				Summary: "Shows the time, unix ns, that the commands of its batch are decided at",
				Arity:   2, Flags: Admin | Fast | ReadOnly,
				Run: func(c *Ctx) {
					if !c.Debug {
						c.W.Error(ErrNoDebug)
						return
					}
					c.W.Int(c.Tx.Now())
				},
			},
			{
				Name: "reset", Group: "server", Since: "0.1.0",
				Summary: "Empties everything and forgets the latest time seen",
				Arity:   2, Flags: Admin,
				Conn: func(c *ConnCtx) {
					if c.Server.Debug == nil {
						c.W.Error(ErrNoDebug)
						return
					}
					raftDone(c, c.Server.Debug.Reset())
				},
			},
		},
	},
}

func timeNow(c *ConnCtx) {
	ns := c.Server.clock()
	c.W.Array(2)
	c.W.BulkInt(ns / 1e9)
	c.W.BulkInt(ns % 1e9 / 1e3)
}

func wait(c *ConnCtx) {
	for _, arg := range c.Args[1:] {
		if _, ok := parseNumber(arg, math.MaxInt64); !ok {
			c.W.Error(errNotInteger)
			return
		}
	}
	c.W.Int(0)
}

// persists says whether there is a state file; if not, it replies so.
func persists(c *ConnCtx) bool {
	if c.Server.Persist == nil && c.Server.Cluster != nil {
		c.W.Error("ERR nothing waits to be saved: what was answered is in the log on disk; RAFT SNAPSHOT shortens that")
		return false
	}
	if c.Server.Persist == nil {
		c.W.Error("ERR nothing is saved: the server runs with --durability none")
		return false
	}
	return true
}

// saved says whether err is nil; if not, it replies what failed.
func saved(c *ConnCtx, err error) bool {
	if err != nil {
		// Write errors carry paths and the system's words: the writer turns
		// line breaks into spaces.
		c.W.Error("ERR the state could not be saved: " + err.Error())
		return false
	}
	return true
}

func backgroundSave(c *ConnCtx) {
	if len(c.Args) > 2 || len(c.Args) == 2 && !foldEqual(c.Args[1], "SCHEDULE") {
		c.W.Error(ErrSyntax)
		return
	}
	if persists(c) && saved(c, c.Server.Persist.BackgroundSave()) {
		c.W.Simple("Background saving started")
	}
}

// lastSave is the unix time of the last save in seconds, of the start if there
// was none.
func lastSave(s *Server) int64 {
	if s.Persist != nil {
		if t := s.Persist.LastSave(); !t.IsZero() {
			return t.Unix()
		}
	}
	return s.Started.Unix()
}

// debugClock changes the clock between two batches, so that it holds from the
// next command on, in the same pipeline too.
func debugClock(c *ConnCtx) {
	if c.Server.Debug == nil {
		c.W.Error(ErrNoDebug)
		return
	}
	if foldEqual(c.Args[2], "REAL") {
		c.Server.Debug.RunClock()
		c.W.OK()
		return
	}
	ns, ok := parseNumber(c.Args[2], limit.MaxTime)
	if !ok {
		c.W.Error(ErrInvalid("time", c.Args[2], "unix nanoseconds from 0 to "+strconv.FormatInt(limit.MaxTime, 10)+", or REAL"))
		return
	}
	c.Server.Debug.FreezeClock(int64(ns))
	c.W.OK()
}
