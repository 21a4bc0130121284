package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// bubble serves pipes with the time of a synctest bubble: hours pass at once,
// and only when every goroutine waits.
func bubble(t *testing.T, o Options, f func(t *testing.T, s *Server, l *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, o)
		l := newPipes()
		go s.Serve(l)
		f(t, s, l)
	})
}

// pass lets time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// gone reports whether the server has closed the connection.
func gone(c *client) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Nanosecond))
	_, err := c.Conn.Read(make([]byte, 1))
	_ = c.SetReadDeadline(time.Time{})
	return errors.Is(err, io.EOF)
}

func TestIdleTimeoutClosesOnlyTheSilent(t *testing.T) {
	bubble(t, Options{IdleTimeout: time.Minute}, func(t *testing.T, s *Server, l *pipes) {
		silent, busy := l.dial(t), l.dial(t)
		silent.ping()
		for range 10 {
			busy.ping()
			pass(58 * time.Second / 10)
		}
		if gone(silent) {
			t.Fatal("closed before its time")
		}
		for range 10 {
			busy.ping()
			pass(time.Second)
		}
		if !gone(silent) {
			t.Error("silent for longer than the limit, and not closed")
		}
		if gone(busy) {
			t.Error("a busy connection is closed")
		}
		if got := s.Stats().IdleClosed; got != 1 {
			t.Errorf("%d closed as idle, want 1", got)
		}
	})
}

// Shrinking its buffers wakes a connection; that must not count as a sign of
// life, or it would never be idle for longer than that takes.
func TestIdleTimeoutCanBeSwitchedWhileRunning(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Server, l *pipes) {
		c := l.dial(t)
		c.ping()
		pass(24 * time.Hour)
		if gone(c) {
			t.Fatal("closed without an idle time-out")
		}
		s.SetIdleTimeout(25 * time.Hour)
		pass(30 * time.Minute)
		if gone(c) {
			t.Fatal("closed before its time")
		}
		pass(time.Hour)
		if !gone(c) {
			t.Error("silent for longer than the limit, and not closed")
		}
	})
}

func TestASessionThatThinksIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		s := newServer(t, Options{IdleTimeout: time.Minute, NewSession: func(ConnInfo) Session {
			return &toy{open: true, hold: hold}
		}})
		l := newPipes()
		go s.Serve(l)
		c := l.dial(t)
		c.send("WAIT\r\n")
		pass(time.Hour)
		close(hold)
		c.want("+OK\r\n")
	})
}

func TestHalfACommandAndSilence(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Server, l *pipes) {
		small, large, slow := l.dial(t), l.dial(t), l.dial(t)
		small.send("*2\r\n$4\r\nECHO\r\n$100000\r\nab")
		start := "*2\r\n$4\r\nECHO\r\n$100000\r\n" + strings.Repeat("x", 50_000)
		large.send(start)
		slow.send(start)
		other := l.dial(t)
		for range 40 {
			other.ping()
			slow.send("x")
			pass(time.Second)
		}
		if !gone(large) {
			t.Error("a large part of a command and then silence: not closed")
		}
		if gone(small) {
			t.Error("a small part costs nothing, and its connection is closed")
		}
		if gone(slow) {
			t.Error("a slow sender is closed while it sends")
		}
		small.send(strings.Repeat("x", 99_998) + "\r\n")
		small.want("$100000\r\nab" + strings.Repeat("x", 99_998) + "\r\n")
		slow.send(strings.Repeat("x", 50_000-40) + "\r\n")
		slow.want("$100000\r\n" + strings.Repeat("x", 100_000) + "\r\n")
		if got := s.Stats().IdleClosed; got != 1 {
			t.Errorf("%d closed, want 1", got)
		}
	})
}

func TestASilentConnectionKeepsLittle(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Server, l *pipes) {
		conns := map[int]*conn{}
		work := func() *client {
			c := l.dial(t)
			go c.send(strings.Repeat("*1\r\n$4\r\nPING\r\n", 50_000))
			c.want(strings.Repeat("+PONG\r\n", 50_000))
			c.send("*2\r\n$4\r\nECHO\r\n$3\r\na")
			synctest.Wait()
			for _, conn := range s.all() {
				conns[int(conn.info.ID)] = conn
			}
			return c
		}
		// What a connection keeps is looked at once it has ended.
		look := func(id int) *conn {
			left := s.Stats().Current - 1
			conns[id].kill()
			synctest.Wait()
			if got := s.Stats().Current; got != left {
				t.Fatalf("%d connections, want %d", got, left)
			}
			return conns[id]
		}
		work()
		if c := look(1); len(c.buf) != bufLarge || c.args == nil {
			t.Errorf("a busy connection reads into %d bytes, want %d, and keeps %d arguments", len(c.buf), bufLarge, cap(c.args))
		}
		work()
		other := work()
		pass(quietAfter + 2*watchEvery)
		if c := look(2); len(c.buf) != bufSmall || c.out != nil || c.args != nil {
			t.Errorf("a silent connection keeps %d bytes for input, %d for output, %d for arguments", len(c.buf), cap(c.out), cap(c.args))
		}
		other.send("bc\r\n")
		other.want("$3\r\nabc\r\n")
	})
}

