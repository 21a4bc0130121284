package port

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestACallIsAnsweredByWhoIsMeant(t *testing.T) {
	type seen struct {
		h       Hello
		kind    uint8
		payload string
	}
	got := make(chan seen, 1)
	_, addr := open(t, Options{Self: self("c", "b.2"), Serve: func(h Hello, kind uint8, payload []byte, reply func([]byte)) {
		got <- seen{h, kind, string(payload)}
		reply([]byte("yes"))
	}})
	a, _ := open(t, Options{})
	reply, err := a.Call(t.Context(), addr, "b.2", 7, []byte("do it"))
	if err != nil || string(reply) != "yes" {
		t.Fatalf("%q, %v", reply, err)
	}
	if s, want := <-got, (seen{Hello{Version: 1, Cluster: "c", From: "a.1", To: "b.2"}, 7, "do it"}); s != want {
		t.Errorf("served %+v, not %+v", s, want)
	}
	if reply, err = a.Call(t.Context(), addr, "", 1, nil); err != nil || string(reply) != "yes" {
		t.Errorf("first contact, with whoever is there: %q, %v", reply, err)
	}
}

func TestAReplyStaysAsItIs(t *testing.T) {
	_, addr := open(t, Options{Self: self("c", "b.2")})
	a, _ := open(t, Options{})
	var replies [100]string
	var kept [100][]byte
	for i := range kept {
		replies[i] = strings.Repeat(fmt.Sprint(i), 500)
		var err error
		if kept[i], err = a.Call(t.Context(), addr, "b.2", 1, []byte(replies[i])); err != nil {
			t.Fatal(err)
		}
	}
	for i := range kept {
		if string(kept[i]) != replies[i] {
			t.Errorf("reply %d was written over", i)
		}
	}
}

func TestManyCallsShareOneConnectionInOrder(t *testing.T) {
	const calls = 5000
	var mu sync.Mutex
	var order []uint32
	var later []func()
	b, addr := open(t, Options{Self: self("c", "b.2"), Serve: func(_ Hello, _ uint8, payload []byte, reply func([]byte)) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, binary.LittleEndian.Uint32(payload))
		// No call is answered before all are there, the last one first, with
		// payloads as they came.
		if later = append(later, func() { reply(payload) }); len(later) == calls {
			for i := range later {
				later[calls-1-i]()
			}
		}
	}})
	a, _ := open(t, Options{})
	r := newResults(t)
	buf := make([]byte, 0, 2048)
	for i := range calls {
		buf = binary.LittleEndian.AppendUint32(buf[:0], uint32(i))
		buf = append(buf, bytes.Repeat([]byte{byte(i)}, i%2000)...)
		a.Go(addr, "b.2", 1, buf, r.done(i))
		for k := range buf {
			buf[k] = 0xee // it is the caller's again
		}
	}
	for i, got := range r.wait() {
		want := append(binary.LittleEndian.AppendUint32(nil, uint32(i)), bytes.Repeat([]byte{byte(i)}, i%2000)...)
		if got.err != nil || got.reply != string(want) {
			t.Fatalf("call %d: another reply, or %v", i, got.err)
		}
	}
	for i, n := range order {
		if int(n) != i {
			t.Fatalf("call %d was served as number %d", n, i)
		}
	}
	if s := a.Stats(); s.CallsOut != 1 || s.CallsReplied != calls || s.CallsSent != calls || s.CallsPending != 0 || s.BytesPending != 0 {
		t.Errorf("figures of the caller: %+v", s)
	}
	if s := b.Stats(); s.CallsIn != 1 || s.CallsServed != calls || s.Accepted != 1 || s.BytesIn != a.Stats().BytesOut {
		t.Errorf("figures of the other: %+v", s)
	}
}

