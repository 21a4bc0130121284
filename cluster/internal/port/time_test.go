package port

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func inVirtualTime(t *testing.T, f func(*testing.T, *pipes)) {
	synctest.Test(t, func(t *testing.T) { f(t, &pipes{}) })
}

// netPort opens a port in a network in memory.
func netPort(t *testing.T, n *pipes, name string, o Options) *Port {
	o.Listener = n.listen(name)
	p, _ := open(t, o)
	p.dialer = n.dial
	return p
}

// welcomed accepts a connection at a place and lets it in, as a port would.
func welcomed(t *testing.T, at *place) net.Conn {
	t.Helper()
	c, err := at.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readHello(c); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(appendAnswer(nil, 1, nil)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestANodeThatFallsSilentIsNoticedAfterThreeSeconds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *pipes) {
		b := n.listen("b")
		a := netPort(t, n, "a", Options{})
		r := newResults(t)
		start := time.Now()
		a.Go("b", "b.2", 1, []byte("hello"), r.done(1))
		c := welcomed(t, b)
		go func() { _, _ = io.Copy(io.Discard, c) }() // its system still takes bytes
		if got := r.wait()[1]; !errors.Is(got.err, ErrLost) {
			t.Errorf("it was written: %+v", got)
		}
		if took := time.Since(start); took < silence || took > silence+time.Second {
			t.Errorf("it took %v", took)
		}
		_ = c.Close()
	})
}

func TestANodeThatTakesNothingIsNoticed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *pipes) {
		b := n.listen("b")
		a := netPort(t, n, "a", Options{})
		r := newResults(t)
		start := time.Now()
		a.Go("b", "b.2", 1, []byte("hello"), r.done(1))
		c := welcomed(t, b)
		stop := make(chan struct{})
		go func() { // it says that it is alive, and reads nothing
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
					_, _ = c.Write(appendFrame(nil, 0, kindBeat, nil))
				}
			}
		}()
		if got := r.wait()[1]; !errors.Is(got.err, ErrLost) {
			t.Errorf("a part of it may have been written: %+v", got)
		}
		if took := time.Since(start); took < writeTimeout || took > writeTimeout+time.Second {
			t.Errorf("it took %v", took)
		}
		close(stop)
		_ = c.Close()
	})
}

func TestACallerThatFallsSilentIsForgotten(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *pipes) {
		b := netPort(t, n, "b", Options{Self: self("c", "b.2")})
		c, err := n.dial(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		hello, _ := appendHello(nil, Hello{Cluster: "c", From: "a.1"})
		_, _ = c.Write(hello)
		if _, err := readAnswer(c); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		got, _ := io.Copy(io.Discard, c)
		if took := time.Since(start); took != 3*silence {
			t.Errorf("it took %v", took)
		}
		// Until then b has said every second that it is alive itself.
		if beats := got / frameHead; beats < int64(3*silence/beatEvery)-1 {
			t.Errorf("%d beats in %v", beats, 3*silence)
		}
		synctest.Wait()
		if s := b.Stats(); s.CallsIn != 0 {
			t.Errorf("%d connections are left", s.CallsIn)
		}
	})
}

func TestWhoDoesNotSayHelloHasTwoSeconds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *pipes) {
		b := netPort(t, n, "b", Options{})
		hello, _ := appendHello(nil, Hello{From: "a.1"})
		for _, sent := range []string{"", "C", string(hello[:len(hello)-1])} {
			c, err := n.dial(t.Context(), "b")
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			_, _ = c.Write([]byte(sent))
			_, _ = c.Read(make([]byte, 1))
			if took := time.Since(start); took != helloTimeout {
				t.Errorf("after %q: %v", sent, took)
			}
		}
		synctest.Wait()
		if s := b.Stats(); s.Refused["silent"] != 3 || s.Strangers != 0 {
			t.Errorf("figures: %+v", s)
		}
	})
}

