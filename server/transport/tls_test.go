package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// tlsBubble is bubble with TLS on the pipes. dial finishes the handshake.
func tlsBubble(t *testing.T, o Options, f func(t *testing.T, s *Server, l *pipes, dial func() *client)) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		s := newServer(t, o)
		l := newPipes()
		go s.Serve(&tlsListener{l, a.load(nil)})
		f(t, s, l, func() *client {
			t.Helper()
			c := tls.Client(l.dial(t).Conn, a.client(nil))
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			return wrap(t, c)
		})
	})
}

// tlsOnLoopback serves TLS on a TCP port of the loopback device.
func tlsOnLoopback(t testing.TB, s *Server, certs *Certificates) (addr string) {
	t.Helper()
	l, err := ListenTLS(t.Context(), "tls:127.0.0.1:0", certs)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := s.Serve(l); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	if l.Addr().Network() != "tls" {
		t.Errorf("the listener's network is %s, want tls", l.Addr().Network())
	}
	return l.Addr().String()
}

// dialTLS connects and does the handshake.
func dialTLS(t testing.TB, addr string, config *tls.Config) *client {
	t.Helper()
	nc, err := tls.Dial("tcp", addr, config)
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(patience))
	return wrap(t, nc)
}

func TestTLSServesWithPlainBesideIt(t *testing.T) {
	a := newAuthority(t)
	infos := make(chan ConnInfo, 8)
	s := newServer(t, Options{NewSession: func(info ConnInfo) Session {
		infos <- info
		return &toy{open: true}
	}})
	secure, plain := tlsOnLoopback(t, s, a.load(nil)), onLoopback(t, s)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := a.client(nil)
		config.MinVersion, config.MaxVersion = version, version
		c := dialTLS(t, secure, config)
		c.ping()
		c.send(strings.Repeat("PING\r\n", 5000))
		c.want(strings.Repeat("+PONG\r\n", 5000))
		c.send("QUIT\r\n")
		if got := c.end(); got != "+OK\r\n" {
			t.Errorf("QUIT is answered %q", got)
		}
		if info := <-infos; !info.TLS || info.Unix {
			t.Errorf("the session is told %+v, want TLS", info)
		}
	}
	dial(t, plain).ping()
	if info := <-infos; info.TLS {
		t.Error("a connection without TLS is said to have it")
	}
	config := a.client(nil)
	config.MinVersion, config.MaxVersion = tls.VersionTLS11, tls.VersionTLS11
	if nc, err := tls.Dial("tcp", secure, config); err == nil {
		nc.Close()
		t.Error("TLS 1.1 is served")
	}
}

func TestListenTLSSaysWhatIsWrong(t *testing.T) {
	if _, err := ListenTLS(t.Context(), "tls:127.0.0.1:0", nil); err == nil || !strings.Contains(err.Error(), "tls:127.0.0.1:0") {
		t.Errorf("without a certificate: %v", err)
	}
	if _, err := ListenTLS(t.Context(), "tls:127.0.0.1", newAuthority(t).load(nil)); err == nil || !strings.Contains(err.Error(), "missing port") {
		t.Errorf("without a port: %v", err)
	}
}

// stingy is a socket that again and again takes a part of what is written and
// then has its deadline.
type stingy struct {
	net.Conn
	rand *rand.Rand
	on   bool
	cuts int
}

