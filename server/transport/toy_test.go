package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/server/resp"
	"go.uber.org/goleak"
)

// The suite runs once for each way to serve connections. What it says of a
// limit, a time-out or the order of replies holds for all of them.
var ways = []way{
	{name: "a goroutine a connection"},
	{name: "an event loop from the first byte", loops: 1, stay: 0},
	{name: "two event loops, and back to them soon", loops: 2, stay: 2},
}

type way struct {
	name        string
	loops, stay int
}

// present is the way of this run.
var present way

type suite struct{ *testing.M }

func (s suite) Run() (code int) {
	for _, present = range ways {
		fmt.Println("=== transport:", present.name)
		code = max(code, s.M.Run())
	}
	return code
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(suite{m})
}

// patience bounds waits for what must happen; only a broken test waits so long.
const patience = 20 * time.Second

// toy is a Session with a few commands: PING, ECHO x, BIG n (n bytes), COUNT
// (of its arguments), AUTH, QUIT, PANIC, and WAIT, which decides when hold is
// closed, and OVER, whose reply is too large. Like a real one it answers in
// Flush, up to resp.FlushBytes at a time.
type toy struct {
	info    ConnInfo
	hold    chan struct{}
	closed  func()
	open    bool // authenticated
	flushes int
	pending [][][]byte
}

func (s *toy) Command(args [][]byte, wait bool) bool {
	switch strings.ToUpper(string(args[0])) {
	case "WAIT", "BIG", "OVER":
		if !wait {
			return false
		}
	}
	s.pending = append(s.pending, args)
	return true
}

func (s *toy) Flush(out []byte, _ bool) ([]byte, bool, error) {
	s.flushes++
	w := resp.Writer{B: out}
	for len(s.pending) > 0 {
		args := s.pending[0]
		s.pending = s.pending[1:]
		switch name := strings.ToUpper(string(args[0])); name {
		case "PING":
			w.Simple("PONG")
		case "ECHO":
			w.Bulk(args[1])
		case "BIG":
			n, _ := strconv.Atoi(string(args[1]))
			w.Bulk(make([]byte, n))
		case "COUNT":
			w.Int(int64(len(args)))
		case "AUTH":
			s.open = true
			w.OK()
		case "WAIT":
			<-s.hold
			w.OK()
		case "PANIC":
			panic("a fault in a command")
		case "QUIT":
			w.OK()
			s.pending = nil
			return w.B, false, errors.New("the client asked for the end")
		case "OVER":
			s.pending = nil
			return w.B, false, over{}
		default:
			w.Error("ERR unknown command " + resp.Quote(args[0]))
		}
		if len(w.B) >= resp.FlushBytes && len(s.pending) > 0 {
			return w.B, true, nil
		}
	}
	return w.B, false, nil
}

// over is the end for a reply that is too large.
type over struct{}

func (over) Error() string    { return "a reply is too large" }
func (over) OverOutput() bool { return true }

func (s *toy) Authenticated() bool { return s.open }

func (s *toy) Closed() {
	if s.closed != nil {
		s.closed()
	}
}

// newServer makes a Server of toys, authenticated unless o makes its own, and
// stops it at the end of the test.
func newServer(t testing.TB, o Options) *Server {
	t.Helper()
	if o.NewSession == nil {
		o.NewSession = func(info ConnInfo) Session { return &toy{info: info, open: true} }
	}
	o.Loops = present.loops
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if present.loops > 0 {
		s.stay, s.back = present.stay, present.stay
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("stop the server: %v", err)
		}
	})
	return s
}

// onLoopback serves on a TCP port of the loopback device.
func onLoopback(t testing.TB, s *Server) (addr string) {
	t.Helper()
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := s.Serve(l); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	return l.Addr().String()
}

// client is a connection with a reader and a bound on every wait.
type client struct {
	net.Conn
	*bufio.Reader
	t testing.TB
}

// Read takes what the reader has before it asks the connection.
func (c *client) Read(p []byte) (int, error) { return c.Reader.Read(p) }

func dial(t testing.TB, addr string) *client {
	t.Helper()
	network := "tcp"
	if IsUnix(addr) {
		network, addr = "unix", strings.TrimPrefix(addr, "unix:")
	}
	nc, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(patience))
	return wrap(t, nc)
}

func wrap(t testing.TB, nc net.Conn) *client {
	t.Cleanup(func() { _ = nc.Close() })
	return &client{Conn: nc, Reader: bufio.NewReader(nc), t: t}
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, s); err != nil {
		c.t.Fatalf("send %.80q: %v", s, err)
	}
}

// want reads exactly the given bytes.
func (c *client) want(s string) {
	c.t.Helper()
	got := make([]byte, len(s))
	n, err := io.ReadFull(c.Reader, got)
	if err != nil || string(got) != s {
		c.t.Fatalf("got %.200q, %v; want %.200q", got[:n], err, s)
	}
}

// end reads up to the end of the connection and returns what came before.
func (c *client) end() string {
	c.t.Helper()
	got, err := io.ReadAll(c.Reader)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		c.t.Fatalf("the connection is not closed after %.200q", got)
	}
	return string(got)
}

func (c *client) ping() {
	c.t.Helper()
	c.send("PING\r\n")
	c.want("+PONG\r\n")
}

// eventually waits for a condition that a Server reaches on its own.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-ticker.C:
		case <-late:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// pipes is a listener of connections in memory: each Write of one end is one
// Read of the other, and time limits follow the clock of a synctest bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// dial opens a connection.
func (l *pipes) dial(t testing.TB) *client {
	near, far := net.Pipe()
	l.conns <- far
	return wrap(t, near)
}
