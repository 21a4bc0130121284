package port

import (
	"context"
	"errors"
	"fmt"
)

// target is whom a link leads to.
type target struct{ addr, to string }

var (
	errClosed   = errors.New("the Raft port is closed")
	errFull     = errors.New("too much waits for that node")
	errResting  = errors.New("the node could not be reached a moment ago")
	errReserved = errors.New("its kind is reserved")
	errGone     = errors.New("the link was removed")
)

// Go calls the node with ID to, or whoever is at addr if to is empty. kind is 1 to
// 239. payload is copied. Go does not block: it connects in the background if there
// is no connection, and fails at once while a node that could not be reached is
// left alone for a moment, or while too much waits for it.
//
// done is called exactly once, perhaps before Go returns, and must not wait. reply
// is valid until it returns. An error is ErrNotSent or ErrLost, by errors.Is; the
// call is never sent twice. Calls to one target reach it in the order of their
// numbers; how long a reply may take is the caller's to bound.
func (p *Port) Go(addr, to string, kind uint8, payload []byte, done func(reply []byte, err error)) {
	p.call(addr, to, kind, payload, done)
}

// Call is Go, and waits for the reply, which is the caller's, or the end of ctx.
// A call that has not been written by then is taken back: ErrNotSent.
func (p *Port) Call(ctx context.Context, addr, to string, kind uint8, payload []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		p.count.notSent.Add(1)
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	type result struct {
		reply []byte
		err   error
	}
	ch := make(chan result, 1)
	l, id := p.call(addr, to, kind, payload, func(reply []byte, err error) {
		if err == nil {
			reply = append([]byte(nil), reply...)
		}
		ch <- result{reply, err}
	})
	select {
	case r := <-ch:
		return r.reply, r.err
	case <-ctx.Done():
	}
	if l != nil && l.withdraw(id) {
		p.count.notSent.Add(1)
		return nil, fmt.Errorf("%w: %w", ErrNotSent, ctx.Err())
	}
	select {
	case r := <-ch:
		return r.reply, r.err
	default:
		return nil, fmt.Errorf("%w: %w", ErrLost, ctx.Err())
	}
}

// call queues a call and returns where, or ends it at once.
func (p *Port) call(addr, to string, kind uint8, payload []byte, done func([]byte, error)) (l *link, id uint64) {
	var err error
	switch {
	case kind == 0 || kind >= reservedKinds:
		err = errReserved
	case len(payload) > p.o.MaxFrame:
		err = fmt.Errorf("%w: it has %d bytes, and %d is the most", ErrTooLarge, len(payload), p.o.MaxFrame)
	default:
		for {
			if l, err = p.link(target{addr, to}); err != nil {
				break
			}
			if id, err = l.call(kind, payload, done); err != errGone {
				break
			}
		}
	}
	if err == nil {
		return l, id
	}
	p.count.notSent.Add(1)
	done(nil, fmt.Errorf("%w: %w", ErrNotSent, err))
	return nil, 0
}

// link returns the link to a target.
func (p *Port) link(t target) (*link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	l := p.links[t]
	if l != nil {
		return l, nil
	}
	// Nodes that are replaced leave links behind, which go when a new one comes.
	for old, l := range p.links {
		if l.remove() {
			delete(p.links, old)
		}
	}
	l = &link{p: p, target: t, pending: make(map[uint64]call), wake: make(chan struct{}, 1)}
	p.links[t] = l
	return l, nil
}

// signal wakes the goroutine that waits on ch, now or when it will.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
