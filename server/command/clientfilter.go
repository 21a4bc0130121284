package command

import (
	"bytes"
	"math"
	"time"

	"github.com/stint-dev/stint/server/resp"
)

// clientFilter says which connections CLIENT LIST and CLIENT KILL mean. All
// that is set must hold.
type clientFilter struct {
	ids         map[uint64]bool // nil: any
	addr, laddr string          // "": any
	nobody      bool            // a kind of client that does not exist here
	skipMe      bool
	oldest      time.Duration // a connection must be at least as old; 0: any
}

// matches says whether the filter means the connection. me is the one that
// asks.
func (f *clientFilter) matches(p *peer, me *Conn, now time.Time) bool {
	switch {
	case f.nobody,
		f.ids != nil && !f.ids[p.id],
		f.addr != "" && f.addr != p.addr,
		f.laddr != "" && f.laddr != p.local,
		f.skipMe && p == me.peer,
		f.oldest > 0 && now.Sub(p.created) < f.oldest:
		return false
	}
	return true
}

// setType reads the kind of clients that is meant: all here are normal ones.
// It returns the error to reply, "" if there is none.
func (f *clientFilter) setType(arg []byte) string {
	switch {
	case foldEqual(arg, "normal"):
	case foldEqual(arg, "master"), foldEqual(arg, "replica"), foldEqual(arg, "slave"), foldEqual(arg, "pubsub"):
		f.nobody = true
	default:
		return "ERR Unknown client type " + resp.Quote(arg)
	}
	return ""
}

// listFilter reads the arguments of CLIENT LIST.
func listFilter(args [][]byte) (f clientFilter, line string) {
	switch {
	case len(args) == 0:
	case len(args) == 2 && foldEqual(args[0], "TYPE"):
		line = f.setType(args[1])
	case len(args) >= 2 && foldEqual(args[0], "ID"):
		f.ids = make(map[uint64]bool, len(args)-1)
		for _, arg := range args[1:] {
			id, ok := parseNumber(arg, math.MaxInt64)
			if !ok {
				return f, "ERR Invalid client ID"
			}
			f.ids[id] = true
		}
	default:
		line = ErrSyntax
	}
	return f, line
}

// killFilter reads the arguments of CLIENT KILL, in the form with filters.
func killFilter(args [][]byte) (f clientFilter, line string) {
	f.skipMe = true
	if len(args)%2 != 0 {
		return f, ErrSyntax
	}
	for ; len(args) > 0; args = args[2:] {
		name, arg := args[0], args[1]
		switch {
		case foldEqual(name, "ID"):
			id, ok := parseNumber(arg, math.MaxInt64)
			if !ok || id == 0 {
				return f, "ERR client-id should be greater than 0"
			}
			f.ids = map[uint64]bool{id: true}
		case foldEqual(name, "TYPE"):
			if line := f.setType(arg); line != "" {
				return f, line
			}
		case foldEqual(name, "ADDR"):
			f.addr, f.nobody = string(arg), f.nobody || len(arg) == 0
		case foldEqual(name, "LADDR"):
			f.laddr, f.nobody = string(arg), f.nobody || len(arg) == 0
		case foldEqual(name, "USER"):
			if string(arg) != defaultUser {
				return f, "ERR No such user " + resp.Quote(arg)
			}
		case foldEqual(name, "SKIPME"):
			switch {
			case foldEqual(arg, "yes"):
				f.skipMe = true
			case foldEqual(arg, "no"):
				f.skipMe = false
			default:
				return f, ErrSyntax
			}
		case foldEqual(name, "MAXAGE"):
			seconds, ok := parseNumber(arg, math.MaxInt64)
			switch {
			case !ok:
				return f, "ERR maxage is not an integer or out of range"
			case seconds == 0:
				return f, "ERR maxage should be greater than 0"
			}
			f.oldest = time.Duration(min(seconds, uint64(math.MaxInt64/time.Second))) * time.Second
		default:
			return f, ErrSyntax
		}
	}
	return f, ""
}

func clientList(c *ConnCtx) {
	f, line := listFilter(c.Args[2:])
	if line != "" {
		c.W.Error(line)
		return
	}
	now := c.Server.now()
	var b []byte
	for _, p := range c.Server.clients.list() {
		if !f.matches(p, c.Conn, now) {
			continue
		}
		if cl, there := c.Server.client(p, c.Conn); there {
			b = append(cl.append(b, now), '\n')
		}
	}
	c.W.Verbatim("txt", string(b))
}

// clientKill closes connections at once, also in the middle of a pipeline: what
// was decided stays decided. The own one is closed after the reply.
func clientKill(c *ConnCtx) {
	if len(c.Args) == 3 {
		f := clientFilter{addr: string(c.Args[2])}
		if f.addr == "" || c.kill(&f) == 0 {
			c.W.Error("ERR No such client")
			return
		}
		c.W.OK()
		return
	}
	f, line := killFilter(c.Args[2:])
	if line != "" {
		c.W.Error(line)
		return
	}
	c.W.Int(c.kill(&f))
}

// killedWords is how many words of a CLIENT KILL are told at most: each filter
// once.
const killedWords = 14

// kill closes the connections that the filter means and returns how many. One
// that is still about to end since an earlier call does not count again.
func (c *ConnCtx) kill(f *clientFilter) (n int64) {
	now := c.Server.now()
	for _, p := range c.Server.clients.list() {
		switch {
		case !f.matches(p, c.Conn, now):
		case p == c.Conn.peer:
			c.Conn.Closing = true
			n++
		case c.Server.Kill != nil && p.killed.CompareAndSwap(false, true) && c.Server.Kill(p.id):
			n++
		}
	}
	if n > 0 && c.Server.Killed != nil {
		words := c.Args[2:min(len(c.Args), 2+killedWords)]
		c.Server.Killed(n, resp.Quote(bytes.Join(words, []byte{' '})), c.Conn.Addr)
	}
	return n
}
