package port

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Layer is the port as Raft's transport uses it. Addresses that it dials have the
// form host:port#ID, where ID is who must answer there. advertise is the address,
// host:port, at which others reach this node.
//
// Closing it ends all streams of Raft, in and out, and Accept, but not the port.
// The newest Layer is the one that gets what comes in.
func (p *Port) Layer(advertise string) raft.StreamLayer {
	l := &layer{p: p, addr: address(advertise), streams: make(chan net.Conn), done: make(chan struct{})}
	p.mu.Lock()
	p.layer = l
	p.mu.Unlock()
	return l
}

type layer struct {
	p       *Port
	addr    address
	streams chan net.Conn
	done    chan struct{}
	once    sync.Once
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// hand gives a stream to Raft. If nobody takes it, it is closed: its node tries
// again.
func (p *Port) hand(s *stream) {
	p.mu.Lock()
	l := p.layer
	p.mu.Unlock()
	if l == nil {
		_ = s.Close()
		return
	}
	timer := time.NewTimer(helloTimeout)
	defer timer.Stop()
	select {
	case l.streams <- s:
		return
	case <-l.done:
	case <-p.ctx.Done():
	case <-timer.C:
	}
	_ = s.Close()
}

// Accept waits for a stream. After Close, of the layer or the port, it returns
// net.ErrClosed.
func (l *layer) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.streams:
		select {
		case <-l.done: // Close did not see it, or has closed it
			_ = c.Close()
			return nil, net.ErrClosed
		default:
		}
		return c, nil
	case <-l.done:
	case <-l.p.ctx.Done():
	}
	return nil, net.ErrClosed
}

func (l *layer) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.p.closeStreams(func(*conn) bool { return true })
	})
	return nil
}

func (l *layer) Addr() net.Addr { return l.addr }

// Dial opens a stream. timeout is for all of it; 0: two seconds.
func (l *layer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if timeout <= 0 {
		timeout = dialTimeout
	}
	addr, id, _ := strings.Cut(string(address), "#")
	ctx, cancel := context.WithTimeout(l.p.ctx, timeout)
	defer cancel()
	s, _, err := l.p.dial(ctx, addr, Hello{Raft: true, To: id})
	if err != nil {
		return nil, err
	}
	select {
	case <-l.done:
		_ = s.Close()
		return nil, net.ErrClosed
	default:
		return s, nil
	}
}
