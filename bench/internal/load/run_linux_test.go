package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// server answers every command with answer, and remembers the keys (second
// argument) it saw.
type server struct {
	addr   string
	answer func(key string) string
	mu     sync.Mutex
	keys   map[string]int
	conns  int // that sent something
}

func serve(t *testing.T, network, addr string, answer func(key string) string) *server {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: l.Addr().String(), answer: answer, keys: map[string]int{}}
	if network == "unix" {
		s.addr = "unix:" + addr
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				s.handle(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		cancel()
		all.Wait()
	})
	return s
}

func (s *server) handle(conn net.Conn) {
	in := bufio.NewReader(conn)
	if _, err := in.Peek(1); err != nil {
		return
	}
	s.mu.Lock()
	s.conns++
	s.mu.Unlock()
	for {
		var args []string
		var n, size int
		if _, err := fmt.Fscanf(in, "*%d\r\n", &n); err != nil {
			return
		}
		for range n {
			if _, err := fmt.Fscanf(in, "$%d\r\n", &size); err != nil {
				return
			}
			arg := make([]byte, size+2)
			if _, err := io.ReadFull(in, arg); err != nil {
				return
			}
			args = append(args, string(arg[:size]))
		}
		s.mu.Lock()
		s.keys[args[1]]++
		s.mu.Unlock()
		if _, err := io.WriteString(conn, s.answer(args[1])); err != nil {
			return
		}
	}
}

func config(s *server) Config {
	return Config{Addr: s.addr, Command: []string{"HIT", "k:" + Placeholder}, Conns: 5, Pipeline: 3, Loops: 2, Keys: 100, Requests: 1000}
}

func TestEveryRequestIsSentOnceAndCounted(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		addr := "127.0.0.1:0"
		if network == "unix" {
			addr = filepath.Join(t.TempDir(), "s")
		}
		s := serve(t, network, addr, func(key string) string {
			if strings.HasSuffix(key, "0") { // every tenth
				return "*2\r\n:0\r\n:1\r\n"
			}
			return "*2\r\n:1\r\n:0\r\n"
		})
		c := config(s)
		c.Sequential, c.Keys, c.Verdict = true, 1000, RefusedIfZero
		r, err := Run(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		if r.Requests != 1000 || r.Refused != 100 || r.RefusedShare() != 0.1 {
			t.Errorf("%s: %d requests, %d refused", network, r.Requests, r.Refused)
		}
		if len(s.keys) != 1000 {
			t.Errorf("%s: %d keys, want each of 1000 once", network, len(s.keys))
		}
		c.Verdict, c.Pipeline = RefusedIfOne, 400 // the last pipelines are cut
		if r, err = Run(context.Background(), c); err != nil || r.Requests != 1000 || r.Refused != 900 {
			t.Errorf("%s: %+v, %v", network, r, err)
		}
		if p50, p100 := r.Latency(50), r.Latency(100); p50 <= 0 || p50 > p100 || p100 > r.Elapsed*101/100 {
			t.Errorf("%s: latencies %v to %v in a run of %v", network, p50, p100, r.Elapsed)
		}
		if rate := r.Rate() * r.Elapsed.Seconds(); rate < 999.9 || rate > 1000.1 {
			t.Errorf("rate times time gives %v requests", rate)
		}
	}
}

func TestRandomKeysCoverTheirSpaceAndNoMore(t *testing.T) {
	s := serve(t, "tcp", "127.0.0.1:0", func(string) string { return ":0\r\n" })
	c := config(s)
	c.Keys, c.Requests = 10, 2000
	if _, err := Run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		key := fmt.Sprintf("k:%012d", i)
		if n := s.keys[key]; n < 120 || n > 280 { // 200 expected, 6 standard deviations
			t.Errorf("%s was hit %d times of 2000", key, n)
		}
	}
	if len(s.keys) != 10 {
		t.Errorf("%d keys", len(s.keys))
	}
}

