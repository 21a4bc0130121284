package command

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// peer is what other connections may know of one. A Conn belongs to one
// goroutine and must not be read by another: so what never changes is here a
// second time, what changes seldom is published as a whole, and what changes
// with each batch is one word.
type peer struct {
	id          uint64
	addr, local string
	unix        bool
	created     time.Time

	last    atomic.Uint64           // Begin's: ms of Ticks, and the command's index plus 1; 0: none yet
	profile atomic.Pointer[Profile] // nil: as after NewConn
	killed  atomic.Bool             // by CLIENT KILL: it is about to leave
}

// lastBits is how many bits of peer.last the index of a command takes.
const lastBits = 16

// clients are the connections that have a session. The zero value is ready;
// any number of goroutines may use one.
type clients struct {
	mu  sync.Mutex
	all map[uint64]*peer
}

// Join enters a new connection into the list of clients. Its ID, addresses and
// Unix must be set and not be changed afterwards.
func (s *Server) Join(c *Conn) {
	c.peer = &peer{id: c.ID, addr: c.Addr, local: c.LocalAddr, unix: c.Unix, created: c.Created}
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	if s.clients.all == nil {
		s.clients.all = map[uint64]*peer{}
	}
	s.clients.all[c.ID] = c.peer
}

// Leave takes a connection out of the list again. It may be called for one that
// is not in it.
func (s *Server) Leave(c *Conn) {
	c.endBackup()
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	if s.clients.all[c.ID] == c.peer {
		delete(s.clients.all, c.ID)
	}
}

// list is the connections of this moment, the oldest first.
func (l *clients) list() []*peer {
	l.mu.Lock()
	list := slices.Collect(maps.Values(l.all))
	l.mu.Unlock()
	slices.SortFunc(list, func(a, b *peer) int { return cmp.Compare(a.id, b.id) })
	return list
}

// publish shows others what the connection says about itself, if that has
// changed.
func (c *Conn) publish() {
	if c.peer == nil {
		return
	}
	shown := c.peer.profile.Load()
	if shown != nil && *shown == c.Profile || shown == nil && c.Profile == newProfile {
		return
	}
	p := c.Profile
	c.peer.profile.Store(&p)
}

// shown is what was published of the connection last.
func (p *peer) shown() Profile {
	if profile := p.profile.Load(); profile != nil {
		return *profile
	}
	return newProfile
}

// lastRun is the command run last, or running now, and for how long the
// connection has sent nothing at the time ticks; nil and since it was made
// before the first.
func (p *peer) lastRun(ticks int64, now time.Time) (*Command, time.Duration) {
	last := p.last.Load()
	if last == 0 {
		return nil, max(0, now.Sub(p.created))
	}
	began := int64(last) >> lastBits * 1e6
	return commands.all[last&(1<<lastBits-1)-1], time.Duration(max(0, ticks-began))
}

// ConnTraffic is what a connection has moved, as its transport counts it.
type ConnTraffic struct {
	BytesIn, BytesOut uint64
	Commands          uint64
	Held              int64 // bytes of replies not taken yet, if they are many; else 0
}

// client is a connection as CLIENT LIST shows it.
type client struct {
	*peer
	Profile
	last *Command
	idle time.Duration

	counted bool // traffic is known
	traffic ConnTraffic
}

// client collects what CLIENT LIST shows of a connection; false says that it
// has just gone. me is the connection that asks: of it, what it has changed in
// the pipeline at hand shows.
func (s *Server) client(p *peer, me *Conn) (client, bool) {
	c := client{peer: p, Profile: p.shown()}
	c.last, c.idle = p.lastRun(Ticks(), s.now())
	if p == me.peer {
		c.Profile, c.last, c.idle = me.Profile, me.LastCmd, 0
	}
	if s.ConnTraffic == nil {
		return c, true
	}
	c.traffic, c.counted = s.ConnTraffic(p.id)
	return c, c.counted
}

// flags are Redis's letters for what a connection is.
func (c *client) flags() string {
	flags := ""
	if c.Tracking {
		flags += "t"
	}
	if c.NoEvict {
		flags += "e"
	}
	if c.NoTouch {
		flags += "T"
	}
	if c.unix {
		flags += "U"
	}
	if flags == "" {
		return "N"
	}
	return flags
}

// append appends the line of CLIENT LIST and CLIENT INFO without its end. Times
// are in whole seconds. What this server has no value of is left out.
func (c *client) append(b []byte, now time.Time) []byte {
	first := true
	text := func(name, value string) {
		if !first {
			b = append(b, ' ')
		}
		first = false
		b = append(b, name...)
		b = append(b, '=')
		b = append(b, value...)
	}
	number := func(name string, value int64) { text(name, strconv.FormatInt(value, 10)) }
	last := "NULL"
	if c.last != nil {
		last = c.last.full
	}
	number("id", int64(c.id))
	text("addr", c.addr)
	text("laddr", c.local)
	text("name", c.Name)
	number("age", int64(max(0, now.Sub(c.created)).Seconds()))
	number("idle", int64(c.idle.Seconds()))
	text("flags", c.flags())
	number("db", int64(c.DB))
	number("sub", 0)
	number("psub", 0)
	number("ssub", 0)
	number("multi", -1)
	if c.counted {
		number("omem", c.traffic.Held)
	}
	text("cmd", last)
	text("user", defaultUser)
	number("redir", redirect(c.Tracking))
	number("resp", int64(c.Proto))
	text("lib-name", c.LibName)
	text("lib-ver", c.LibVer)
	if c.counted {
		number("tot-net-in", int64(c.traffic.BytesIn))
		number("tot-net-out", int64(c.traffic.BytesOut))
		number("tot-cmds", int64(c.traffic.Commands))
	}
	return b
}
