package command

import "github.com/stint-dev/stint/engine/limit"

var windowCommands = []Command{
	{
		Name: "window", Group: "limiter", Since: "0.1.0", Arity: -4,
		Flags: Write | DenyOOM | Fast, FirstKey: 1, LastKey: 1, Step: 1,
		Syntax:  "key limit period [cost] [FIXED | SLIDING | LOG] [PEEK | FORCE]",
		Summary: "Counts cost units (default 1) against a limit for each period: a sliding window of two counters unless FIXED or LOG says otherwise",
		Run:     window,
	},
}

// kind is the window the options ask for.
func (o option) kind() limit.Kind {
	switch o & optWindows {
	case optFixed:
		return limit.KindFixed
	case optLog:
		return limit.KindLog
	}
	return limit.KindSliding
}

func window(c *Ctx) {
	if !c.key(c.Args[1]) {
		return
	}
	var l limit.WindowLimit
	var ok bool
	if l.Limit, ok = limit.ParseUnits(c.Args[2]); !ok || l.Limit == 0 {
		c.W.Error(ErrLimit(c.Args[2]))
		return
	}
	if l.Period, ok = limit.ParsePeriod(c.Args[3]); !ok {
		c.W.Error(ErrPeriod(c.Args[3]))
		return
	}
	cost, opts, ok := c.tail(c.Args[4:], optWindows|optPeek|optForce)
	if !ok {
		return
	}
	kind := opts.kind()
	if kind == limit.KindLog && l.Limit > limit.MaxLogLimit {
		c.W.Error(ErrLogLimit(c.Args[2]))
		return
	}
	if c.share != nil {
		l = c.share.window(c, kind, l)
	}
	c.decision(c.Tx.Window(kind, c.Args[1], l, cost, opts.mode()))
}
