package port

import (
	"net"
	"sync"
	"time"
)

// keepAlive finds the dead among connections on which nothing is said: streams of
// Raft that lie in a pool, above all.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 3 * time.Second, Count: 3}

// How long the other side's system may leave bytes unacknowledged, or take none.
// A follower that installs a snapshot reads slowly while its disk is busy, so
// streams of Raft get more; they have deadlines of their own.
const (
	callsUnacknowledged = 5 * time.Second
	raftUnacknowledged  = 30 * time.Second
)

// conn is a socket as the port keeps it: its bytes are counted, and Close takes it
// off the list of those to be closed. With TLS it is what lies below.
type conn struct {
	net.Conn
	p       *Port
	in      bool // accepted, not dialed
	welcome bool // the handshake is done; guarded by p.mu
	raft    bool // a stream for Raft; guarded by p.mu

	once sync.Once
	err  error // of Close
}

// enter puts a socket on the list, unless the port is closed.
func (p *Port) enter(nc net.Conn, in, raft bool) (*conn, bool) {
	c := &conn{Conn: nc, p: p, in: in, raft: raft}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false
	}
	p.conns[c] = struct{}{}
	return c, true
}

// greeted notes that the handshake is done.
func (c *conn) greeted(raft bool) {
	limit := callsUnacknowledged
	if raft {
		limit = raftUnacknowledged
	}
	setUnacknowledged(c.Conn, limit)
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.welcome, c.raft = true, raft
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.p.count.bytesIn.Add(uint64(n))
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.p.count.bytesOut.Add(uint64(n))
	return n, err
}

// Close closes the socket. Only the first one does anything.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.p.mu.Lock()
		delete(c.p.conns, c)
		c.p.mu.Unlock()
		c.err = c.Conn.Close()
	})
	return c.err
}

// stream is a connection after the handshake: what is read and written goes
// through TLS, if there is any, and Close closes the socket below. The goodbye of
// TLS is left out: it waits for a peer that may take nothing any more, and without
// it the other side reads the end of the stream just as well.
type stream struct {
	net.Conn
	sock *conn
}

func (s *stream) Close() error { return s.sock.Close() }

// bounded is a connection whose reads and writes may each take so long.
type bounded struct {
	net.Conn
	read, write time.Duration
}

// writePiece is how many bytes have writeTimeout to leave.
const writePiece = 256 << 10

func (b *bounded) Read(p []byte) (int, error) {
	if err := b.SetReadDeadline(time.Now().Add(b.read)); err != nil {
		return 0, err
	}
	return b.Conn.Read(p)
}

// Write writes in pieces: the deadline is for progress, not for the whole.
func (b *bounded) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		if err := b.SetWriteDeadline(time.Now().Add(b.write)); err != nil {
			return n, err
		}
		var w int
		w, err = b.Conn.Write(p[:min(len(p), writePiece)])
		n, p = n+w, p[w:]
	}
	return n, err
}