func TestRunBoundedByTimeEnds(t *testing.T) {
	s := serve(t, "tcp", "127.0.0.1:0", func(string) string { return ":0\r\n" })
	c := config(s)
	c.Requests, c.Duration = 0, 50*time.Millisecond
	r, err := Run(context.Background(), c)
	if err != nil || r.Requests == 0 || r.Requests%3 != 0 || r.Elapsed < c.Duration {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestReplyInPiecesAndPipelineLargerThanTheSocket(t *testing.T) {
	// The server reads nothing until it is told, so that the generator's
	// socket fills up, and sends each reply byte by byte.
	s := serve(t, "tcp", "127.0.0.1:0", func(string) string { return ":1\r\n" })
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	go func() {
		conn, err := proxy.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		back, err := net.Dial("tcp", s.addr)
		if err != nil {
			return
		}
		defer back.Close()
		go func() { _, _ = io.Copy(back, conn) }()
		b := make([]byte, 7) // ends within a reply
		for {
			n, err := back.Read(b)
			if err != nil {
				return
			}
			if _, err := conn.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	c := config(s)
	c.Addr, c.Conns, c.Loops, c.Pipeline, c.Requests = proxy.Addr().String(), 1, 1, 2500, 5000
	c.Command = []string{"HIT", "k:" + Placeholder, strings.Repeat("x", 4000)}
	r, err := Run(context.Background(), c)
	if err != nil || r.Requests != 5000 {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestRunFailsWithTheServersWords(t *testing.T) {
	for answer, want := range map[string]string{
		"-ERR unknown command\r\n":         "ERR unknown command",
		"hello\r\n":                        errNotReply.Error(),
		":1\r\n:1\r\n":                     errNotReply.Error(),
		"$65535\r\n" + pad(65535) + "\r\n": errTooLong.Error(),
	} {
		s := serve(t, "tcp", "127.0.0.1:0", func(string) string { return answer })
		c := config(s)
		c.Pipeline = 1
		_, err := Run(context.Background(), c)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", answer, err, want)
		}
	}
	var failure *ServerError
	s := serve(t, "tcp", "127.0.0.1:0", func(string) string { return "-OOM full\r\n" })
	if _, err := Run(context.Background(), config(s)); !errors.As(err, &failure) || failure.Text != "OOM full" {
		t.Errorf("%v", err)
	}
}

func pad(n int) string { return string(bytes.Repeat([]byte{'x'}, n)) }

func TestRunEndsWhenNobodyAnswersOrItIsCancelled(t *testing.T) {
	s := serve(t, "tcp", "127.0.0.1:0", func(string) string { return "" })
	c := config(s)
	c.Timeout = 50 * time.Millisecond
	if _, err := Run(context.Background(), c); !errors.Is(err, errTimeout) {
		t.Errorf("silence: %v", err)
	}
	c.Timeout = time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
	c.Addr = "127.0.0.1:1"
	if _, err := Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), "no connection") {
		t.Errorf("nobody listens: %v", err)
	}
}

// stall is how long the server of the next tests answers nothing.
const stall = 200 * time.Millisecond

// stalling answers at once, but for one pause when the 100th request is there.
func stalling(t *testing.T) *server {
	var mu sync.Mutex
	count := 0
	return serve(t, "tcp", "127.0.0.1:0", func(string) string {
		mu.Lock()
		defer mu.Unlock()
		if count++; count == 100 {
			<-time.After(stall)
		}
		return ":1\r\n"
	})
}

// Every request that was due during the stall had to wait: at 1,000 a second
// half of 200 waited for more than half of the stall, even where the generator
// was not able to send them in time. A closed loop sees the stall once for each
// connection.
func TestOpenLoopCountsTheWaitOfWhatCouldNotBeSent(t *testing.T) {
	c := config(stalling(t))
	c.Conns, c.Loops, c.Pipeline, c.Requests = 4, 2, 1, 1000
	slow := func(r *Result) (n int64) {
		for _, bar := range r.latency.Distribution() {
			if bar.From >= int64(stall/2) {
				n += bar.Count
			}
		}
		return n
	}
	closed, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if n := slow(closed); n < 1 || n > 20 {
		t.Errorf("closed loop: %d requests of 1000 took longer than half of the stall", n)
	}
	c.Addr, c.Rate = stalling(t).addr, 1000
	open, err := Run(context.Background(), c)
	if err != nil || open.Requests != 1000 {
		t.Fatalf("%+v, %v", open, err)
	}
	if n := slow(open); n < 95 {
		t.Errorf("open loop: %d requests of 1000 took longer than half of the stall, want about 100 at least", n)
	}
	if p := open.Latency(100); p < stall-5*time.Millisecond {
		t.Errorf("the longest wait was %v in a stall of %v", p, stall)
	}
	if open.Elapsed < 999*time.Millisecond {
		t.Errorf("1000 requests at 1000 a second were over in %v", open.Elapsed)
	}
}

func TestOpenLoopSendsEachKeyOfItsTimeAndEnds(t *testing.T) {
	s := serve(t, "tcp", "127.0.0.1:0", func(string) string { return ":0\r\n" })
	c := config(s)
	c.Loops, c.Pipeline, c.Requests = 1, 1, 0
	c.Duration, c.Rate, c.Sequential, c.Keys, c.First, c.Verdict = 100*time.Millisecond, 5000, true, 1_000_000, 7, RefusedIfZero
	r, err := Run(context.Background(), c)
	if err != nil || r.Requests != 500 || r.Refused != 500 || len(s.keys) != 500 || s.keys["k:000000000007"] != 1 || s.keys["k:000000000506"] != 1 {
		t.Fatalf("%+v, %v, %d keys", r, err, len(s.keys))
	}
	if s.conns != c.Conns {
		t.Errorf("%d connections of %d were used", s.conns, c.Conns)
	}
}

func TestOpenLoopEndsWhenNobodyAnswers(t *testing.T) {
	s := serve(t, "tcp", "127.0.0.1:0", func(string) string { return "" })
	c := config(s)
	c.Loops, c.Pipeline, c.Rate, c.Timeout = 1, 1, 1000, 50*time.Millisecond
	if _, err := Run(context.Background(), c); !errors.Is(err, errTimeout) {
		t.Errorf("silence: %v", err)
	}
	c.Timeout = time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
	l, err := newLoop(&c, 0, new(atomic.Bool))
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if l.maxWaiting = 20; !errors.Is(l.runOpen(time.Now()), errBehind) {
		t.Error("21 requests without a reply are not too many")
	}
}

// A generator that comes late has the wait counted too: here the first request
// was due 100 ms ago, and half of 100 for more than 50 ms.
func TestOpenLoopCountsItsOwnDelay(t *testing.T) {
	c := config(serve(t, "tcp", "127.0.0.1:0", func(string) string { return ":1\r\n" }))
	c.Loops, c.Pipeline, c.Rate, c.Requests = 1, 1, 1000, 100
	l, err := newLoop(&c, 0, new(atomic.Bool))
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if err := l.runOpen(time.Now().Add(-100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	r := Result{latency: l.latency}
	if p50, p100 := r.Latency(50), r.Latency(100); l.replies != 100 || p50 < 50*time.Millisecond || p100 < 99*time.Millisecond {
		t.Errorf("%d replies, p50 %v, longest %v", l.replies, p50, p100)
	}
}
