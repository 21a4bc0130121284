// Package port is the one port through which the nodes of a cluster speak to each
// other: streams of Raft's transport, and calls, which are a request and a reply.
// A handshake says who calls whom, so that a node that was replaced, or one of
// another cluster, is refused before it can do harm. With TLS both sides show
// certificates; without it the port has no other protection.
//
// The package knows nothing of what the calls are about.
package port

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Bounds.
const (
	helloTimeout = 2 * time.Second
	strangers    = 256 // connections at a time that have not said hello
	maxFrame     = 16 << 20
	maxQueued    = 64 << 20 // bytes that wait to be written to one node
	writeTimeout = 5 * time.Second
	pingEvery    = time.Second
	silence      = 4 * time.Second // after which a connection of calls counts as dead
	backoffLeast = 25 * time.Millisecond
	backoffMost  = time.Second
)

// Errors of calls.
var (
	// ErrNotSent: surely nothing of the call has reached the other node.
	ErrNotSent = errors.New("the call was not sent")
	// ErrLost: the call may have reached the other node; no reply has come.
	ErrLost = errors.New("no reply has come")
)

// Options of a Port.
type Options struct {
	Listener             net.Listener
	ServerTLS, ClientTLS *tls.Config // both or none
	Self                 func() Identity
	// Serve answers a call. It must not wait; reply is called once, from any
	// goroutine, at once or later. payload may be kept until then.
	Serve func(h Hello, kind uint8, payload []byte, reply func([]byte))
	Log   *slog.Logger
}

// Port is an open port. Its goroutines: one accepts, one or two serve each
// connection. Close ends them.
type Port struct {
	o    Options
	raft atomic.Bool // streams of Raft are taken

	streams chan net.Conn
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	guests  atomic.Int64

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
	links  map[[2]string]*link
	refuse map[string]time.Time // when a refusal was last logged, by what it says
}