// Ten thousand silent connections are woken once each, not at every tick.
func TestASilentConnectionIsWokenOnce(t *testing.T) {
	nc := &memory{}
	c := &conn{s: newServer(t, Options{}), nc: nc}
	c.enter(reading)
	now := time.Now()
	for range 100 {
		now = now.Add(time.Second)
		c.look(now)
	}
	if nc.deadlines != 1 {
		t.Errorf("woken %d times in 100 s, want once", nc.deadlines)
	}
}

func TestAClientThatNeverReadsIsClosed(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Server, l *pipes) {
		c, other := l.dial(t), l.dial(t)
		c.send("BIG 1000000\r\n")
		pass(9 * time.Second)
		if got := s.Stats().Current; got != 2 {
			t.Fatalf("%d connections after 9 s, want 2", got)
		}
		pass(3 * time.Second)
		if got := s.Stats(); got.Current != 1 || got.SlowClosed != 1 {
			t.Errorf("%d connections, %d closed as slow; want 1 and 1", got.Current, got.SlowClosed)
		}
		other.ping()
	})
}

func TestAClientThatReadsSlowlyIsServed(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Server, l *pipes) {
		c := l.dial(t)
		c.send("BIG 60\r\n")
		for range 60 + len("$60\r\n\r\n") {
			if _, err := c.Conn.Read(make([]byte, 1)); err != nil {
				t.Fatalf("closed although the client takes a byte every 8 s: %v", err)
			}
			pass(8 * time.Second)
		}
		c.ping()
		// A client that stops for longer than the limit between two replies
		// has not been slow with either.
		pass(time.Hour)
		c.ping()
	})
}

// Progress between two looks of the watch has to count even if the write goes
// on after it: then the deadline in the past must not end the connection.
func TestALateOrderIsIgnored(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Server, l *pipes) {
		c := l.dial(t)
		c.ping()
		synctest.Wait()
		conn := s.all()[0]
		before := conn.beat.Load()
		c.send("BIG 10\r\n")
		synctest.Wait()
		conn.demand(before, orderSlow)
		_ = conn.nc.SetWriteDeadline(longAgo)
		synctest.Wait()
		c.want("$10\r\n" + strings.Repeat("\x00", 10) + "\r\n")
		conn.demand(before, orderIdle)
		conn.wake()
		synctest.Wait()
		c.ping()
	})
}

func TestAReplyOverTheOutputBoundCloses(t *testing.T) {
	s := newServer(t, Options{MaxOutput: 200_000})
	addr := onLoopback(t, s)
	c := dial(t, addr)
	c.send("BIG 199000\r\n")
	c.want("$199000\r\n" + strings.Repeat("\x00", 199_000) + "\r\n")
	c.send("BIG 200000\r\n")
	if got := c.end(); got != "" {
		t.Errorf("a reply over the bound sends %d bytes", len(got))
	}
	eventually(t, "it is counted", func() bool { return s.Stats().SlowClosed == 1 })
}

// The same over a real socket, whose buffers take a part of the reply first.
func TestASocketNobodyReadsIsClosedAndOthersAreServed(t *testing.T) {
	s := newServer(t, Options{WriteTimeout: 50 * time.Millisecond})
	s.tick = 5 * time.Millisecond
	addr := onLoopback(t, s)
	c, other := dial(t, addr), dial(t, addr)
	c.send(strings.Repeat("BIG 5000000\r\n", 4))
	eventually(t, "the client that does not read is closed", func() bool {
		other.ping()
		return s.Stats().SlowClosed == 1
	})
	other.ping()
}

// failing is a listener without file descriptors to spare.
type failing struct {
	pipes
	times []time.Time
	left  int
}

func (l *failing) Accept() (net.Conn, error) {
	l.times = append(l.times, time.Now())
	if l.left > 0 {
		l.left--
		return nil, errors.New("too many open files")
	}
	return l.pipes.Accept()
}

func TestFailedAcceptsPauseLongerAndLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Options{})
		l := &failing{pipes: *newPipes(), left: 12}
		go s.Serve(l)
		pass(time.Minute)
		want := []time.Duration{5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000, 1000}
		if len(l.times) != len(want)+1 {
			t.Fatalf("%d accepts, want %d", len(l.times), len(want)+1)
		}
		for i, ms := range want {
			if got := l.times[i+1].Sub(l.times[i]); got != ms*time.Millisecond {
				t.Errorf("pause %d is %v, want %v", i+1, got, ms*time.Millisecond)
			}
		}
		l.dial(t).ping()
		synctest.Wait()
		l.left = 1
		l.dial(t).ping()
		pass(time.Second)
		n := len(l.times)
		if got := l.times[n-1].Sub(l.times[n-2]); got != backoffMin {
			t.Errorf("the pause after a success is %v, want %v again", got, backoffMin)
		}
		if got := s.Stats().AcceptErrors; got != 13 {
			t.Errorf("%d failed accepts counted, want 13", got)
		}
	})
}

func TestShutdownEndsAPauseOfAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Options{})
		served := make(chan error, 1)
		go func() { served <- s.Serve(&failing{pipes: *newPipes(), left: 1 << 30}) }()
		pass(time.Minute)
		start := time.Now()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("shutdown waits %v for the next try", took)
		}
		if err := <-served; err != nil {
			t.Errorf("serve returns %v, want nothing", err)
		}
	})
}
