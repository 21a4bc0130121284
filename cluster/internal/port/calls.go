package port

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A call is a frame: length of the rest (4 bytes, little endian), number (8), kind
// (1), payload. Its reply is a frame with the same number and kind replyKind. A
// ping is a call that the port itself replies to.
const (
	frameHead = 13
	replyKind = 0xff
	pingKind  = 0
)

func appendFrame(dst []byte, id uint64, kind uint8, payload []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(9+len(payload)))
	dst = binary.LittleEndian.AppendUint64(dst, id)
	return append(append(dst, kind), payload...)
}

func readFrame(r *bufio.Reader) (id uint64, kind uint8, payload []byte, err error) {
	var h [frameHead]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, 0, nil, err
	}
	n := binary.LittleEndian.Uint32(h[:])
	if n < 9 || n > maxFrame {
		return 0, 0, nil, fmt.Errorf("a frame of %d bytes", n)
	}
	payload = make([]byte, n-9)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, 0, nil, err
	}
	return binary.LittleEndian.Uint64(h[4:]), h[12], payload, nil
}

// outbox gathers what is to be written to a connection: while one write is on its
// way the next ones are put together.
type outbox struct {
	mu    sync.Mutex
	buf   []byte
	spare []byte
	wake  chan struct{}
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take is all that waits. The buffer given back before is used again.
func (o *outbox) take() []byte {
	b := o.buf
	o.buf = o.spare[:0]
	o.spare = nil
	return b
}

func (o *outbox) giveBack(b []byte) {
	if cap(b) <= 1<<20 {
		o.mu.Lock()
		o.spare = b
		o.mu.Unlock()
	}
}

// serve answers the calls of one connection, in the order in which they come, but
// each in its own time.
func (p *Port) serve(h Hello, raw, c net.Conn, in *bufio.Reader) {
	defer p.leave(raw)
	in = bufio.NewReaderSize(in, 64<<10)
	out := &outbox{wake: make(chan struct{}, 1)}
	done := make(chan struct{})
	defer close(done)
	p.wg.Go(func() {
		defer c.Close()
		for {
			select {
			case <-out.wake:
			case <-done:
				return
			case <-p.ctx.Done():
				return
			}
			out.mu.Lock()
			b := out.take()
			out.mu.Unlock()
			_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := c.Write(b); err != nil {
				return
			}
			out.giveBack(b)
		}
	})
	answer := func(id uint64, payload []byte) {
		out.mu.Lock()
		out.buf = appendFrame(out.buf, id, replyKind, payload)
		over := len(out.buf) > maxQueued
		out.mu.Unlock()
		if over {
			_ = c.Close()
		}
		out.signal()
	}
	for {
		_ = c.SetReadDeadline(time.Now().Add(3 * silence))
		id, kind, payload, err := readFrame(in)
		if err != nil {
			return
		}
		if kind == pingKind {
			answer(id, nil)
			continue
		}
		p.o.Serve(h, kind, payload, func(reply []byte) { answer(id, reply) })
	}
}

// link is the connection for calls to one node.
type link struct {
	p        *Port
	addr, to string

	out     outbox
	conn    net.Conn // nil: none
	dialing bool
	closed  bool
	next    uint64
	pending map[uint64]*pendingCall
	unsent  []uint64      // numbers of what is in out
	rest    time.Duration // backoff
	after   time.Time     // no dial before
	why     error         // of the last failure
	used    time.Time
}

type pendingCall struct {
	done func([]byte, error)
	sent bool
}

// Go calls a node: the one with ID to, or whoever is at addr if to is empty. done
// is called once, on another goroutine or, if the call cannot be sent, on this
// one. An error is ErrNotSent or ErrLost. Go does not wait; payload is copied.
func (p *Port) Go(addr, to string, kind uint8, payload []byte, done func(reply []byte, err error)) {
	if len(payload)+frameHead > maxFrame {
		done(nil, fmt.Errorf("%w: it has %d bytes, and %d is the most", ErrNotSent, len(payload), maxFrame-frameHead))
		return
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		done(nil, fmt.Errorf("%w: the port is closed", ErrNotSent))
		return
	}
	key := [2]string{addr, to}
	l := p.links[key]
	if l == nil {
		l = &link{p: p, addr: addr, to: to, pending: map[uint64]*pendingCall{}, out: outbox{wake: make(chan struct{}, 1)}}
		p.links[key] = l
	}
	p.mu.Unlock()
	if err := l.call(kind, payload, done); err != nil {
		done(nil, fmt.Errorf("%w: %w", ErrNotSent, err))
	}
}

// Call is Go, and waits for the reply or the end of ctx.
func (p *Port) Call(ctx context.Context, addr, to string, kind uint8, payload []byte) ([]byte, error) {
	type result struct {
		reply []byte
		err   error
	}
	ch := make(chan result, 1)
	p.Go(addr, to, kind, payload, func(reply []byte, err error) { ch <- result{reply, err} })
	select {
	case r := <-ch:
		return r.reply, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrLost, ctx.Err())
	}
}