func (s *stingy) Write(b []byte) (int, error) {
	if !s.on || s.rand.IntN(4) == 0 {
		return s.Conn.Write(b)
	}
	s.cuts++
	n, err := s.Conn.Write(b[:s.rand.IntN(len(b))])
	if err == nil {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// A tls.Conn breaks its stream when a write is ended; the replies of a slow
// client would be cut in the middle of a record.
func TestAWriteThatWasEndedGoesOnWithoutLoss(t *testing.T) {
	a := newAuthority(t)
	for seed := range uint64(20) {
		far, near, err := socketPair()
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(seed, 0))
		cut := &stingy{Conn: near, rand: r}
		data := make([]byte, 1+r.IntN(1<<20))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		got := make(chan []byte, 1)
		go func() {
			all, err := io.ReadAll(tls.Client(far, a.client(nil)))
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			got <- all
		}()
		c := newTLSConn(cut, a.load(nil).now().config)
		if err := c.handshake(patience); err != nil {
			t.Fatal(err)
		}
		cut.on = true
		for rest := data; len(rest) > 0; {
			// As much as a reply has, and the rest of it again.
			piece := rest[:min(len(rest), 1+r.IntN(200_000))]
			for len(piece) > 0 {
				n, err := c.Write(piece)
				if n < 0 || n > len(piece) || (err == nil) != (n == len(piece)) {
					t.Fatalf("seed %d: %d of %d bytes written, %v", seed, n, len(piece), err)
				}
				piece, rest = piece[n:], rest[n:]
			}
		}
		cut.on = false
		if err := c.CloseWrite(); err != nil {
			t.Error(err)
		}
		if all := <-got; !bytes.Equal(all, data) {
			t.Errorf("seed %d: %d bytes arrived, and not the %d that were sent", seed, len(all), len(data))
		}
		_ = c.Close()
		_ = far.Close()
		if len(data) > 1000 && cut.cuts == 0 {
			t.Errorf("seed %d: no write was ended", seed)
		}
	}
}

// socketPair is a TCP connection of the loopback device.
func socketPair() (far, near net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if far, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	near, err = l.Accept()
	return far, near, err
}

func TestAClientThatReadsSlowlyOverTLSIsServed(t *testing.T) {
	tlsBubble(t, Options{}, func(t *testing.T, s *Server, _ *pipes, dial func() *client) {
		c := dial()
		c.send("BIG 1000000\r\n")
		left := 1_000_000 + len("$1000000\r\n\r\n")
		for range 60 {
			n, err := io.ReadFull(c.Conn, make([]byte, 7000))
			if err != nil {
				t.Fatalf("closed although the client takes 70 kB in 10 s: %v", err)
			}
			left -= n
			pass(time.Second)
		}
		if _, err := io.ReadFull(c.Conn, make([]byte, left)); err != nil {
			t.Fatal(err)
		}
		c.ping()
		pass(time.Hour)
		c.ping()
	})
}

func TestAClientThatNeverReadsOverTLSIsClosed(t *testing.T) {
	tlsBubble(t, Options{}, func(t *testing.T, s *Server, _ *pipes, dial func() *client) {
		c, other := dial(), dial()
		c.send("BIG 1000000\r\n")
		pass(9 * time.Second)
		if got := s.Stats().Current; got != 2 {
			t.Fatalf("%d connections after 9 s, want 2", got)
		}
		pass(3 * time.Second)
		if got := s.Stats(); got.Current != 1 || got.SlowClosed != 1 || got.HeldReplies != 0 {
			t.Errorf("%d connections, %d closed as slow, %d bytes held; want 1, 1, 0", got.Current, got.SlowClosed, got.HeldReplies)
		}
		other.ping()
	})
}

// The watch ends the wait of a silent connection to take its memory; that may
// be in the middle of a record.
func TestATLSConnectionSurvivesBeingWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		s := newServer(t, Options{})
		l := newPipes()
		go s.Serve(&tlsListener{l, a.load(nil)})
		slow := &halves{Conn: l.dial(t).Conn}
		c := wrap(t, tls.Client(slow, a.client(nil)))
		c.ping()
		slow.pause = 11 * time.Second // longer than quietAfter
		for range 3 {
			c.ping()
			pass(11 * time.Second)
		}
		if slow.cuts < 3 {
			t.Errorf("%d records were sent in halves, want 3", slow.cuts)
		}
	})
}

// halves is a connection that sends each record in two halves with a pause.
type halves struct {
	net.Conn
	pause time.Duration
	cuts  int
}

func (h *halves) Write(b []byte) (int, error) {
	if h.pause == 0 {
		return h.Conn.Write(b)
	}
	h.cuts++
	n, err := h.Conn.Write(b[:len(b)/2])
	if err != nil {
		return n, err
	}
	pass(h.pause)
	m, err := h.Conn.Write(b[len(b)/2:])
	return n + m, err
}

// Closing a socket with unread input makes TCP drop the last words, as
// TestTheLastReplyIsGivenTime has it.
// plain is a chatty client that begins without TLS.
// syncBuilder collects a log that several goroutines write.
// Who is turned away and does not do its handshake holds up neither those behind
// it nor a place among those that are told why.
func TestAReloadHoldsForNewConnections(t *testing.T) {
	a := newAuthority(t)
	files := a.newFiles(nil)
	certs, err := LoadCertificates(files)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, Options{})
	addr := tlsOnLoopback(t, s, certs)
	config := a.client(nil)
	config.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	names := func(c *client) string {
		return strings.Join(c.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0].DNSNames, " ")
	}
	old := dialTLS(t, addr, config)
	old.ping()
	again := dialTLS(t, addr, config)
	if again.ping(); !again.Conn.(*tls.Conn).ConnectionState().DidResume {
		t.Error("a session is not resumed, so that the rest of this test says nothing")
	}
	a.renew(files, "stint.test", "new.test")
	if err := certs.Reload(); err != nil {
		t.Fatal(err)
	}
	c := dialTLS(t, addr, config)
	c.ping()
	if got := names(c); got != "stint.test new.test" || c.Conn.(*tls.Conn).ConnectionState().DidResume {
		t.Errorf("a new connection sees %q, resumed: %v; want the new certificate and no resumption", got, c.Conn.(*tls.Conn).ConnectionState().DidResume)
	}
	old.ping()
}

