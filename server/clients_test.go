package server

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// text sends a command whose reply is a text, and returns it.
func (c *client) text(command string) string {
	c.t.Helper()
	head := c.do(1, command)
	n, err := strconv.Atoi(strings.TrimPrefix(head, "$"))
	if err != nil {
		c.t.Fatalf("%s replied %q, want a text", command, head)
	}
	b := make([]byte, n+2)
	for read := 0; read < len(b); {
		m, err := c.r.Read(b[read:])
		if err != nil {
			c.t.Fatal(err)
		}
		read += m
	}
	return string(b[:n])
}

// TestAThousandClientsAreListedWhileTheyComeAndGo has half of the clients stay
// and half come and go, and lists them all the time: those that stay are in
// every list with what they are, nobody is there twice, and at the end those
// that went are in none.
func TestAThousandClientsAreListedWhileTheyComeAndGo(t *testing.T) {
	s := start(t, func(c *Config) { c.MaxClients = 2000 })
	addr := s.Addrs()[0]
	const staying = 500
	stay := make([]*client, staying)
	for i := range stay {
		stay[i] = dial(t, addr)
		stay[i].expect(fmt.Sprintf("CLIENT SETNAME stay-%d", i), "+OK")
		stay[i].expect(fmt.Sprintf("SELECT %d", i%16), "+OK")
	}
	var left atomic.Int64
	var going sync.WaitGroup
	for range 10 {
		going.Go(func() {
			for range 50 {
				c := dial(t, addr)
				c.expect("CLIENT SETNAME go", "+OK")
				c.do(6, "THROTTLE k 10 1")
				_ = c.Close()
				left.Add(1)
			}
		})
	}
	lister := dial(t, addr)
	list := func() map[string]int {
		t.Helper()
		_ = lister.SetDeadline(time.Now().Add(30 * time.Second))
		names, ids := map[string]int{}, map[string]bool{}
		for line := range strings.Lines(lister.text("CLIENT LIST")) {
			fields := map[string]string{}
			for _, f := range strings.Fields(line) {
				name, value, _ := strings.Cut(f, "=")
				fields[name] = value
			}
			if ids[fields["id"]] {
				t.Errorf("id %s is there twice", fields["id"])
			}
			ids[fields["id"]] = true
			names[fields["name"]]++
			if n, ok := strings.CutPrefix(fields["name"], "stay-"); ok {
				if i, _ := strconv.Atoi(n); fields["db"] != strconv.Itoa(i%16) || fields["cmd"] != "select" || fields["tot-cmds"] != "2" || fields["addr"] != stay[i].LocalAddr().String() {
					t.Errorf("%s", line)
				}
			}
		}
		for i := range stay {
			if names[fmt.Sprint("stay-", i)] != 1 {
				t.Fatalf("stay-%d is listed %d times", i, names[fmt.Sprint("stay-", i)])
			}
		}
		return names
	}
	for left.Load() < 500 && !t.Failed() {
		list()
	}
	going.Wait()
	deadline := time.Now().Add(30 * time.Second)
	for list()["go"] > 0 {
		if time.Now().After(deadline) {
			t.Fatal("clients that have gone are still listed")
		}
	}
	if n := len(list()); n != staying+1 {
		t.Errorf("%d names, want those that stay and the one that lists", n)
	}
	// All go at once, but for the one that asks.
	lister.expect("CLIENT KILL TYPE normal", fmt.Sprintf(":%d", staying))
	for i, c := range stay {
		if _, err := c.r.ReadByte(); err == nil {
			t.Fatalf("stay-%d is still connected", i)
		}
	}
	lister.expect("CLIENT KILL TYPE normal", ":0") // though some may not have ended yet
}