var (
	errBackoff = errors.New("the node could not be reached a moment ago")
	errQueue   = errors.New("too much waits to be sent to the node")
)

// call queues a call. An error means that it was not.
func (l *link) call(kind uint8, payload []byte, done func([]byte, error)) error {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	now := time.Now()
	switch {
	case l.closed:
		return net.ErrClosed
	case l.conn == nil && !l.dialing && now.Before(l.after):
		return errors.Join(errBackoff, l.why)
	case len(l.out.buf) > maxQueued:
		return errQueue
	}
	l.used = now
	if l.conn == nil && !l.dialing {
		l.dialing = true
		l.p.wg.Go(l.run)
	}
	l.next++
	l.out.buf = appendFrame(l.out.buf, l.next, kind, payload)
	l.pending[l.next] = &pendingCall{done: done}
	l.unsent = append(l.unsent, l.next)
	l.out.signal()
	return nil
}

// run is the goroutine that dials, and then writes; another one reads.
func (l *link) run() {
	ctx, cancel := context.WithTimeout(l.p.ctx, helloTimeout)
	c, err := l.p.dial(ctx, l.addr, Hello{To: l.to})
	cancel()
	if err != nil {
		l.fail(nil, err)
		return
	}
	l.out.mu.Lock()
	l.dialing, l.conn, l.rest, l.after = false, c, 0, time.Time{}
	l.out.mu.Unlock()
	l.p.wg.Go(func() { l.read(c) })
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		select {
		case <-l.out.wake:
		case <-ping.C:
			l.out.mu.Lock()
			if l.conn == c {
				l.out.buf = appendFrame(l.out.buf, 0, pingKind, nil)
			}
			l.out.mu.Unlock()
		case <-l.p.ctx.Done():
			l.fail(c, net.ErrClosed)
			return
		}
		l.out.mu.Lock()
		if l.conn != c {
			l.out.mu.Unlock()
			return
		}
		b := l.out.take()
		for _, id := range l.unsent {
			if call := l.pending[id]; call != nil {
				call.sent = true
			}
		}
		l.unsent = l.unsent[:0]
		l.out.mu.Unlock()
		if len(b) == 0 {
			continue
		}
		_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := c.Write(b); err != nil {
			l.fail(c, err)
			return
		}
		l.out.giveBack(b)
	}
}

func (l *link) read(c net.Conn) {
	in := bufio.NewReaderSize(c, 64<<10)
	for {
		_ = c.SetReadDeadline(time.Now().Add(silence))
		id, _, payload, err := readFrame(in)
		if err != nil {
			l.fail(c, err)
			return
		}
		l.out.mu.Lock()
		call := l.pending[id]
		delete(l.pending, id)
		l.out.mu.Unlock()
		if call != nil {
			call.done(payload, nil)
		}
	}
}

// fail ends connection c of the link, or the dialing of one if c is nil, and all
// its calls: what was given to the connection may have arrived.
func (l *link) fail(c net.Conn, err error) {
	l.out.mu.Lock()
	if errors.Is(err, net.ErrClosed) && l.p.ctx.Err() != nil {
		l.closed = true
		c = l.conn
	}
	if l.conn != c {
		l.out.mu.Unlock()
		return
	}
	l.conn, l.dialing, l.why = nil, false, err
	l.rest = min(max(2*l.rest, backoffLeast), backoffMost)
	l.after = time.Now().Add(l.rest)
	calls := l.pending
	l.pending = map[uint64]*pendingCall{}
	l.out.buf, l.unsent = nil, nil
	l.out.mu.Unlock()
	if c != nil {
		_ = c.Close()
	}
	l.out.signal() // the writer sees that it is over
	for _, call := range calls {
		kind := ErrNotSent
		if call.sent {
			kind = ErrLost
		}
		call.done(nil, fmt.Errorf("%w: %w", kind, err))
	}
}
