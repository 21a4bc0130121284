package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/server/resp"
)

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	session := func(ConnInfo) Session { return &toy{} }
	limits := resp.DefaultLimits()
	limits.MaxInline = 0
	for name, o := range map[string]Options{
		"no sessions":     {},
		"a limit of 0":    {NewSession: session, Limits: limits},
		"a negative time": {NewSession: session, IdleTimeout: -1},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestMoreClientsThanAllowedAreTurnedAwayWithASentence(t *testing.T) {
	s := newServer(t, Options{MaxClients: 2})
	addr := onLoopback(t, s)
	first, second := dial(t, addr), dial(t, addr)
	first.ping()
	second.ping()
	c := dial(t, addr)
	c.send("PING\r\n") // what it has sent must not cost it the answer
	if got := c.end(); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("the third client gets %q", got)
	}
	_ = first.Close()
	eventually(t, "the first one has left", func() bool { return s.Stats().Current == 1 })
	dial(t, addr).ping()
	s.SetMaxClients(3)
	dial(t, addr).ping()
	if got := dial(t, addr).end(); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("the fourth client gets %q", got)
	}
	s.SetMaxClients(-1)
	dial(t, addr).ping()
	second.ping()
	if st := s.Stats(); st.Rejected != 2 || st.Accepted != 5 || st.Current != 4 {
		t.Errorf("%d turned away, %d let in, %d now; want 2, 5, 4", st.Rejected, st.Accepted, st.Current)
	}
}

func TestWhomAdmitRefusesIsToldWhy(t *testing.T) {
	var deny sync.Map
	s := newServer(t, Options{Admit: func(nc net.Conn) string {
		if _, ok := deny.Load("all"); ok {
			return "DENIED set a password"
		}
		return ""
	}})
	addr := onLoopback(t, s)
	dial(t, addr).ping()
	deny.Store("all", true)
	if got := dial(t, addr).end(); got != "-DENIED set a password\r\n" {
		t.Errorf("refused with %q", got)
	}
	if got := s.Stats().Denied; got != 1 {
		t.Errorf("%d denied, want 1", got)
	}
}

func TestSessionsKnowTheirConnection(t *testing.T) {
	infos := make(chan ConnInfo, 2)
	s := newServer(t, Options{NewSession: func(info ConnInfo) Session {
		infos <- info
		return &toy{open: true}
	}})
	addr := onLoopback(t, s)
	c := dial(t, addr)
	info := <-infos
	if info.ID != 1 || info.Unix || info.Local.String() != addr || info.Remote.String() != c.LocalAddr().String() {
		t.Errorf("the session is told %+v", info)
	}
	d := dial(t, addr)
	d.ping()
	second := <-infos
	seen := map[uint64]bool{}
	s.Each(func(i ConnInfo) bool { seen[i.ID] = true; return true })
	if len(seen) != 2 || !seen[1] || !seen[2] {
		t.Errorf("connections %v are listed, want 1 and 2", seen)
	}
	calls := 0
	s.Each(func(ConnInfo) bool { calls++; return false })
	if calls != 1 {
		t.Errorf("the list goes on %d times after it was told to stop", calls-1)
	}
	if !s.Kill(1) || s.Kill(7) {
		t.Error("kill: want true for a connection, false for none")
	}
	if got := c.end(); got != "" {
		t.Errorf("a killed connection gets %q", got)
	}
	d.ping()
	second.Kill()
	second.Kill()
	d.end()
}

func TestShutdownFinishesWhatHasArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		s := newServer(t, Options{NewSession: func(ConnInfo) Session { return &toy{open: true, hold: hold} }})
		l := newPipes()
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		idle, busy := l.dial(t), l.dial(t)
		idle.ping()
		busy.send("PING\r\nWAIT\r\nPING\r\n")
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() { stopped <- s.Shutdown(t.Context()) }()
		if got := idle.end(); got != "" {
			t.Errorf("the idle connection gets %q", got)
		}
		if err := <-served; err != nil {
			t.Errorf("serve returns %v, want nothing", err)
		}
		synctest.Wait()
		select {
		case <-stopped:
			t.Fatal("stopped while a command is decided")
		default:
		}
		close(hold)
		if got := busy.end(); got != "+PONG\r\n+OK\r\n+PONG\r\n" {
			t.Errorf("the busy connection gets %q", got)
		}
		if err := <-stopped; err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := s.Serve(newPipes()); !errors.Is(err, ErrStopped) {
			t.Errorf("serve after shutdown returns %v, want ErrStopped", err)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Errorf("second shutdown: %v", err)
		}
	})
}

func TestShutdownEndsByForceWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Options{})
		l := newPipes()
		go s.Serve(l)
		l.dial(t).send("BIG 1000\r\n") // and its reply is never read
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("shutdown returns %v, want the context's error", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("shutdown took %v, want 3 s", took)
		}
		if got := s.Stats().Current; got != 0 {
			t.Errorf("%d connections are left", got)
		}
	})
}

func TestShutdownDoesNotWaitForADecisionThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		s := newServer(t, Options{NewSession: func(ConnInfo) Session { return &toy{open: true, hold: hold} }})
		l := newPipes()
		go s.Serve(l)
		l.dial(t).send("WAIT\r\n")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		err := s.Shutdown(ctx)
		if err == nil || !strings.Contains(err.Error(), "1 connections still wait") {
			t.Errorf("shutdown returns %v, want how many still wait", err)
		}
		if took := time.Since(start); took != 3*time.Second+graceAfterForce {
			t.Errorf("shutdown took %v", took)
		}
		close(hold)
	})
}

func TestConnectionsComingDuringShutdownAreClosed(t *testing.T) {
	s := newServer(t, Options{NewSession: func(ConnInfo) Session {
		t.Error("it gets a session")
		return &toy{}
	}})
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	s.welcome(far)
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("reading gives %v, want the end", err)
	}
}

// Ten thousand connections that say one thing and keep still must cost the
// server little, and the next client nothing.
func TestTenThousandConnections(t *testing.T) {
	const want = 10_000
	n := want
	files := openFiles()
	if most := int(min(files, 1<<30))/2 - 200; n > most { // both ends are in this process
		n = most
		t.Logf("%d open files allow %d connections instead of %d", files, n, want)
	}
	s := newServer(t, Options{})
	addr := onLoopback(t, s)
	before := inUse()
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, nc := range conns {
			_ = nc.Close()
		}
	}()
	pong := make([]byte, len("+PONG\r\n"))
	for range n {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("connection %d: %v", len(conns)+1, err)
		}
		conns = append(conns, nc)
		_ = nc.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(nc, "PING\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(nc, pong); err != nil {
			t.Fatalf("connection %d: %v", len(conns), err)
		}
	}
	dial(t, addr).ping()
	each := (inUse() - before) / int64(n)
	t.Logf("%d bytes of memory a connection, its client in the same process included", each)
	if each > 32<<10 {
		t.Errorf("a connection costs %d bytes, want at most 32 KiB", each)
	}
	if got := s.Stats().Current; got != n+1 {
		t.Errorf("%d connections, want %d", got, n+1)
	}
}

// inUse returns the bytes of heap and stacks in use.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestAStopLosesNoReply fails when a client that reads, and never stops
// sending, misses replies to what was decided before the stop.
func TestAStopLosesNoReply(t *testing.T) {
	s, err := New(Options{NewSession: func(ConnInfo) Session { return new(count) }, Loops: present.loops})
	if err != nil {
		t.Fatal(err)
	}
	s.stay, s.back = present.stay, present.stay
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	var replies atomic.Int64
	stopping := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		clients.Go(func() {
			batch := bytes.Repeat([]byte("PING\r\n"), 5000)
			for {
				if _, err := c.Write(batch); err != nil {
					return
				}
			}
		})
		clients.Go(func() {
			defer c.Close()
			<-stopping // much is on its way by then
			buf := make([]byte, 64<<10)
			for {
				n, err := c.Read(buf)
				replies.Add(int64(bytes.Count(buf[:n], []byte("\n"))))
				if err != nil {
					return
				}
			}
		})
	}
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for s.Stats().Commands < 100_000 {
		<-poll.C
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	close(stopping)
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	clients.Wait()
	if got, want := replies.Load(), int64(s.Stats().Commands); got != want {
		t.Errorf("%d replies to %d commands", got, want)
	}
}

// count replies a line to each command.
type count struct{ n int }

func (c *count) Command([][]byte, bool) bool { c.n++; return true }
func (c *count) Flush(out []byte, _ bool) ([]byte, bool, error) {
	for ; c.n > 0; c.n-- {
		out = append(out, "+PONG\r\n"...)
	}
	return out, false, nil
}
func (*count) Authenticated() bool { return true }
func (*count) Closed()             {}
