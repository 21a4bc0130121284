// Package port is the one port through which the nodes of a cluster speak to each
// other. It carries streams of Raft's transport, and calls, which are a request and
// its reply. A handshake says who calls whom, so that a node that was replaced, or
// one of another cluster, is refused before it can do harm. With TLS both sides
// show certificates; without it the port has no other protection.
//
// The package knows nothing of what calls are about, and resends none: an error
// says whether the other node can have seen the call, which is what its caller must
// know to decide.
//
// All methods may be called from any goroutine.
package port

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds.
const (
	helloTimeout = 2 * time.Second // for TLS and the handshake
	dialTimeout  = 2 * time.Second // for connecting, TLS and the handshake, for calls
	maxStrangers = 256             // connections at a time that have not said hello
	frameMost    = 8 << 20         // bytes, the default of MaxFrame
	maxHeld      = 64 << 20        // bytes of calls to a node that wait to be written or answered, and of replies that wait to be written to one
	writeTimeout = 5 * time.Second // without progress
	beatEvery    = time.Second
	silence      = 3 * time.Second // after which a connection of calls counts as dead
	backoffLeast = 25 * time.Millisecond
	backoffMost  = time.Second
	idleFor      = time.Minute // after which a connection without calls is closed
)

// Errors of calls. Each is one of the first two.
var (
	// ErrNotSent: surely nothing of the call has reached the other node, and
	// nothing will.
	ErrNotSent = errors.New("the call was not sent")
	// ErrLost: the call has reached the other node, or may have; no reply has come.
	ErrLost = errors.New("no reply to the call has come")

	// ErrTooLarge, besides one of the others: the call, or its reply, does not fit
	// into a frame. Calling again is of no use.
	ErrTooLarge = errors.New("too large for a frame")
)

// Options of a Port.
type Options struct {
	// Listener accepts the connections; the Port closes it.
	Listener net.Listener

	// ServerTLS and ClientTLS are both set or both nil. That certificates are
	// required and verified, and replaced when they are renewed, is up to them.
	// Without a ServerName the host of the address is what a certificate must show.
	ServerTLS, ClientTLS *tls.Config

	// Self is asked at each handshake, and with each call that comes in: it must
	// be quick. The cluster may change once, from none.
	Self func() Identity

	// Check refuses connections for reasons of its own, if it is set; nil from it
	// is a welcome. It is asked after the port's own rules, again when Self has
	// changed, and must not wait.
	Check func(Hello) *RefusedError

	// Serve answers the calls of other nodes. Those of one connection come in the
	// order in which they were sent, one at a time, so it must not wait; reply is
	// called once, from any goroutine, at once or later, and copies what it is
	// given. payload is not used again by the port. nil: calls are refused.
	Serve func(h Hello, kind uint8, payload []byte, reply func(payload []byte))

	// MaxFrame bounds a call and a reply, in bytes; 8 MiB. It must be the same on
	// all nodes.
	MaxFrame int

	Log *slog.Logger // nil: none
}

// Port is an open port. Its goroutines: one accepts; each connection in has one
// until it has said hello and then, if it is for calls, two; each connection out
// for calls has two. Close ends them and waits.
type Port struct {
	o      Options
	dialer func(ctx context.Context, addr string) (net.Conn, error)
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	open   atomic.Bool // streams of Raft are taken
	count  counters
	born   time.Time

	// mu guards what follows. A link's mutex is locked after it, never before.
	mu        sync.Mutex
	started   bool
	closed    bool
	conns     map[*conn]struct{}
	strangers []*conn // that have not said hello, in the order of their arrival
	links     map[target]*link
	layer     *layer
	told      map[string]time.Time // when something was last logged
}

// New makes a Port that does not accept yet, but can call.
func New(o Options) *Port {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxFrame <= 0 {
		o.MaxFrame = frameMost
	}
	d := &net.Dialer{KeepAliveConfig: keepAlive}
	p := &Port{
		o:      o,
		dialer: func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) },
		conns:  make(map[*conn]struct{}),
		links:  make(map[target]*link),
		told:   make(map[string]time.Time),
		born:   time.Now(),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Start begins to accept. It fails if the options make no sense, or if it was
// called before.
func (p *Port) Start() error {
	switch {
	case p.o.Listener == nil || p.o.Self == nil:
		return errors.New("open the Raft port: a listener and an identity are needed")
	case (p.o.ServerTLS == nil) != (p.o.ClientTLS == nil):
		return errors.New("open the Raft port: TLS is needed for both directions or for none")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.started {
		return errors.New("open the Raft port: it was opened before")
	}
	p.started = true
	p.wg.Go(p.accept)
	return nil
}

// SetRaft says whether streams of Raft are taken: a node that is no member must
// promise nothing. It begins with no; going back to no closes those there are.
func (p *Port) SetRaft(on bool) {
	p.open.Store(on)
	if !on {
		p.closeStreams(func(c *conn) bool { return c.in })
	}
}

// closeStreams closes those streams of Raft that which says.
func (p *Port) closeStreams(which func(*conn) bool) {
	p.mu.Lock()
	var list []*conn
	for c := range p.conns {
		if c.raft && which(c) {
			list = append(list, c)
		}
	}
	p.mu.Unlock()
	for _, c := range list {
		_ = c.Close()
	}
}

// Close closes the listener and all connections. Calls that wait get their errors;
// when it returns they have them, no Serve is running, and no goroutine is left.
// A reply that is given later goes nowhere.
func (p *Port) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.wg.Wait()
		return nil
	}
	p.closed = true
	links := make([]*link, 0, len(p.links))
	for _, l := range p.links {
		links = append(links, l)
	}
	conns := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	p.cancel()
	var err error
	if p.o.Listener != nil {
		err = p.o.Listener.Close()
	}
	for _, l := range links {
		l.shut()
	}
	for _, c := range conns {
		_ = c.Close()
	}
	p.wg.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close the listener of the Raft port: %w", err)
	}
	return nil
}

// tellEvery is the rest between two log lines about the same thing.
const tellEvery = 10 * time.Second

// tell logs something that may happen often, as often as a person can bear. key
// says what counts as the same.
func (p *Port) tell(level slog.Level, key, what string, args ...any) {
	now := time.Now()
	p.mu.Lock()
	last, ok := p.told[key]
	quiet := ok && now.Sub(last) < tellEvery
	if !quiet {
		if len(p.told) >= 1000 {
			clear(p.told)
		}
		p.told[key] = now
	}
	p.mu.Unlock()
	if !quiet {
		p.o.Log.Log(p.ctx, level, what, args...)
	}
}