// TestAKilledClientKeepsWhatWasDecided fails when CLIENT KILL undoes decisions,
// or when one that kills itself gets no reply.
func TestAKilledClientKeepsWhatWasDecided(t *testing.T) {
	var log strings.Builder
	var mu sync.Mutex
	s := start(t, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return log.Write(b)
		}), nil))
	})
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC).UnixNano()
	s.clock.Freeze(noon)
	a, b := dial(t, s.Addrs()[0]), dial(t, s.Addrs()[0])
	a.expect("THROTTLE k 10 1/d", "*5", ":1", ":10", ":9", ":0", ":86400000")
	b.expect("CLIENT KILL "+a.LocalAddr().String(), "+OK")
	if _, err := a.r.ReadByte(); err == nil {
		t.Error("the killed client is still connected")
	}
	// The rest of the pipeline is not run.
	b.expect("THROTTLE k 10 1/d\r\nCLIENT KILL SKIPME no\r\nTHROTTLE k 10 1/d", "*5", ":1", ":10", ":8", ":0", ":172800000", ":1")
	if _, err := b.r.ReadByte(); err == nil {
		t.Error("a client that kills itself is still connected")
	}
	c := dial(t, s.Addrs()[0])
	c.expect("THROTTLE k 10 1/d 0", "*5", ":1", ":10", ":8", ":0", ":172800000")
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), "closed by CLIENT KILL"); n != 2 || !strings.Contains(log.String(), `count=1 which="'SKIPME no'" by=`+b.LocalAddr().String()) {
		t.Errorf("%d lines tell of the 2 kills:\n%s", n, log.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestMaxclientsIsHeldAgainstTheSystem fails when CONFIG SET maxclients takes
// what the start would warn of.
func TestMaxclientsIsHeldAgainstTheSystem(t *testing.T) {
	s := start(t, func(c *Config) {
		c.CheckClients = func(n int) error {
			if n > 50 {
				return errors.New("50 fit")
			}
			return nil
		}
	})
	c := dial(t, s.Addrs()[0])
	c.expect("CONFIG SET maxclients 51", "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - 50 fit")
	c.expect("CONFIG GET maxclients", "*2", "$10", "maxclients", "$3", "100")
	c.expect("CONFIG SET maxclients 50", "+OK")
}

// TestThresholdsAreSettings fails when CONFIG SET of one of them changes
// nothing, or takes what Redis does not.
func TestThresholdsAreSettings(t *testing.T) {
	s := start(t, func(c *Config) {
		c.SlowLog, c.SlowerThan, c.LatencyThreshold = 128, 10*time.Millisecond, 100*time.Millisecond
	})
	c := dial(t, s.Addrs()[0])
	get := func(name, want string) {
		t.Helper()
		if got := c.do(5, "CONFIG GET "+name); !strings.HasSuffix(got, " "+want) {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
	get("slowlog-log-slower-than", "10000")
	get("slowlog-max-len", "128")
	get("latency-monitor-threshold", "100")
	for _, p := range []string{"slowlog-log-slower-than 0", "slowlog-log-slower-than -1", "slowlog-max-len 0", "slowlog-max-len 10000", "latency-monitor-threshold 0", "latency-monitor-threshold 250"} {
		c.expect("CONFIG SET "+p, "+OK")
		name, value, _ := strings.Cut(p, " ")
		get(name, value)
	}
	for p, want := range map[string]string{
		"slowlog-log-slower-than -2": "between -1 and 9223372036854775807 inclusive", "slowlog-log-slower-than x": "couldn't be parsed into an integer",
		"slowlog-max-len -1": "between 0 and 10000 inclusive", "slowlog-max-len 10001": "between 0 and 10000 inclusive", "slowlog-max-len +5": "couldn't be parsed into an integer",
		"latency-monitor-threshold -1": "between 0 and 9223372036854775807 inclusive", "latency-monitor-threshold 1.5": "couldn't be parsed into an integer",
	} {
		if got := c.do(1, "CONFIG SET "+p); !strings.Contains(got, "CONFIG SET failed") || !strings.Contains(got, want) {
			t.Errorf("CONFIG SET %s replied %q, want %q", p, got, want)
		}
	}
	c.expect("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 3", "+OK")
	c.expect("SLOWLOG LEN", ":1") // the CONFIG SET itself, which ended after it
	c.expect("PING", "+PONG")
	c.expect("SLOWLOG LEN", ":3")
}

// slowDisk is a Persister whose last flush took an hour.
type slowDisk struct{ Persister }

func (slowDisk) Info() PersistInfo { return PersistInfo{Flushes: 1, LastDuration: time.Hour} }

// TestASlowFlushAndTheRateAreNoted fails when the upkeep does not look at them.
func TestASlowFlushAndTheRateAreNoted(t *testing.T) {
	s := start(t, func(c *Config) { c.LatencyThreshold, c.Persist = 100*time.Millisecond, slowDisk{} })
	c := dial(t, s.Addrs()[0])
	deadline := time.Now().Add(10 * time.Second)
	_ = c.SetDeadline(deadline.Add(time.Minute))
	for {
		rate := !strings.Contains(c.text("INFO stats"), "instantaneous_ops_per_sec:0\r\n")
		flush := strings.Contains(c.text("LATENCY DOCTOR"), "flush: writing changed keys")
		if rate && flush {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the rate shows: %v, the flush: %v", rate, flush)
		}
	}
}