func TestWhatDoesNotFitIsAnErrorOfThatCallAlone(t *testing.T) {
	const most = 100_000
	served := make(chan int, 10)
	_, addr := open(t, Options{MaxFrame: most, Self: self("c", "b.2"), Serve: func(_ Hello, kind uint8, payload []byte, reply func([]byte)) {
		served <- len(payload)
		reply(make([]byte, len(payload)+int(kind)-1))
	}})
	a, _ := open(t, Options{MaxFrame: most})
	if _, err := a.Call(t.Context(), addr, "b.2", 1, make([]byte, most+1)); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrTooLarge) {
		t.Errorf("a call that is too large: %v", err)
	}
	if _, err := a.Call(t.Context(), addr, "b.2", 2, make([]byte, most)); !errors.Is(err, ErrLost) || !errors.Is(err, ErrTooLarge) {
		t.Errorf("a reply that is too large: %v", err)
	}
	if reply, err := a.Call(t.Context(), addr, "b.2", 1, make([]byte, most)); err != nil || len(reply) != most {
		t.Errorf("as large as may be: %d bytes, %v", len(reply), err)
	}
	for _, kind := range []uint8{0, reservedKinds, 0xff} {
		if _, err := a.Call(t.Context(), addr, "b.2", kind, nil); !errors.Is(err, ErrNotSent) {
			t.Errorf("kind %d is the port's own: %v", kind, err)
		}
	}
	if len(served) != 2 {
		t.Errorf("%d calls were served, not 2", len(served))
	}
	if s := a.Stats(); s.Dials != 1 {
		t.Errorf("the connection was lost over it: %d dials", s.Dials)
	}
}

func TestNobodyThereMeansNotSentAndARest(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	a, _ := open(t, Options{})
	if _, err := a.Call(t.Context(), addr, "b.2", 1, nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("nobody is there: %v", err)
	}
	eventually(t, "a call is refused while the node is left alone", func() bool {
		_, err := a.Call(t.Context(), addr, "b.2", 1, nil)
		if !errors.Is(err, ErrNotSent) {
			t.Fatalf("nobody is there: %v", err)
		}
		return errors.Is(err, errResting)
	})
}

// blocked is a port that dials in vain until the test is over.
func blocked(t *testing.T) *Port {
	a, _ := open(t, Options{})
	a.dialer = func(ctx context.Context, _ string) (net.Conn, error) {
		<-a.ctx.Done()
		return nil, a.ctx.Err()
	}
	return a
}

func TestACallThatWasNotWrittenCanBeTakenBack(t *testing.T) {
	seen := make(chan string, 10)
	_, addr := open(t, Options{Self: self("c", "b.2"), Serve: func(_ Hello, _ uint8, payload []byte, reply func([]byte)) {
		seen <- string(payload)
		reply(payload)
	}})
	a, _ := open(t, Options{})
	dial, hold := a.dialer, make(chan struct{})
	a.dialer = func(ctx context.Context, addr string) (net.Conn, error) {
		<-hold
		return dial(ctx, addr)
	}
	r := newResults(t)
	a.Go(addr, "b.2", 1, []byte("first"), r.done(1))
	ctx, cancel := context.WithCancel(t.Context())
	taken := make(chan error)
	go func() {
		_, err := a.Call(ctx, addr, "b.2", 1, []byte("second"))
		taken <- err
	}()
	eventually(t, "the second call waits", func() bool { return a.Stats().CallsPending == 2 })
	a.Go(addr, "b.2", 1, []byte("third"), r.done(3))
	cancel()
	if err := <-taken; !errors.Is(err, ErrNotSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("it was not written: %v", err)
	}
	close(hold)
	got := r.wait()
	if got[1].reply != "first" || got[3].reply != "third" || len(seen) != 2 {
		t.Errorf("the others: %+v, %d were served", got, len(seen))
	}
	for range 100 {
		if _, err := a.Call(ctx, addr, "b.2", 1, nil); !errors.Is(err, ErrNotSent) || len(seen) != 2 {
			t.Fatalf("a call whose time was over before it began: %v", err)
		}
	}
}

func TestACallThatWasWrittenIsLostWhenItsTimeIsOver(t *testing.T) {
	served := make(chan struct{})
	_, addr := open(t, Options{Self: self("c", "b.2"), Serve: func(Hello, uint8, []byte, func([]byte)) { close(served) }})
	a, _ := open(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-served
		cancel()
	}()
	if _, err := a.Call(ctx, addr, "b.2", 1, nil); !errors.Is(err, ErrLost) {
		t.Errorf("it was served: %v", err)
	}
}

func TestWhatWaitsForANodeIsBounded(t *testing.T) {
	a := blocked(t)
	payload := make([]byte, 4<<20)
	r := newResults(t)
	full := 0
	for i := range 20 {
		a.Go("there", "b.2", 1, payload, func() func([]byte, error) {
			done := r.done(i)
			return func(b []byte, err error) {
				if errors.Is(err, errFull) {
					full++ // before Go returns: it does not wait
				}
				done(b, err)
			}
		}())
	}
	if full != 5 { // 15 of them and their heads fit into 64 MiB
		t.Errorf("%d calls were refused, not 5", full)
	}
	if s := a.Stats(); s.BytesPending > maxHeld || s.CallsPending != 15 {
		t.Errorf("%d calls of %d bytes wait", s.CallsPending, s.BytesPending)
	}
	_ = a.Close()
	for i, got := range r.wait() {
		if !errors.Is(got.err, ErrNotSent) {
			t.Errorf("call %d was not written: %v", i, got.err)
		}
	}
}