// New makes a Port that does not accept yet.
func New(o Options) *Port {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Port{o: o, streams: make(chan net.Conn), conns: map[net.Conn]struct{}{}, links: map[[2]string]*link{}, refuse: map[string]time.Time{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Start begins to accept.
func (p *Port) Start() error {
	p.wg.Go(p.accept)
	return nil
}

// SetRaft says whether streams of Raft are taken: a node that is no member yet
// must promise nothing.
func (p *Port) SetRaft(on bool) { p.raft.Store(on) }

// Close closes the listener and all connections and waits for the goroutines.
func (p *Port) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	links := make([]*link, 0, len(p.links))
	for _, l := range p.links {
		links = append(links, l)
	}
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.cancel()
	err := p.o.Listener.Close()
	for _, l := range links {
		l.fail(nil, net.ErrClosed)
	}
	p.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

func (p *Port) accept() {
	pause := time.Duration(0)
	for {
		c, err := p.o.Listener.Accept()
		switch {
		case err == nil:
			pause = 0
		case p.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default:
			pause = min(max(2*pause, backoffLeast), backoffMost)
			p.o.Log.Warn("accepting a connection on the Raft port failed, trying again", "error", err, "pause", pause)
			select {
			case <-time.After(pause):
			case <-p.ctx.Done():
				return
			}
			continue
		}
		if p.guests.Load() >= strangers || !p.enter(c) {
			_ = c.Close()
			continue
		}
		p.guests.Add(1)
		p.wg.Go(func() { p.welcome(c) })
	}
}

// enter notes a connection, to be closed by Close; false if that has begun.
func (p *Port) enter(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Port) leave(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

// welcome does the handshake with who has connected and serves it.
func (p *Port) welcome(raw net.Conn) {
	guest := true
	defer func() {
		if guest {
			p.guests.Add(-1)
		}
	}()
	c := raw
	_ = c.SetDeadline(time.Now().Add(helloTimeout))
	if p.o.ServerTLS != nil {
		t := tls.Server(raw, p.o.ServerTLS)
		if err := t.HandshakeContext(p.ctx); err != nil {
			p.tell("TLS failed on the Raft port", raw, err)
			p.leave(raw)
			return
		}
		c = t
	}
	in := bufio.NewReaderSize(c, 4096)
	h, err := readHello(in)
	refused := new(RefusedError)
	if err != nil && !errors.As(err, &refused) {
		if errors.Is(err, errHello) {
			p.tell("something that is no node of stint speaks to the Raft port", raw, err)
		}
		p.leave(raw)
		return
	}
	if err == nil {
		refused = p.check(h)
	}
	if refused != nil {
		p.tell("a node is refused on the Raft port", raw, refused)
		_, _ = c.Write(appendAnswer(nil, refused))
		p.leave(raw)
		return
	}
	if _, err := c.Write(appendAnswer(nil, nil)); err != nil {
		p.leave(raw)
		return
	}
	_ = c.SetDeadline(time.Time{})
	guest = false
	p.guests.Add(-1)
	if !h.Raft {
		p.serve(h, raw, c, in)
		return
	}
	select {
	case p.streams <- &stream{Conn: c, in: in, gone: func() { p.leave(raw) }}:
	case <-p.ctx.Done():
		p.leave(raw)
	}
}

// check says why a node must not be let in, nil if it may.
func (p *Port) check(h Hello) *RefusedError {
	self := p.o.Self()
	switch {
	case h.To != "" && h.To != self.ID:
		return &RefusedError{WrongReceiver, fmt.Sprintf("%s is meant, and this is %s", h.To, self.ID)}
	case h.Cluster != "" && self.Cluster != "" && h.Cluster != self.Cluster:
		return &RefusedError{WrongCluster, fmt.Sprintf("%s belongs to cluster %s, and this is cluster %s", h.From, h.Cluster, self.Cluster)}
	case h.Raft && (!p.raft.Load() || h.Cluster != self.Cluster):
		return &RefusedError{NotServing, fmt.Sprintf("%s takes no part in cluster %q", self.ID, h.Cluster)}
	}
	return nil
}

// refuseEvery is the rest between two log lines of the same kind.
const refuseEvery = 10 * time.Second

func (p *Port) tell(what string, c net.Conn, err error) {
	key := what + err.Error()
	p.mu.Lock()
	now := time.Now()
	quiet := now.Sub(p.refuse[key]) < refuseEvery
	if !quiet {
		if len(p.refuse) > 1000 {
			clear(p.refuse)
		}
		p.refuse[key] = now
	}
	p.mu.Unlock()
	if !quiet {
		p.o.Log.Info(what, "from", c.RemoteAddr(), "error", err)
	}
}

// dial connects to a node and does the handshake.
func (p *Port) dial(ctx context.Context, addr string, h Hello) (net.Conn, error) {
	d := net.Dialer{}
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := raw
	if !p.enter(raw) {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	deadline, ok := ctx.Deadline()
	if limit := time.Now().Add(2 * helloTimeout); !ok || deadline.After(limit) {
		deadline = limit
	}
	_ = c.SetDeadline(deadline)
	if p.o.ClientTLS != nil {
		conf := p.o.ClientTLS
		if conf.ServerName == "" {
			host, _, _ := net.SplitHostPort(addr)
			conf = conf.Clone()
			conf.ServerName = host
		}
		t := tls.Client(raw, conf)
		if err := t.HandshakeContext(ctx); err != nil {
			p.leave(raw)
			return nil, fmt.Errorf("TLS with %s: %w", addr, err)
		}
		c = t
	}
	self := p.o.Self()
	h.Cluster, h.From = self.Cluster, self.ID
	if _, err = c.Write(appendHello(nil, h)); err == nil {
		err = readAnswer(c)
	}
	if err != nil {
		p.leave(raw)
		return nil, fmt.Errorf("handshake with %s: %w", addr, err)
	}
	_ = c.SetDeadline(time.Time{})
	return &stream{Conn: c, gone: func() { p.leave(raw) }}, nil
}

// stream is a connection after the handshake.
type stream struct {
	net.Conn
	in   *bufio.Reader // what was read beyond the handshake; nil: nothing
	once sync.Once
	gone func()
}

func (s *stream) Read(b []byte) (int, error) {
	if s.in != nil {
		return s.in.Read(b)
	}
	return s.Conn.Read(b)
}

func (s *stream) Close() error {
	err := s.Conn.Close()
	s.once.Do(s.gone)
	return err
}

// Layer is the port as Raft's transport uses it. Addresses that it dials have the
// form host:port#ID. advertise is the address at which others reach this node.
func (p *Port) Layer(advertise string) raft.StreamLayer { return &layer{p, addr(advertise)} }

type layer struct {
	p    *Port
	addr addr
}

type addr string

func (a addr) Network() string { return "tcp" }
func (a addr) String() string  { return string(a) }

func (l *layer) Accept() (net.Conn, error) {
	select {
	case c := <-l.p.streams:
		return c, nil
	case <-l.p.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close does nothing: the port outlives Raft, and is closed by its owner.
func (l *layer) Close() error { return nil }

func (l *layer) Addr() net.Addr { return l.addr }

func (l *layer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	host, id := split(string(address))
	ctx, cancel := context.WithTimeout(l.p.ctx, timeout)
	defer cancel()
	return l.p.dial(ctx, host, Hello{Raft: true, To: id})
}

// split takes the ID off an address.
func split(address string) (host, id string) {
	for i := range address {
		if address[i] == '#' {
			return address[:i], address[i+1:]
		}
	}
	return address, ""
}
