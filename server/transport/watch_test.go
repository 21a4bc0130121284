package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
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
		small, large, steady, drip := l.dial(t), l.dial(t), l.dial(t), l.dial(t)
		small.send("*2\r\n$4\r\nECHO\r\n$100000\r\nab")
		const size, first, piece, times = 1_000_000, 50_000, 2_500, 100
		start := "*2\r\n$4\r\nECHO\r\n$1000000\r\n" + strings.Repeat("x", first)
		large.send(start)
		steady.send(start)
		drip.send(start)
		other := l.dial(t)
		dripping := 0
		for i := range times {
			other.ping()
			steady.send(strings.Repeat("x", piece))
			if _, err := drip.Conn.Write([]byte("x")); err == nil {
				dripping = i + 1
			}
			pass(time.Second)
		}
		if !gone(large) {
			t.Error("a large part of a command and then silence: not closed")
		}
		if gone(small) {
			t.Error("a small part costs nothing, and its connection is closed")
		}
		if gone(steady) {
			t.Error("a slow sender is closed while it sends")
		}
		if dripping < 29 || dripping > 33 {
			t.Errorf("who sends a byte now and then is closed after %d s, want 30", dripping)
		}
		small.send(strings.Repeat("x", 99_998) + "\r\n")
		small.want("$100000\r\nab" + strings.Repeat("x", 99_998) + "\r\n")
		steady.send(strings.Repeat("x", size-first-times*piece) + "\r\n")
		steady.want("$1000000\r\n" + strings.Repeat("x", size) + "\r\n")
		if got := s.Stats().IdleClosed; got != 2 {
			t.Errorf("%d closed, want 2", got)
		}
	})
}

// Commands that end are not one that stands still, even if there is half of
// one whenever the watch looks.
func TestLargeCommandsThatComeSlowlyAreServed(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Server, l *pipes) {
		c := l.dial(t)
		half := strings.Repeat("x", 5000)
		c.send("*2\r\n$4\r\nECHO\r\n$10000\r\n" + half)
		for range 8 {
			pass(25 * time.Second)
			go c.send(half + "\r\n*2\r\n$4\r\nECHO\r\n$10000\r\n" + half)
			c.want("$10000\r\n" + half + half + "\r\n")
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
		// A client that stops for longer than the limit between two replies
		// has not been slow with either.
		pass(time.Hour)
		c.ping()
	})
}

// A byte now and then is no reading: the reply would be held for ever.
func TestAClientThatReadsAByteNowAndThenIsClosed(t *testing.T) {
	for _, size := range []string{"60", "1000000"} {
		bubble(t, Options{}, func(t *testing.T, s *Server, l *pipes) {
			c := l.dial(t)
			c.send("BIG " + size + "\r\n")
			start := time.Now()
			for {
				if _, err := c.Conn.Read(make([]byte, 1)); err != nil {
					break
				}
				pass(time.Second)
				if time.Since(start) > time.Minute {
					t.Fatal("still held after a minute")
				}
			}
			if took := time.Since(start); took < 9*time.Second || took > 13*time.Second {
				t.Errorf("%s bytes: closed after %v, want 10 s", size, took)
			}
			if got := s.Stats(); got.SlowClosed != 1 || got.HeldReplies != 0 {
				t.Errorf("%d closed as slow, %d bytes held; want 1 and 0", got.SlowClosed, got.HeldReplies)
			}
		})
	}
}

// A socket takes nothing more until a third of its buffer is free. A client
// that has read less of it reads all the same.
func TestWhatASocketHasRoomForCountsAsTaken(t *testing.T) {
	for _, x := range []struct {
		first, last int
		ok          bool
	}{
		{0, leastProgress, true}, {leastProgress, 0, true}, {leastProgress / 2, leastProgress / 2, true},
		{0, leastProgress - 1, false}, {1, leastProgress - 2, false}, {0, 3 * leastProgress, true},
	} {
		s := newServer(t, Options{})
		c := &conn{s: s, out: make([]byte, 3*leastProgress)}
		nc := &lazy{conn: c, takes: []int{x.first, x.last}}
		c.nc = nc
		if got := c.flush(); got != x.ok {
			t.Errorf("%d bytes in time and %d at the end: %v, want %v", x.first, x.last, got, x.ok)
		}
		if want := map[bool]uint64{false: 1}[x.ok]; s.Stats().SlowClosed != want {
			t.Errorf("%d closed as slow, want %d", s.Stats().SlowClosed, want)
		}
	}
}

