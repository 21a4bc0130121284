package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint/server/resp"
)

// tlsPrefix begins the address of a TLS listener.
const tlsPrefix = "tls:"

// Bounds of TLS.
const (
	handshakeFor = 10 * time.Second // how long a client may take for its handshake
	tlsPiece     = 64 << 10         // bytes that are encrypted at a time
)

// IsTLS reports whether addr names a TLS listener.
func IsTLS(addr string) bool { return strings.HasPrefix(addr, tlsPrefix) }

// ListenTLS opens the listener tls:host:port. Its connections show the
// certificate that certs has when they are accepted; their handshake is done on
// their own goroutine.
func ListenTLS(ctx context.Context, addr string, certs *Certificates) (net.Listener, error) {
	if certs == nil {
		return nil, errors.New("open the listener " + addr + ": there is no certificate")
	}
	l, err := Listen(ctx, strings.TrimPrefix(addr, tlsPrefix))
	if err != nil {
		return nil, err
	}
	return &tlsListener{l, certs}, nil
}

// tlsListener accepts connections that speak TLS.
type tlsListener struct {
	net.Listener
	certs *Certificates
}

func (l *tlsListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newTLSConn(nc, l.certs.now().config), nil
}

// Addr is the address with a network of its own, for those who show it.
func (l *tlsListener) Addr() net.Addr {
	if tcp, ok := l.Listener.Addr().(*net.TCPAddr); ok {
		return TLSAddr{tcp}
	}
	return l.Listener.Addr()
}

// TLSAddr is where a TLS listener listens.
type TLSAddr struct{ *net.TCPAddr }

// Network is "tls".
func (TLSAddr) Network() string { return "tls" }

// Verifies reports whether nc is a connection on which only a client with a
// certificate that we trust gets through the handshake, which may be yet to
// come.
func Verifies(nc net.Conn) bool {
	t, ok := nc.(*tlsConn)
	return ok && t.verifies
}

// tlsConn is a connection over TLS that behaves like one without: a Write that
// a deadline has ended tells how far it came, and the next one goes on there.
//
// A tls.Conn cannot do that. Its write takes a deadline for the end of the
// connection, and rightly, as half a record may be on its way. So it writes
// into memory here (wire), and what is there goes to the socket in writes that
// can be taken up again. That also makes one packet of the many small records
// that it begins with.
//
// Its methods are for the connection's goroutine, but for Close and the
// deadlines, which anyone may call.
type tlsConn struct {
	tls      *tls.Conn
	wire     *wire
	verifies bool // the client must show a certificate

	mu     sync.Mutex // held while tls and wire are in use; Close from elsewhere only tries
	sealed int        // bytes at the start of the next Write that wire has already
}

func newTLSConn(nc net.Conn, config *tls.Config) *tlsConn {
	w := &wire{Conn: nc}
	return &tlsConn{tls: tls.Server(w, config), wire: w, verifies: config.ClientAuth == tls.RequireAndVerifyClientCert}
}

// handshake makes sure who is there, within so much time. Nothing else may be
// done before.
func (c *tlsConn) handshake(within time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(within))
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.tls.Handshake()
	if pushed := c.wire.push(); err == nil {
		err = pushed
	}
	if err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

func (c *tlsConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tls.Read(p)
}

// Write returns less than len(p) when a deadline has passed. The bytes left
// over must then be the next to be written, since some may be encrypted.
func (c *tlsConn) Write(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		err = c.wire.push()
		// A byte counts as taken when no more are left than may follow it.
		left := min(c.sealed, c.wire.left())
		n += c.sealed - left
		c.sealed = left
		if err != nil || n == len(p) {
			return n, err
		}
		piece := p[n:min(len(p), n+tlsPiece)]
		if _, err = c.tls.Write(piece); err != nil {
			return n, err
		}
		c.sealed = len(piece)
	}
}

