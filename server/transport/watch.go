package transport

import "time"

// A deadline set before each read and write would cost more than the command
// between them. Instead one goroutine looks at every connection now and then,
// notes which have not moved since, and ends the wait of one that has waited
// too long, by a deadline in the past. The connection's own goroutine then
// finds what was asked of it.

// Phases of a connection, in the lowest bits of its beat.
const (
	deciding = iota // at work, or waiting for a decision
	reading         // waiting for input
	stalled         // waiting for the rest of a command that holds memory
	writing         // waiting for the client to take replies
	leaving         // ending
	looping         // with an event loop, which looks after it

	phaseBits = 3
)

// Orders of the watch, in the lowest bits of a connection's order.
const (
	orderNone   = iota
	orderShrink // give memory back and wait on
	orderIdle   // end: silent for too long
	orderSlow   // end, if too little was taken

	orderBits = 2
)

// watched is what the watch remembers of a connection.
type watched struct {
	seen  uint64    // its beat, last time
	since time.Time // when it was first seen at that beat; zero before any look
	small bool      // it has been told to shrink since

	part part // what it had sent of an unfinished command
}

// part is how far an unfinished command was at some time. A client that sends a
// byte now and then is not silent, and yet holds what others may need.
type part struct {
	since           time.Time // zero: there was none
	bytes, commands uint64    // what the connection had sent by then
}

// watch looks at all connections at every tick until the server stops.
func (s *Server) watch() {
	ticker := time.NewTicker(s.tick)
	defer ticker.Stop()
	var list []*conn
	for {
		select {
		case <-s.done:
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		for _, c := range s.conns {
			list = append(list, c)
		}
		s.mu.Unlock()
		now := time.Now()
		for _, c := range list {
			c.look(now)
		}
		s.loops.look(now)
		s.collect(now)
		clear(list)
		list = list[:0]
	}
}

// collect has the garbage collected that connections have left: after ten
// thousand of them have fallen silent or gone, it would stay in the resident set
// until something else allocates, which may never happen. Only the watch calls it.
func (s *Server) collect(now time.Time) {
	if s.garbage.Load() < collectFrom || now.Sub(s.collected) < collectEvery {
		return
	}
	s.garbage.Store(0)
	s.collected = now
	s.gc()
}

// look gives a connection an order if one is due. Only the watch calls it.
func (c *conn) look(now time.Time) {
	beat := c.beat.Load()
	phase := beat & (1<<phaseBits - 1)
	stands := phase == stalled && c.standsStill(now)
	if beat != c.seen || c.since.IsZero() {
		c.watched = watched{seen: beat, since: now, part: c.part}
		if !stands {
			return
		}
	}
	silent := now.Sub(c.since)
	switch phase {
	case reading, stalled:
		idle := time.Duration(c.s.idleTimeout.Load())
		switch {
		case idle > 0 && silent >= idle, stands:
			c.demand(beat, orderIdle)
			c.wake()
		case silent >= quietAfter && !c.small:
			c.small = true
			c.demand(beat, orderShrink)
			c.wake()
		}
	case writing:
		if silent >= c.s.o.WriteTimeout {
			c.demand(beat, orderSlow)
			c.at.Lock()
			if c.nc != nil {
				_ = c.nc.SetWriteDeadline(longAgo)
			}
			c.at.Unlock()
		}
	}
}

// standsStill reports whether a connection in the middle of a large command has
// for too long sent neither the end of it nor enough of it. It is asked only of
// such: what it noted of an earlier command is told by the count of commands.
func (c *conn) standsStill(now time.Time) bool {
	p := part{now, c.bytesIn.Load(), c.commands.Load()}
	if c.part.since.IsZero() || c.part.commands != p.commands {
		c.part = p
		return false
	}
	if now.Sub(c.part.since) < c.s.o.StallTimeout {
		return false
	}
	if p.bytes-c.part.bytes >= leastProgress {
		c.part = p
		return false
	}
	return true
}

// longAgo is a deadline that ends a wait at once.
var longAgo = time.Unix(1, 0)

// demand leaves an order for a connection seen at that beat.
func (c *conn) demand(beat, order uint64) { c.order.Store(beat<<orderBits | order) }

// wake makes a goroutine's wait for input return.
func (c *conn) wake() {
	c.at.Lock()
	defer c.at.Unlock()
	if c.nc != nil {
		_ = c.nc.SetReadDeadline(longAgo)
	}
}

// kill ends the connection from any goroutine: every wait fails from now on.
func (c *conn) kill() {
	c.at.Lock()
	defer c.at.Unlock()
	c.dead = true
	switch {
	case c.looped != nil:
		c.looped.close()
	case c.nc != nil:
		_ = c.nc.Close()
	}
}

// enter tells the watch what the connection's goroutine is about to do.
func (c *conn) enter(phase uint64) { c.beat.Store(c.steps<<phaseBits | phase) }

// ordered returns the order for the present beat.
func (c *conn) ordered() uint64 {
	order := c.order.Load()
	// Shifted, the beat loses its highest bits: nobody takes 2^59 steps.
	if order>>orderBits != c.beat.Load() {
		return orderNone
	}
	return order & (1<<orderBits - 1)
}

// obey does what the watch asked for when it ended a wait for input, and
// reports whether the connection is to be closed.
func (c *conn) obey() (end bool) {
	_ = c.nc.SetReadDeadline(time.Time{})
	switch c.ordered() {
	case orderIdle:
		c.idle()
		return true
	case orderShrink:
		c.shrink()
		c.rounds = 0 // what waits costs an event loop less
	}
	return false
}

// idle counts a connection that is closed for its silence.
func (c *conn) idle() {
	c.s.idleClosed.Add(1)
	c.s.o.Log.Debug("a client has sent nothing or too little for too long, the connection is closed", "id", c.info.ID)
}
