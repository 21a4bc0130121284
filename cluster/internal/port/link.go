package port

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
)

// link is the connection for calls to one node, opened when a call needs it.
//
// What tells ErrNotSent from ErrLost is one number: calls are numbered in the order
// in which they are queued, and before a block is given to the socket, sent becomes
// the number of its last call. What has a higher number when the connection ends
// never left this node; anything else may have arrived.
type link struct {
	p *Port
	target
	wake chan struct{}

	// mu guards what follows. Nothing waits while it is held, no done is called.
	mu      sync.Mutex
	out     outbox
	pending map[uint64]call
	held    int // bytes of pending
	next    uint64
	sent    uint64

	conn    *stream // nil: none
	dialing bool
	closed  bool
	gone    bool          // it was removed: another may take its place
	ripe    time.Time     // no dial before
	rest    time.Duration // the last one
	why     error         // of the last failure; nil when connected
	used    time.Time
	trip    time.Duration // of the last ping
}

// call is one that waits for its end.
type call struct {
	done func([]byte, error)
	size int
}

// call queues a call. An error means that it was not queued.
func (l *link) call(kind uint8, payload []byte, done func([]byte, error)) (id uint64, err error) {
	size := frameHead + len(payload)
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.gone:
		return 0, errGone
	case l.closed:
		return 0, errClosed
	case l.held+size > maxHeld:
		return 0, errFull
	case l.conn == nil && !l.dialing && now.Before(l.ripe):
		return 0, fmt.Errorf("%w: %w", errResting, l.why)
	}
	l.used = now
	l.next++
	l.out.add(l.next, kind, payload, true)
	l.pending[l.next] = call{done, size}
	l.held += size
	if l.conn == nil && !l.dialing {
		l.dialing = true
		l.p.wg.Go(l.run)
	}
	signal(l.wake)
	return l.next, nil
}

// withdraw takes back a call that was not given to the socket: its done will not
// be called.
func (l *link) withdraw(id uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.pending[id]
	if !ok || id <= l.sent || !l.out.cut(id) {
		return false
	}
	delete(l.pending, id)
	l.held -= c.size
	return true
}

// run is the goroutine that connects and then writes; a second one reads.
func (l *link) run() {
	ctx, cancel := context.WithTimeout(l.p.ctx, dialTimeout)
	s, self, err := l.p.dial(ctx, l.addr, Hello{To: l.to})
	cancel()
	if err != nil {
		l.fail(nil, err)
		return
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		_ = s.Close()
		return
	}
	back := l.why != nil
	l.conn, l.dialing, l.rest, l.why, l.trip = s, false, 0, nil, 0
	l.mu.Unlock()
	if back {
		l.p.o.Log.Info("another node can be reached again", "addr", l.addr, "node", l.to)
	}
	c := &bounded{s, silence, writeTimeout}
	l.p.wg.Go(func() { l.fail(s, l.read(c)) })
	if err := l.write(c, s, self); err != nil {
		l.fail(s, err)
	}
}

// write writes what waits, all of it at once, until the connection has ended. It
// returns nil if someone else has seen to that.
func (l *link) write(c net.Conn, s *stream, self Identity) error {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		l.mu.Lock()
		if l.conn != s {
			l.mu.Unlock()
			return nil
		}
		b := l.out.take()
		if b != nil && b.last > l.sent {
			l.sent = b.last
		}
		l.mu.Unlock()
		if b != nil {
			_, err := c.Write(b.buf)
			b.free()
			if err != nil {
				return err
			}
			continue
		}
		select {
		case <-l.wake:
		case now := <-beat.C:
			if l.retire(s, now, l.p.o.Self() != self) {
				_ = s.Close()
				return nil
			}
		}
	}
}

// retire ends a connection that is not needed, or that was made before this node
// had joined a cluster, as soon as nothing waits on it. If it goes on, it is pinged:
// a ping is numbered with the time it was made.
func (l *link) retire(s *stream, now time.Time, stale bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != s {
		return false
	}
	if len(l.pending) == 0 && (stale || now.Sub(l.used) >= idleFor) {
		l.conn = nil
		l.out.drop()
		return true
	}
	l.out.add(uint64(time.Since(l.p.born)), kindPing, nil, false)
	return false
}