// CloseWrite says that nothing more will come, in TLS and below it.
func (c *tlsConn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goodbye()
	if half, ok := c.wire.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close ends the connection at once. Clients take an end without a word of TLS
// for an attack, so that word is given if nobody is in the middle of another.
func (c *tlsConn) Close() error {
	if c.mu.TryLock() {
		c.goodbye()
		c.mu.Unlock()
	}
	return c.wire.Conn.Close()
}

// goodbye sends the end of the TLS stream, if the socket takes it at once. mu
// is held.
func (c *tlsConn) goodbye() {
	_ = c.tls.CloseWrite() // before the handshake is done there is nothing to end
	if c.wire.left() > 0 {
		_ = c.wire.Conn.SetWriteDeadline(time.Now().Add(lastLook))
		_ = c.wire.push()
	}
}

func (c *tlsConn) LocalAddr() net.Addr                { return c.wire.LocalAddr() }
func (c *tlsConn) RemoteAddr() net.Addr               { return c.wire.RemoteAddr() }
func (c *tlsConn) SetDeadline(t time.Time) error      { return c.wire.Conn.SetDeadline(t) }
func (c *tlsConn) SetReadDeadline(t time.Time) error  { return c.wire.Conn.SetReadDeadline(t) }
func (c *tlsConn) SetWriteDeadline(t time.Time) error { return c.wire.Conn.SetWriteDeadline(t) }

// wire is the socket as a tls.Conn sees it: what it writes is kept, up to the
// next push.
type wire struct {
	net.Conn
	out   *[]byte // records for the socket; nil: none
	sent  int     // bytes of out that it has taken
	heard bool    // the client has sent something
}

// wirePool lends the memory for records: a connection that waits needs none.
var wirePool = sync.Pool{New: func() any { return new([]byte) }}

func (w *wire) Write(b []byte) (int, error) {
	if w.out == nil {
		w.out = wirePool.Get().(*[]byte)
	}
	*w.out = append(*w.out, b...)
	return len(b), nil
}

// SetWriteDeadline does nothing: a tls.Conn sets one for its own end, and what
// it writes never waits.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// Read sends what was written first: the client may wait for it. What the
// socket does not take now stays for the next time.
func (w *wire) Read(b []byte) (int, error) {
	if err := w.push(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, err
	}
	n, err := w.Conn.Read(b)
	w.heard = w.heard || n > 0
	return n, err
}

// left is how many bytes wait for the socket.
func (w *wire) left() int {
	if w.out == nil {
		return 0
	}
	return len(*w.out) - w.sent
}

// push gives the socket what waits for it. After an error it can be called
// again.
func (w *wire) push() error {
	if w.out == nil {
		return nil
	}
	n, err := w.Conn.Write((*w.out)[w.sent:])
	w.sent += n
	if w.left() == 0 {
		*w.out = (*w.out)[:0]
		wirePool.Put(w.out)
		w.out, w.sent = nil, 0
	}
	return err
}

// secure does the handshake of a TLS connection, before anything else. It
// fails when the connection is to be closed.
func (c *conn) secure() bool {
	t, ok := c.nc.(*tlsConn)
	if !ok {
		return true
	}
	err := t.handshake(handshakeFor)
	if err == nil {
		return true
	}
	if c.s.draining.Load() {
		return false // a stop has ended it
	}
	if !t.wire.heard && !errors.Is(err, os.ErrDeadlineExceeded) {
		// A load balancer's probe: connects, and leaves.
		c.s.o.Log.Debug("a client left before its TLS handshake", "id", c.info.ID, "error", err)
		return false
	}
	c.s.countHandshake(c.info, err)
	if plain := new(tls.RecordHeaderError); errors.As(err, plain) && plain.Conn != nil {
		w := resp.Writer{}
		w.Error("ERR this port speaks TLS, and the client does not: connect with TLS, as redis-cli --tls does")
		_ = t.SetWriteDeadline(time.Now().Add(lingerFor))
		_, _ = t.wire.Conn.Write(w.B)
	}
	// The client reads why, if it has not been told by a reset before.
	linger(t.wire.Conn, make([]byte, 512), lingerFor)
	return false
}

// countHandshake counts a failed handshake and tells the operator: the first
// time and then at most once in tlsLogEvery.
func (s *Server) countHandshake(info ConnInfo, err error) {
	n := s.tlsFailed.Add(1)
	now, last := int64(time.Since(s.made))+1, s.tlsFailedLogged.Load()
	log := s.o.Log.Info
	if last != 0 && now-last < int64(tlsLogEvery) || !s.tlsFailedLogged.CompareAndSwap(last, now) {
		log = s.o.Log.Debug
	}
	log("a TLS handshake failed, the connection is closed: "+whyHandshake(err),
		"id", info.ID, "client", info.Remote, "error", err, "failed_so_far", n)
}

// whyHandshake says of an error of a handshake who has to do what.
func whyHandshake(err error) string {
	var (
		plain  tls.RecordHeaderError
		verify *tls.CertificateVerificationError
		op     *net.OpError
	)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "the client did not finish it in " + handshakeFor.String()
	case errors.As(err, &plain):
		return "the client does not speak TLS, which this address wants: it has to connect with TLS, or to another address"
	case errors.As(err, &verify):
		return "the client's certificate is none that --tls-ca accepts"
	case errors.As(err, &op) && op.Op == "remote error":
		return "the client does not accept this server, most likely its certificate: it has to trust the authority that signed --tls-cert, and to use a name that is in it"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the client left in the middle of it"
	case strings.Contains(err.Error(), "didn't provide a certificate"):
		return "the client shows no certificate, and --tls-ca demands one"
	}
	return "client and server do not agree"
}