func TestANodeThatCannotBeReachedIsLeftAloneForLongerAndLonger(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *pipes) {
		a := netPort(t, n, "a", Options{})
		start := time.Now()
		for time.Since(start) < 5*time.Second {
			if _, err := a.Call(t.Context(), "b", "b.2", 1, nil); !errors.Is(err, ErrNotSent) {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		var rests []time.Duration
		for i := range n.dialed[1:] {
			rests = append(rests, n.dialed[i+1].Sub(n.dialed[i]))
		}
		for i, rest := range rests {
			want := min(backoffLeast<<i, backoffMost)
			if rest < want || rest > want+2*time.Millisecond {
				t.Fatalf("rest %d was %v, not %v: %v", i, rest, want, rests)
			}
		}
		if len(rests) < 8 {
			t.Errorf("it was tried %d times only: %v", len(rests)+1, rests)
		}

		// Now it is there, and calls: at once it can be called back.
		b := netPort(t, n, "b", Options{Self: self("c", "b.2")})
		if _, err := a.Call(t.Context(), "b", "b.2", 1, nil); !errors.Is(err, errResting) {
			t.Errorf("nothing has been heard of it: %v", err)
		}
		if _, err := b.Call(t.Context(), "a", "a.1", 1, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Call(t.Context(), "b", "b.2", 1, nil); err != nil {
			t.Errorf("it has been heard of: %v", err)
		}
	})
}

func TestAStreamOfRaftThatGetsThroughEndsTheRestOfCalls(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *pipes) {
		a := netPort(t, n, "a", Options{})
		layer := a.Layer("a")
		for range 10 {
			_, _ = a.Call(t.Context(), "b", "b.2", 1, nil)
			time.Sleep(time.Second)
		}
		_, _ = a.Call(t.Context(), "b", "b.2", 1, nil)
		b := netPort(t, n, "b", Options{Self: self("c", "b.2")})
		b.SetRaft(true)
		if _, err := a.Call(t.Context(), "b", "b.2", 1, nil); !errors.Is(err, errResting) {
			t.Errorf("nothing has been heard of it: %v", err)
		}
		c, err := layer.Dial("b#b.2", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if _, err := a.Call(t.Context(), "b", "b.2", 1, nil); err != nil {
			t.Errorf("it has been reached: %v", err)
		}
	})
}

func TestAConnectionInUseIsPingedAndAnIdleOneClosed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *pipes) {
		_ = netPort(t, n, "b", Options{Self: self("c", "b.2")})
		a := netPort(t, n, "a", Options{})
		call := func() {
			t.Helper()
			if _, err := a.Call(t.Context(), "b", "b.2", 1, nil); err != nil {
				t.Fatal(err)
			}
		}
		call()
		time.Sleep(idleFor / 2)
		if s := a.Stats(); s.CallsOut != 1 || len(s.Peers) != 1 || s.Peers[0].RoundTrip == 0 {
			t.Errorf("after half a minute without a word: %+v", s)
		}
		call()
		if n := len(n.dialed); n != 1 {
			t.Errorf("%d dials", n)
		}
		time.Sleep(idleFor + 2*time.Second)
		if s := a.Stats(); s.CallsOut != 0 {
			t.Errorf("after more than a minute: %+v", s)
		}
		call() // it is opened again when it is needed
		time.Sleep(3 * idleFor)
		_, _ = a.Call(t.Context(), "other", "", 1, nil)
		if s := a.Stats(); len(s.Peers) != 1 || s.Peers[0].Addr != "other" {
			t.Errorf("the links that were kept: %+v", s.Peers)
		}
	})
}

// A node that joins a cluster says so to those that it has called before.
func TestWhoHasJoinedSaysHelloAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *pipes) {
		hellos := make(chan Hello, 1)
		_ = netPort(t, n, "b", Options{Self: self("c", "b.2"), Serve: func(h Hello, _ uint8, _ []byte, reply func([]byte)) {
			hellos <- h
			reply(nil)
		}})
		who := make(chan Identity, 1)
		who <- Identity{"", "a.1"}
		a := netPort(t, n, "a", Options{Self: func() Identity {
			now := <-who
			who <- now
			return now
		}})
		cluster := func() string {
			if _, err := a.Call(t.Context(), "b", "b.2", 1, nil); err != nil {
				t.Fatal(err)
			}
			return (<-hellos).Cluster
		}
		if got := cluster(); got != "" {
			t.Errorf("before: %q", got)
		}
		<-who
		who <- Identity{"c", "a.1"}
		time.Sleep(2 * beatEvery)
		if got := cluster(); got != "c" {
			t.Errorf("afterwards: %q", got)
		}
	})
}

func TestADialHasTwoSeconds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *pipes) {
		_ = n.listen("b") // nobody accepts
		a := netPort(t, n, "a", Options{})
		start := time.Now()
		_, err := a.Call(t.Context(), "b", "b.2", 1, nil)
		if took := time.Since(start); !errors.Is(err, ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) || took != dialTimeout {
			t.Errorf("%v after %v", err, took)
		}
	})
}