// read takes replies until the connection ends.
func (l *link) read(c net.Conn) error {
	frames := &frameReader{r: c, most: l.p.o.MaxFrame}
	for {
		f, err := frames.next()
		if err != nil {
			return err
		}
		switch f.kind {
		case kindReply, kindTooLarge:
		case kindPong:
			l.mu.Lock()
			l.trip = max(time.Since(l.p.born)-time.Duration(f.id), 1)
			l.mu.Unlock()
			continue
		default:
			continue
		}
		l.mu.Lock()
		waits, ok := l.pending[f.id]
		if ok = ok && f.id <= l.sent; ok {
			delete(l.pending, f.id)
			l.held -= waits.size
		}
		l.mu.Unlock()
		switch {
		case !ok:
		case f.kind == kindTooLarge:
			l.p.end(waits, fmt.Errorf("%w: the reply is %w", ErrLost, ErrTooLarge))
		default:
			l.p.count.sent.Add(1)
			l.p.count.replied.Add(1)
			waits.done(f.payload, nil)
		}
	}
}

// fail ends connection s, or the dialing of one if s is nil, if that has not been
// done yet.
func (l *link) fail(s *stream, err error) {
	l.mu.Lock()
	if l.closed || l.conn != s || s == nil && !l.dialing {
		l.mu.Unlock()
		if s != nil {
			_ = s.Close()
		}
		return
	}
	first := l.why == nil && !errors.As(err, new(*RefusedError)) // a refusal is logged already
	l.conn, l.dialing, l.why = nil, false, err
	l.rest = min(max(2*l.rest, backoffLeast), backoffMost)
	l.ripe = time.Now().Add(l.rest)
	ended, sent := l.empty()
	l.mu.Unlock()
	if s != nil {
		_ = s.Close()
		signal(l.wake) // for the goroutine that writes
	}
	if first && l.p.ctx.Err() == nil {
		l.p.tell(slog.LevelInfo, "lost "+l.addr+"#"+l.to, "another node cannot be reached", "addr", l.addr, "node", l.to, "error", err)
	}
	l.p.endAll(ended, sent, err)
}

// shut ends the link for good, with all its calls.
func (l *link) shut() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	s := l.conn
	l.closed, l.conn, l.dialing = true, nil, false
	ended, sent := l.empty()
	l.mu.Unlock()
	if s != nil {
		_ = s.Close()
	}
	signal(l.wake)
	l.p.endAll(ended, sent, errClosed)
}

// remove marks a link that is not in use as gone.
func (l *link) remove() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = l.conn == nil && !l.dialing && time.Since(l.used) >= idleFor
	return l.gone
}

// hope allows a dial at once.
func (l *link) hope() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ripe, l.rest = time.Time{}, 0
}

func (l *link) stats() (s PeerStats, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return PeerStats{l.addr, l.to, l.conn != nil, len(l.pending), l.trip, l.why}, l.held
}

// numbered is a call with its number.
type numbered struct {
	id uint64
	call
}

// empty takes all that waits, in the order of its numbers. mu is held.
func (l *link) empty() (ended []numbered, sent uint64) {
	for id, c := range l.pending {
		ended = append(ended, numbered{id, c})
	}
	slices.SortFunc(ended, func(a, b numbered) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	l.pending = make(map[uint64]call)
	l.held = 0
	l.out.drop()
	return ended, l.sent
}

// endAll ends calls for which no reply comes; those up to number sent may have
// arrived.
func (p *Port) endAll(ended []numbered, sent uint64, why error) {
	if len(ended) == 0 {
		return
	}
	lost := fmt.Errorf("%w: %w", ErrLost, why)
	not := fmt.Errorf("%w: %w", ErrNotSent, why)
	for _, c := range ended {
		if c.id <= sent {
			p.end(c.call, lost)
			continue
		}
		p.count.notSent.Add(1)
		c.done(nil, not)
	}
}

// end ends a call that may have arrived.
func (p *Port) end(c call, err error) {
	p.count.sent.Add(1)
	p.count.lost.Add(1)
	c.done(nil, err)
}
