package command

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint/server/resp"
)

// latencyCommands is LATENCY: what took long, and how long commands take.
var latencyCommands = []Command{{
	Name: "latency", Group: "server", Since: "0.1.0",
	Syntax:  "subcommand [argument ...]",
	Summary: "What took longer than latency-monitor-threshold, and how long commands take",
	Arity:   -2,
	Sub: []Command{
		{
			Name: "latest", Group: "server", Since: "0.1.0",
			Summary: "Replies for each event that took long: name, unix time and milliseconds of the latest, most milliseconds",
			Arity:   2, Flags: Admin, Conn: latencyLatest,
		},
		{
			Name: "history", Group: "server", Since: "0.1.0", Syntax: "event",
			Summary: "Replies the latest 160 seconds in which the event took long: unix time and most milliseconds",
			Arity:   3, Flags: Admin, Conn: latencyHistory,
		},
		{
			Name: "reset", Group: "server", Since: "0.1.0", Syntax: "[event ...]",
			Summary: "Forgets the events named, all if none is, and replies how many", Arity: -2, Flags: Admin,
			Conn: func(c *ConnCtx) { c.W.Int(int64(c.Server.spikes.reset(c.Args[2:]))) },
		},
		{
			Name: "doctor", Group: "server", Since: "0.1.0",
			Summary: "Replies what took long, what that means and what to do", Arity: 2, Flags: Admin,
			Conn: func(c *ConnCtx) { c.W.Verbatim("txt", doctor(c.Server)) },
		},
		{
			Name: "graph", Group: "server", Since: "0.1.0", Syntax: "event",
			Summary: "Draws the history of an event", Arity: 3, Flags: Admin, Conn: latencyGraph,
		},
		{
			Name: "histogram", Group: "server", Since: "0.1.0", Syntax: "[command-name ...]",
			Summary: "Replies how many calls of the commands named, of all if none is, took at most 1, 2, 4 ... microseconds",
			Arity:   -2, Flags: Admin, Conn: latencyHistogram,
		},
	},
}}

func latencyLatest(c *ConnCtx) {
	events := c.Server.spikes.list()
	c.W.Array(len(events))
	for _, e := range events {
		last := e.samples[len(e.samples)-1]
		c.W.Array(4)
		c.W.BulkString(e.name)
		c.W.Int(last.unix)
		c.W.Int(last.ms)
		c.W.Int(e.worst)
	}
}

func latencyHistory(c *ConnCtx) {
	samples := c.Server.spikes.find(c.Args[2]).samples
	c.W.Array(len(samples))
	for _, s := range samples {
		c.W.Array(2)
		c.W.Int(s.unix)
		c.W.Int(s.ms)
	}
}

// graphWidth is the longest bar of a graph, in characters.
const graphWidth = 50

// latencyGraph draws a bar for each sample, the latest first: lines are easier
// to read, and to read out, than Redis's columns of a character.
func latencyGraph(c *ConnCtx) {
	e := c.Server.spikes.find(c.Args[2])
	if len(e.samples) == 0 {
		c.W.Error("ERR No samples available for event " + resp.Quote(c.Args[2]))
		return
	}
	low, high := e.samples[0].ms, e.samples[0].ms
	for _, s := range e.samples {
		low, high = min(low, s.ms), max(high, s.ms)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s - high %d ms, low %d ms (all time high %d ms)\n", e.name, high, low, e.worst)
	b.WriteString(strings.Repeat("-", 80) + "\n")
	now := c.Server.now().Unix()
	for i := len(e.samples) - 1; i >= 0; i-- {
		s := e.samples[i]
		bar := 1 + s.ms*(graphWidth-1)/max(high, 1)
		fmt.Fprintf(&b, "%10s ago %8d ms %s\n", time.Duration(max(now-s.unix, 0))*time.Second, s.ms, strings.Repeat("#", int(bar)))
	}
	c.W.Verbatim("txt", b.String())
}

// latencyHistogram leaves out names that are no command, and commands that were
// not called, as Redis does. The name of a container stands for all its
// subcommands.
func latencyHistogram(c *ConnCtx) {
	names := c.Args[2:]
	if tooMany(c, names) {
		return
	}
	wanted := make([]bool, len(commands.all))
	for _, name := range names {
		found := findFull(name)
		if found == nil {
			continue
		}
		wanted[found.index] = true
		for i := range found.Sub {
			wanted[found.Sub[i].index] = true
		}
	}
	type row struct {
		cmd  *Command
		sums used
	}
	var rows []row
	for _, cmd := range commands.all {
		if len(names) > 0 && !wanted[cmd.index] {
			continue
		}
		if sums := c.Server.usage.of(cmd.index); sums.calls > 0 {
			rows = append(rows, row{cmd, sums})
		}
	}
	c.W.Map(len(rows))
	for _, r := range rows {
		steps := r.sums.histogram()
		c.W.BulkString(r.cmd.full)
		c.W.Map(2)
		c.W.BulkString("calls")
		c.W.Int(r.sums.calls)
		c.W.BulkString("histogram_usec")
		c.W.Map(len(steps))
		for _, s := range steps {
			c.W.Int(s.us)
			c.W.Int(s.calls)
		}
	}
}

// atMost says that so many calls took at most us microseconds, of 1,024 ns each
// as in Redis.
type atMost struct{ us, calls int64 }

// histogram is the calls by powers of two, each with those before it. Steps
// that add none are left out.
func (u *used) histogram() []atMost {
	var out []atMost
	sum, last := int64(0), int64(0)
	limit := int64(1)
	for b, n := range u.times {
		for bucketEnd(b) >= limit<<10 {
			if sum > last {
				out = append(out, atMost{limit, sum})
				last = sum
			}
			limit <<= 1
		}
		sum += n
	}
	if sum > last {
		out = append(out, atMost{limit, sum})
	}
	return out
}
