package command

import (
	"math"
	"strconv"
	"sync"
	"sync/atomic"
)

// slowlogCommands is SLOWLOG: what took long lately.
var slowlogCommands = []Command{{
	Name: "slowlog", Group: "server", Since: "0.1.0",
	Syntax:  "subcommand [argument ...]",
	Summary: "What took longer than slowlog-log-slower-than, latest first",
	Arity:   -2,
	Sub: []Command{
		{
			Name: "get", Group: "server", Since: "0.1.0", Syntax: "[count]",
			Summary: "Replies the latest entries, 10 unless count says otherwise, -1 for all: number, unix time, microseconds, words, client, its name",
			Arity:   -2, Flags: Admin, Conn: slowlogGet,
		},
		{
			Name: "len", Group: "server", Since: "0.1.0",
			Summary: "Replies how many entries there are", Arity: 2, Flags: Admin | Fast,
			Conn: func(c *ConnCtx) { c.W.Int(int64(c.Server.slow.len())) },
		},
		{
			Name: "reset", Group: "server", Since: "0.1.0",
			Summary: "Forgets all entries", Arity: 2, Flags: Admin | Fast,
			Conn: func(c *ConnCtx) {
				c.Server.slow.reset()
				c.W.OK()
			},
		},
	},
}}

// MaxSlowLog is the most entries that slowlog-max-len can ask for. One holds at
// most 32 words of about 150 bytes: 5 KB, and its reply has the client's name
// besides. So all of them are at most 63 MB, and SLOWLOG GET -1 is a reply
// within the bound that --max-output has by default.
const MaxSlowLog = 10_000

// slowLog holds the latest entries. The zero value notes nothing; any number
// of goroutines may use one.
type slowLog struct {
	from atomic.Int64 // notes what takes as many ns, plus 1; 0: nothing

	mu      sync.Mutex
	most    int         // entries kept
	entries []slowEntry // a ring once it is full
	next    int         // where in the full ring the next entry goes: the oldest
	id      int64       // of the next entry
}

// slowEntry is a command, or the first of several, that took long.
type slowEntry struct {
	id, unix, us int64
	args         []string
	addr, name   string
}

func (l *slowLog) add(e slowEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id = l.id
	l.id++
	switch {
	case l.most == 0:
	case len(l.entries) < l.most:
		l.entries = append(l.entries, e)
	default:
		l.entries[l.next] = e
		l.next = (l.next + 1) % l.most
	}
}

func (l *slowLog) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

func (l *slowLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.next = nil, 0
}

// latest returns up to n entries, the latest first.
func (l *slowLog) latest(n int) []slowEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.locked(n)
}

// locked is latest with mu held.
func (l *slowLog) locked(n int) []slowEntry {
	n = min(n, len(l.entries))
	out := make([]slowEntry, 0, n)
	for i := range n {
		at := l.next - 1 - i
		if at < 0 {
			at += len(l.entries)
		}
		out = append(out, l.entries[at])
	}
	return out
}

// SetSlowLog sets how many entries are kept, 0 to MaxSlowLog. Of those there
// are too many of, the oldest go.
func (s *Server) SetSlowLog(most int) {
	s.slow.resize(most)
	s.attendFrom()
}

func (l *slowLog) resize(most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.locked(most)
	l.most, l.entries, l.next = most, nil, 0
	for i := len(kept) - 1; i >= 0; i-- {
		l.entries = append(l.entries, kept[i])
	}
}

// SlowLog is how many entries are kept.
func (s *Server) SlowLog() int {
	s.slow.mu.Lock()
	defer s.slow.mu.Unlock()
	return s.slow.most
}

func slowlogGet(c *ConnCtx) {
	n := 10
	switch {
	case len(c.Args) > 3:
		c.W.Error(ErrArity("slowlog|get"))
		return
	case len(c.Args) == 3 && string(c.Args[2]) == "-1":
		n = math.MaxInt
	case len(c.Args) == 3:
		count, ok := parseNumber(c.Args[2], math.MaxInt64)
		if !ok {
			c.W.Error("ERR count should be greater than or equal to -1")
			return
		}
		n = int(count)
	}
	entries := c.Server.slow.latest(n)
	c.W.Array(len(entries))
	for _, e := range entries {
		c.W.Array(6)
		c.W.Int(e.id)
		c.W.Int(e.unix)
		c.W.Int(e.us)
		c.W.Array(len(e.args))
		for _, arg := range e.args {
			c.W.BulkString(arg)
		}
		c.W.BulkString(e.addr)
		c.W.BulkString(e.name)
	}
}

// What an entry shows of a command, as in Redis.
const (
	maxSlowArgs = 32  // words, the notes included
	maxSlowArg  = 128 // bytes of a word
)

// slowArgs are the words of a command as SLOWLOG shows them: cut, and without
// secrets. With n above 1 it is the first of so many that were run together,
// and a last word says so.
func slowArgs(cmd *Command, args [][]byte, n int) []string {
	room := maxSlowArgs
	if n > 1 {
		room--
	}
	out := make([]string, 0, min(len(args)+1, maxSlowArgs))
	for i, arg := range args {
		if i == room-1 && len(args) > room {
			out = append(out, "... ("+strconv.Itoa(len(args)-i)+" more arguments)")
			break
		}
		switch {
		case secret(cmd, args, i):
			out = append(out, "(redacted)")
		case len(arg) > maxSlowArg:
			out = append(out, string(arg[:maxSlowArg])+"... ("+strconv.Itoa(len(arg)-maxSlowArg)+" more bytes)")
		default:
			out = append(out, string(arg))
		}
	}
	if n > 1 {
		out = append(out, "... (the first of "+strconv.Itoa(n)+" commands of a pipeline; the time is of all)")
	}
	return out
}

// secret says whether word i of a command may be a password: it is not shown.
// A slip in the words before it must not give it away, so of the commands that
// can have one, only what surely is none is shown.
func secret(cmd *Command, args [][]byte, i int) bool {
	switch cmd.full {
	case "auth":
		return i > 0
	case "hello":
		for _, arg := range args[1:max(i, 1)] {
			if foldEqual(arg, "AUTH") {
				return true
			}
		}
		// The version and the names of options are the only words that cannot
		// be a misplaced password.
		version := i == 1 && len(args[i]) == 1
		return i > 0 && !version && !foldEqual(args[i], "AUTH") && !foldEqual(args[i], "SETNAME")
	case "config|set":
		if i < 2 {
			return false
		}
		if i%2 == 0 {
			return !publicSetting(args[i]) && !foldEqual(args[i], "requirepass")
		}
		return !publicSetting(args[i-1])
	}
	return false
}

// publicSettings are those whose values SLOWLOG may show: any other name may be
// a slip for that of the password.
var publicSettings = []string{
	"maxclients", "timeout", "protected-mode", "maxmemory", "loglevel",
	"slowlog-log-slower-than", "slowlog-max-len", "latency-monitor-threshold",
}

func publicSetting(name []byte) bool {
	for _, public := range publicSettings {
		if foldEqual(name, public) {
			return true
		}
	}
	return false
}