// lazy is a connection whose writes take so many bytes, the first of them until
// the watch ends it, and then everything.
type lazy struct {
	memory
	conn  *conn
	takes []int
}

func (l *lazy) Write(b []byte) (int, error) {
	if len(l.takes) == 0 {
		return l.memory.Write(b)
	}
	n := min(l.takes[0], len(b))
	if len(l.takes) == 2 {
		l.conn.demand(l.conn.beat.Load(), orderSlow)
	}
	l.takes = l.takes[1:]
	if n == len(b) {
		return n, nil
	}
	return n, os.ErrDeadlineExceeded
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
	c.send("BIG 60000\r\nBIG 199000\r\n")
	c.want("$60000\r\n" + strings.Repeat("\x00", 60_000) + "\r\n$199000\r\n" + strings.Repeat("\x00", 199_000) + "\r\n")
	c.send("BIG 265600\r\n")
	if got := c.end(); got != "" {
		t.Errorf("a reply over the bound sends %d bytes", len(got))
	}
	eventually(t, "it is counted", func() bool { return s.Stats().SlowClosed == 1 })
	c = dial(t, addr)
	c.send("PING\r\nOVER\r\nPING\r\n")
	if got := c.end(); got != "+PONG\r\n" {
		t.Errorf("before a reply that the session finds too large: %q, want the one before", got)
	}
	eventually(t, "it is counted", func() bool { return s.Stats().SlowClosed == 2 })
}

// However much a pipeline asks for, a client that reads gets it, and only what
// it takes is worked for.
func TestLargeRepliesOfAPipelineAreNotGathered(t *testing.T) {
	s := newServer(t, Options{MaxOutput: 200_000})
	c := dial(t, onLoopback(t, s))
	const n = 300
	in, want := "", ""
	for i := range n {
		in += fmt.Sprintf("BIG 150000\r\nECHO %d\r\n", i)
		want += "$150000\r\n" + strings.Repeat("\x00", 150_000) + fmt.Sprintf("\r\n$%d\r\n%d\r\n", len(fmt.Sprint(i)), i)
	}
	c.send(in)
	c.want(want)
	c.ping()
	eventually(t, "nothing is held", func() bool { return s.Stats().HeldReplies == 0 })

	var session *toy
	bubble(t, Options{NewSession: func(ConnInfo) Session { session = &toy{open: true}; return session }}, func(t *testing.T, s *Server, l *pipes) {
		c := l.dial(t)
		c.send(strings.Repeat("BIG 150000\r\n", 50))
		synctest.Wait()
		if session.flushes != 1 {
			t.Errorf("%d times the session is asked for replies that nobody takes, want once", session.flushes)
		}
		if got := s.Stats().HeldReplies; got < 150_000 || got > 400_000 {
			t.Errorf("%d bytes of replies are held, want those of one", got)
		}
		for range 50 {
			c.want("$150000\r\n" + strings.Repeat("\x00", 150_000) + "\r\n")
		}
		synctest.Wait()
		if session.flushes != 50 || s.Stats().Batches != 1 || s.Stats().Commands != 50 {
			t.Errorf("%d calls for %d commands in %d batches, want 50, 50, 1", session.flushes, s.Stats().Commands, s.Stats().Batches)
		}
	})
}