// A client must be able to tell the end of the stream from an attacker's: the
// last record is an alert, which only TLS 1.2 shows to somebody outside.
func TestEveryEndSaysThatItIsOne(t *testing.T) {
	a := newAuthority(t)
	connect := func(addr string) (*client, *tap) {
		t.Helper()
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(patience))
		config := a.client(nil)
		config.MaxVersion = tls.VersionTLS12
		heard := &tap{Conn: nc}
		return wrap(t, tls.Client(heard, config)), heard
	}
	ends := func(what string, c *client, heard *tap) {
		t.Helper()
		if _, err := io.ReadAll(c.Reader); err != nil {
			t.Errorf("%s: %v, want a plain end", what, err)
		}
		if last := heard.lastRecord(); last != 21 {
			t.Errorf("%s: the last record is of type %d, want 21, an alert", what, last)
		}
	}
	s := newServer(t, Options{IdleTimeout: 50 * time.Millisecond})
	s.tick = 5 * time.Millisecond
	addr := tlsOnLoopback(t, s, a.load(nil))
	c, heard := connect(addr)
	c.send("")
	ends("an idle client", c, heard)
	c, heard = connect(addr)
	c.send("PING\r\nQUIT\r\n")
	ends("a client that quits", c, heard)
	c, heard = connect(addr)
	c.send("$1\r\n")
	ends("a client that does not speak the protocol", c, heard)

	s = newServer(t, Options{})
	c, heard = connect(tlsOnLoopback(t, s, a.load(nil)))
	c.ping()
	c.send(strings.Repeat("PING\r\n", 100))
	eventually(t, "the commands have arrived", func() bool { return s.Stats().Commands == 101 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	c.want(strings.Repeat("+PONG\r\n", 100))
	ends("a client at a stop", c, heard)
}

// tap keeps what a connection has read.
type tap struct {
	net.Conn
	read []byte
}

func (p *tap) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	p.read = append(p.read, b[:n]...)
	return n, err
}

// lastRecord is the type of the last record of TLS.
func (p *tap) lastRecord() (kind byte) {
	for b := p.read; len(b) >= 5; {
		kind = b[0]
		b = b[min(len(b), 5+int(b[3])<<8+int(b[4])):]
	}
	return kind
}

// A kill may come while the client takes nothing; it must not wait for it.
func TestAKillEndsAWriteOverTLS(t *testing.T) {
	tlsBubble(t, Options{}, func(t *testing.T, s *Server, _ *pipes, dial func() *client) {
		c, other := dial(), dial()
		c.send("BIG 1000000\r\n")
		synctest.Wait()
		began := time.Now()
		if !s.Kill(1) {
			t.Fatal("there is no connection 1")
		}
		synctest.Wait()
		if took := time.Since(began); took > lastLook || s.Stats().Current != 1 {
			t.Errorf("after %v there are %d connections, want 1 at once", took, s.Stats().Current)
		}
		other.ping()
	})
}

// What TLS itself has to say goes out before the client is waited for, and what
// the socket does not take then is not lost.
func TestWireSendsBeforeItReads(t *testing.T) {
	far, near := net.Pipe()
	defer far.Close()
	w := &wire{Conn: near}
	_, _ = w.Write([]byte("abc"))
	_ = near.SetWriteDeadline(longAgo)
	go func() { _, _ = far.Write([]byte("x")) }()
	if n, err := w.Read(make([]byte, 1)); n != 1 || err != nil || w.left() != 3 {
		t.Errorf("%d, %v and %d bytes left, want what has come, and 3 left", n, err, w.left())
	}
	_ = near.SetDeadline(time.Now().Add(patience))
	go func() {
		b := make([]byte, 3)
		_, _ = io.ReadFull(far, b)
		_, _ = far.Write(b)
	}()
	b := make([]byte, 8)
	if n, err := w.Read(b); err != nil || string(b[:n]) != "abc" || w.left() != 0 || !w.heard {
		t.Errorf("read %q, %v, %d bytes left; want what was written first", b[:n], err, w.left())
	}
}
