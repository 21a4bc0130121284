package port

import (
	"errors"
	"net"
	"sync"
	"time"
)

// serve reads the calls of one connection and hands them to Serve; a second
// goroutine writes the replies.
func (p *Port) serve(h Hello, s *stream) {
	c := &bounded{s, 3 * silence, writeTimeout}
	in := &inbound{p: p, wake: make(chan struct{}, 1)}
	done := make(chan struct{})
	p.wg.Go(func() {
		defer func() { _ = s.Close() }()
		in.write(c, done)
	})
	err := p.read(h, c, in)
	in.shut()
	close(done)
	_ = s.Close()
	if !errors.Is(err, net.ErrClosed) {
		p.o.Log.Debug("a connection for calls has ended", "node", h.From, "remote", s.RemoteAddr(), "error", err)
	}
}

// read returns why there is nothing more to read; it is never nil.
// read returns why it has ended.
func (p *Port) read(h Hello, c net.Conn, in *inbound) error {
	frames := &frameReader{r: c, most: p.o.MaxFrame, give: true}
	checked := p.o.Self()
	for {
		f, err := frames.next()
		switch {
		case err != nil:
			return err
		case f.kind == kindPing:
			in.add(f.id, kindPong, f.payload)
		case f.kind == 0 || f.kind >= reservedKinds:
			// Of a later version, and of no importance to this one.
		default:
			if self := p.o.Self(); self != checked {
				// What was welcome before this node has joined need not be now.
				if refused := p.check(h); refused != nil {
					return refused
				}
				checked = self
			}
			p.count.served.Add(1)
			p.o.Serve(h, f.kind, f.payload, func(reply []byte) { in.add(f.id, kindReply, reply) })
		}
	}
}

// inbound is the replies of one connection.
type inbound struct {
	p    *Port
	wake chan struct{}

	mu   sync.Mutex
	out  outbox
	over bool // nothing is written any more
}

// add queues a reply. Replies that nobody takes end the connection.
func (in *inbound) add(id uint64, kind uint8, payload []byte) {
	if len(payload) > in.p.o.MaxFrame {
		kind, payload = kindTooLarge, nil
	}
	in.mu.Lock()
	if in.over {
		in.mu.Unlock()
		return
	}
	in.out.add(id, kind, payload, false)
	if in.out.bytes > maxHeld+in.p.o.MaxFrame {
		in.over = true
		in.out.drop()
	}
	in.mu.Unlock()
	signal(in.wake)
}

func (in *inbound) shut() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.over = true
	in.out.drop()
}

// write is the goroutine that writes the replies, all that wait at once, and in
// between that this node is alive: a long call takes a while to arrive, and its
// sender must not take that for silence.
func (in *inbound) write(c net.Conn, done chan struct{}) {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		in.mu.Lock()
		b, over := in.out.take(), in.over
		in.mu.Unlock()
		if over {
			return
		}
		if b != nil {
			_, err := c.Write(b.buf)
			b.free()
			if err != nil {
				return
			}
			continue
		}
		select {
		case <-in.wake:
		case <-beat.C:
			in.add(0, kindBeat, nil)
		case <-done:
			return
		}
	}
}