func TestRepliesHeldTogetherAreBounded(t *testing.T) {
	bubble(t, Options{MaxReplies: 5_000_000}, func(t *testing.T, s *Server, l *pipes) {
		var clients []*client
		for i := range 10 {
			c := l.dial(t)
			if i < 8 {
				c.send("BIG 1000000\r\n")
			} else {
				c.send("BIG 500000\r\n")
			}
			clients = append(clients, c)
			synctest.Wait()
		}
		st := s.Stats()
		if st.Current < 3 || st.Current > 5 || st.SlowClosed != uint64(10-st.Current) || st.HeldReplies > 5_000_000 || st.HeldReplies < 3_000_000 {
			t.Errorf("%d clients are left, %d closed, %d bytes held", st.Current, st.SlowClosed, st.HeldReplies)
		}
		if gone(clients[8]) {
			t.Error("want those closed that hold the most, not who comes last")
		}
		small := l.dial(t)
		small.send("BIG 1000\r\n")
		small.want("$1000\r\n" + strings.Repeat("\x00", 1000) + "\r\n")
		// One that reads gets its reply, though others hold all there is.
		reader := l.dial(t)
		reader.send("BIG 900000\r\n")
		reader.want("$900000\r\n" + strings.Repeat("\x00", 900_000) + "\r\n")
		_ = clients[8].Close()
		clients[9].want("$500000\r\n" + strings.Repeat("\x00", 500_000) + "\r\n")
		synctest.Wait()
		late := l.dial(t)
		late.send("BIG 1000000\r\n")
		late.want("$1000000\r\n" + strings.Repeat("\x00", 1_000_000) + "\r\n")
		pass(time.Minute)
		if st := s.Stats(); st.HeldReplies != 0 {
			t.Errorf("%d bytes are held after all have read or gone, want 0", st.HeldReplies)
		}
	})
}

// A client with TLS on waits for an answer that never comes, or shows an error
// that tells nothing: the operator has to read what is wrong, but not once for
// each of a thousand tries.
func TestTLSIsClosedAtOnceAndLoggedNowAndThen(t *testing.T) {
	var logged strings.Builder
	bubble(t, Options{Log: slog.New(slog.NewTextHandler(&logged, nil))}, func(t *testing.T, s *Server, l *pipes) {
		hello := func() {
			t.Helper()
			c := l.dial(t)
			c.send("\x16")
			if got := c.end(); !strings.HasPrefix(got, "-ERR Protocol error: this is a TLS handshake") {
				t.Errorf("a TLS handshake is answered %q", got)
			}
			synctest.Wait()
		}
		lines := func() int { return strings.Count(logged.String(), "level=INFO msg=\"a client speaks TLS") }
		for range 5 {
			hello()
		}
		if got := lines(); got != 1 {
			t.Errorf("5 handshakes are %d lines in the log, want 1:\n%s", got, logged.String())
		}
		pass(tlsLogEvery)
		hello()
		hello()
		if got := lines(); got != 2 || !strings.Contains(logged.String(), "closed_so_far=6") {
			t.Errorf("after a minute there are %d lines in the log, want 2:\n%s", got, logged.String())
		}
		if st := s.Stats(); st.TLSClosed != 7 || st.ProtocolErrors != 7 || st.Current != 0 {
			t.Errorf("%d counted, %d protocol errors, %d connections; want 7, 7, 0", st.TLSClosed, st.ProtocolErrors, st.Current)
		}
	})
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

// TestWhatConnectionsLeaveIsCollected fails when the memory of thousands of
// connections that have gone is kept until somebody allocates.
func TestWhatConnectionsLeaveIsCollected(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Server, l *pipes) {
		var collected atomic.Int64
		s.mu.Lock()
		s.gc = func() { collected.Add(1) }
		s.mu.Unlock()
		c := l.dial(t)
		c.ping()
		s.garbage.Add(collectFrom - idleBytes - 1)
		pass(time.Minute)
		if n := collected.Load(); n != 0 {
			t.Fatalf("collected %d times for little", n)
		}
		_ = c.Close()
		pass(time.Minute)
		s.garbage.Add(1)
		pass(time.Minute)
		if n := collected.Load(); n != 1 {
			t.Errorf("collected %d times for much, want once", n)
		}
		s.garbage.Add(collectFrom)
		pass(2 * watchEvery)
		s.garbage.Add(collectFrom)
		pass(2 * watchEvery)
		if n := collected.Load(); n != 2 {
			t.Errorf("collected %d times in a few seconds, want once more", n-1)
		}
		pass(collectEvery)
		if n := collected.Load(); n != 3 {
			t.Errorf("collected %d times in all, want 3", n)
		}
	})
}
