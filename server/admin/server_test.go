package admin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// start runs a server on loopback until the test ends.
func start(t *testing.T, source Source) *Server {
	t.Helper()
	s, err := New(Config{Source: source, Addr: "127.0.0.1:0", Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// client is an HTTP client that leaves no connections behind.
func client(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// do sends a request and reads all of the answer.
func do(t *testing.T, c *http.Client, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func request(t *testing.T, s *Server, path string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestManyAskAtOnce(t *testing.T) {
	s := start(t, full())
	c := client(t)
	var wg sync.WaitGroup
	var bad atomic.Int64
	for i := range 3 * MaxConns {
		path := []string{"/metrics", "/readyz", "/healthz", "/"}[i%4]
		wg.Go(func() {
			for range 5 {
				resp, err := c.Do(request(t, s, path))
				if err != nil {
					bad.Add(1)
					return
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					bad.Add(1)
				}
				_ = resp.Body.Close()
			}
		})
	}
	wg.Wait()
	if n := bad.Load(); n > 0 {
		t.Errorf("%d requests failed", n)
	}
}

// TestThoseWhoScrapeAtOnceShareOneWalk holds back the first count of the keys:
// who asks meanwhile must not begin another.
func TestThoseWhoScrapeAtOnceShareOneWalk(t *testing.T) {
	var walks atomic.Int64
	begun, release := make(chan struct{}), make(chan struct{})
	f := full()
	f.asked = func() {
		if walks.Add(1) == 1 {
			close(begun)
			<-release
		}
	}
	s := start(t, f)
	c := client(t)
	var wg sync.WaitGroup
	scrape := func() {
		resp, err := c.Do(request(t, s, "/metrics"))
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	wg.Go(scrape)
	<-begun
	for range 5 {
		wg.Go(scrape)
	}
	until(t, "all are connected", func() bool { return s.limit.open() >= 6 })
	close(release)
	wg.Wait()
	// One that was connected, but whose request came after the first was
	// answered, walks again.
	if n := walks.Load(); n > 3 {
		t.Errorf("6 that ask at once made %d walks over the keys", n)
	}
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		s, err := New(Config{Source: full(), Listener: l, Log: discard()})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var open []net.Conn
		for range MaxConns {
			open = append(open, l.dial())
		}
		accepted := make(chan net.Conn, 1)
		go func() { accepted <- l.dial() }()
		synctest.Wait()
		if len(accepted) > 0 {
			t.Errorf("connection %d was accepted", MaxConns+1)
		}
		_ = open[0].Close()
		synctest.Wait()
		if len(accepted) == 0 {
			t.Fatal("one was closed, and the next is not accepted")
		}
		for _, c := range append(open[1:], <-accepted) {
			_ = c.Close()
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestACrowdKeepsNoConnections: silent connections must not hold the slots that
// others wait for.
func TestACrowdKeepsNoConnections(t *testing.T) {
	s := start(t, full())
	c := client(t)
	if resp, _ := do(t, c, request(t, s, "/healthz")); resp.Close {
		t.Error("the only connection is not kept")
	}
	for range MaxConns/2 + 1 {
		nc, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
	until(t, "they are connected", s.crowded)
	if resp, _ := do(t, c, request(t, s, "/healthz")); !resp.Close {
		t.Error("a connection is kept while many wait")
	}
}

func TestShutdownWaitsForAnswers(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	f := full()
	f.asked = sync.OnceFunc(func() { close(begun); <-release })
	s := start(t, f)
	status := make(chan int, 1)
	go func() {
		resp, err := client(t).Do(request(t, s, "/metrics"))
		if err != nil {
			status <- 0
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-begun
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	until(t, "nobody new is accepted", func() bool {
		c, err := net.Dial("tcp", s.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	select {
	case <-ended:
		t.Fatal("Shutdown did not wait for the answer")
	default:
	}
	close(release)
	if got := <-status; got != http.StatusOK {
		t.Errorf("the answer that was being made was cut off: status %d", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func TestShutdownCutsOffWhenTimeIsUp(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	f := full()
	f.asked = sync.OnceFunc(func() { close(begun); <-release })
	s := start(t, f)
	failed := make(chan error, 1)
	go func() {
		resp, err := client(t).Do(request(t, s, "/metrics"))
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
	}()
	<-begun
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-failed; err == nil || os.IsTimeout(err) {
		t.Errorf("the connection was not cut off: %v", err)
	}
	close(release)
}

func TestStartSaysWhyItCannotListen(t *testing.T) {
	first := start(t, full())
	s, err := New(Config{Source: full(), Addr: first.Addr().String(), Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Start(t.Context())
	var op *net.OpError
	if !errors.Is(err, syscall.EADDRINUSE) || !errors.As(err, &op) || op.Op != "listen" {
		t.Errorf("Start on a port that is taken: %v", err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown of a server that could not start: %v", err)
	}
	if err := first.Start(t.Context()); err == nil {
		t.Error("a server started twice")
	}
}

func TestShutdownBeforeStartClosesTheListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Source: full(), Listener: l, Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	if s.Addr() == nil {
		t.Error("the address of the listener is not known")
	}
	for range 2 {
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("a server started after it was shut down")
	}
}

// slowToEnd is a listener whose Accept goes on for a second after Close.
type slowToEnd struct{ *pipeListener }

func (l slowToEnd) Accept() (net.Conn, error) {
	c, err := l.pipeListener.Accept()
	if err != nil {
		<-time.After(time.Second)
	}
	return c, err
}

func TestShutdownWaitsForItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Source: full(), Listener: slowToEnd{newPipeListener()}, Log: discard()})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begun := time.Now()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if time.Since(begun) < time.Second {
			t.Error("something of the server runs after Shutdown")
		}
	})
}

// TestShutdownRightAfterStartClosesTheListener: net/http has not yet seen the
// listener then, and does not wait for it.
func TestShutdownRightAfterStartClosesTheListener(t *testing.T) {
	for range 50 {
		l := newPipeListener()
		s, err := New(Config{Source: full(), Listener: l, Log: discard()})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		select {
		case <-l.done:
		default:
			t.Fatal("the listener is open after Shutdown")
		}
	}
}

func TestAListenerThatFailsIsLogged(t *testing.T) {
	var log bytes.Buffer
	l := &failing{newPipeListener(), errors.New("the socket is gone")}
	s, err := New(Config{Source: full(), Listener: l, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	if text := log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "the socket is gone") {
		t.Errorf("the log: %q", text)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	l := &pipeListener{}
	for _, tc := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no source", Config{Addr: "x", Log: discard()}, "Source"},
		{"no log", Config{Addr: "x", Source: full()}, "Log"},
		{"no address", Config{Source: full(), Log: discard()}, "Addr"},
		{"two addresses", Config{Source: full(), Log: discard(), Addr: "x", Listener: l}, "Listener"},
	} {
		if _, err := New(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// pipeListener is a listener in memory, so that virtual time reaches its
// connections.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (l *pipeListener) dial() net.Conn {
	ours, theirs := net.Pipe()
	l.conns <- theirs
	return ours
}

// TestSlowClientsAreCutOff measures in virtual time how long a client can hold
// a connection.
func TestSlowClientsAreCutOff(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(c net.Conn) // returns when the server has closed the connection
		want time.Duration
	}{
		{"says nothing", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, headerTimeout},
		{"does not end its headers", func(c net.Conn) {
			_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\n")
			go func() { _, _ = io.Copy(io.Discard, c) }()
			for {
				if _, err := io.WriteString(c, "x: y\r\n"); err != nil {
					return
				}
				<-time.After(time.Second)
			}
		}, headerTimeout},
		{"does not read", func(c net.Conn) {
			_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
			<-time.After(writeTimeout + time.Second)
			if n, err := io.Copy(io.Discard, c); n > 8<<10 || err != nil {
				<-time.After(time.Hour) // it was served after all
			}
		}, writeTimeout + time.Second},
		{"is silent after a request", func(c net.Conn) {
			_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
		}, idleTimeout},
		{"sends no body", func(c net.Conn) {
			_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
		}, readTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newPipeListener()
				s, err := New(Config{Source: full(), Listener: l, Log: discard()})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				c := l.dial()
				begun := time.Now()
				tc.run(c)
				if took := time.Since(begun); took < tc.want-time.Second || took > tc.want+2*time.Second {
					t.Errorf("it held the connection for %v, want about %v", took, tc.want)
				}
				_ = c.Close()
				synctest.Wait()
				if n := s.limit.open(); n != 1 { // that of the waiting Accept
					t.Errorf("%d slots are taken after it is gone", n)
				}
				if err := s.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestLargeHeadersAreRefused(t *testing.T) {
	s := start(t, full())
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 2*maxHeader)+"\r\n\r\n")
	}()
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.Contains(line, " 431 ") {
		t.Errorf("headers of %d bytes: %q, %v", 2*maxHeader, line, err)
	}
}