func TestCloseEndsEveryCallOnceAndTruthfully(t *testing.T) {
	var mu sync.Mutex
	served := map[string]bool{}
	_, addr := open(t, Options{Self: self("c", "b.2"), Serve: func(_ Hello, _ uint8, payload []byte, reply func([]byte)) {
		mu.Lock()
		defer mu.Unlock()
		if served[string(payload)] = true; len(served)%2 == 0 {
			reply(payload)
		}
	}})
	a, _ := open(t, Options{})
	r := newResults(t)
	var senders sync.WaitGroup
	for s := range 4 {
		senders.Go(func() {
			for i := range 500 {
				a.Go(addr, "b.2", 1, fmt.Append(nil, s*500+i), r.done(s*500+i))
			}
		})
	}
	eventually(t, "some were served", func() bool { mu.Lock(); defer mu.Unlock(); return len(served) > 20 })
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	senders.Wait()
	got := r.wait()
	a.Go(addr, "b.2", 1, nil, r.done(-1))
	if !errors.Is(r.wait()[-1].err, ErrNotSent) {
		t.Error("a closed port sends nothing")
	}
	mu.Lock()
	defer mu.Unlock()
	for i, g := range got {
		switch was := served[fmt.Sprint(i)]; {
		case i < 0:
		case g.err == nil && g.reply != fmt.Sprint(i):
			t.Errorf("call %d: reply %q", i, g.reply)
		case errors.Is(g.err, ErrNotSent) && was:
			t.Errorf("call %d was served, and is said not to be sent", i)
		}
	}
}

func TestAReplyAfterTheEndGoesNowhere(t *testing.T) {
	replies := make(chan func([]byte), 1)
	b, addr := open(t, Options{Self: self("c", "b.2"), Serve: func(_ Hello, _ uint8, _ []byte, reply func([]byte)) { replies <- reply }})
	a, _ := open(t, Options{})
	r := newResults(t)
	a.Go(addr, "b.2", 1, nil, r.done(1))
	reply := <-replies
	_ = b.Close()
	reply([]byte("too late"))
	if got := r.wait()[1]; !errors.Is(got.err, ErrLost) {
		t.Errorf("the call was served, and no reply can have come: %+v", got)
	}
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, _ := newAuthority(t).configs(t, newAuthority(t))
	p := New(Options{Listener: l, Self: self("", "a.1"), ServerTLS: server})
	if err := p.Start(); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("TLS for one direction: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := New(Options{Self: self("", "a.1")}).Start(); err == nil {
		t.Error("without a listener there is nothing to start")
	}
	q, _ := open(t, Options{})
	if err := q.Start(); err == nil {
		t.Error("it has been started before")
	}
}

// BenchmarkCall is calls of the size of a forwarded batch, 500 at a time.
func BenchmarkCall(b *testing.B) {
	_, addr := open(b, Options{Self: self("c", "b.2")})
	a, _ := open(b, Options{})
	payload := make([]byte, 2000)
	slots := make(chan struct{}, 500)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		slots <- struct{}{}
		a.Go(addr, "b.2", 1, payload, func(_ []byte, err error) {
			if err != nil {
				b.Error(err)
			}
			<-slots
		})
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
}

// The time a call may take is its caller's to bound, not the port's.
func TestACallMayTakeLong(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, net *pipes) {
		b := netPort(t, net, "b", Options{Self: self("c", "b.2"), Serve: func(_ Hello, _ uint8, payload []byte, reply func([]byte)) {
			time.AfterFunc(time.Hour, func() { reply(payload) })
		}})
		a := netPort(t, net, "a", Options{})
		if reply, err := a.Call(t.Context(), "b", "b.2", 1, []byte("slow")); err != nil || string(reply) != "slow" {
			t.Errorf("%q, %v", reply, err)
		}
		if s := b.Stats(); s.Accepted != 1 {
			t.Errorf("%d connections were made", s.Accepted)
		}
	})
}
