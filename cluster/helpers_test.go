package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
	"github.com/stint-dev/stint/engine/store"
)

// memLog is a log in memory.
type memLog struct {
	*raft.InmemStore
	bytes atomic.Int64
}

func newMemLog() *memLog { return &memLog{InmemStore: raft.NewInmemStore()} }

func (m *memLog) StoreLogs(ls []*raft.Log) error {
	for _, l := range ls {
		m.bytes.Add(int64(len(l.Data)))
	}
	return m.InmemStore.StoreLogs(ls)
}

func (m *memLog) Bytes() int64 { return m.bytes.Load() }
func (m *memLog) Close() error { return nil }

// words are the commands of the test's executor: "take key cost" of a bucket of
// capacity 100 that fills by one an hour, "peek key", and "panic".
type words struct{}

var slowLimit = limit.BucketLimit{Capacity: 1_000_000, Rate: limit.Rate{Count: 1, Period: 3_600e9}}

func (words) Execute(tx *engine.Tx, requests []store.Request, out []byte) []byte {
	for i := range requests {
		a := requests[i].Args
		switch string(a[0]) {
		case "take":
			cost, _ := limit.ParseUnits(a[2])
			r, err := tx.Throttle(a[1], slowLimit, cost, limit.Consume)
			if err != nil {
				out = fmt.Appendf(out, "%v;", err)
				continue
			}
			out = fmt.Appendf(out, "%d %d;", r.Allowed, r.Remaining)
		case "peek":
			r, _ := tx.Throttle(a[1], slowLimit, 0, limit.Peek)
			out = fmt.Appendf(out, "%d;", r.Remaining)
		case "panic":
			panic("a fault on purpose")
		}
	}
	return out
}

func batchOf(lines ...string) *store.Batch {
	b := &store.Batch{}
	for _, l := range lines {
		r := store.Request{Proto: 2}
		for _, w := range strings.Fields(l) {
			r.Args = append(r.Args, []byte(w))
		}
		b.Requests = append(b.Requests, r)
	}
	return b
}

// do runs a batch and waits for its end.
func do(g *Group, lines ...string) (string, store.Outcome) {
	b := batchOf(lines...)
	done := make(chan struct{})
	b.Done = func(*store.Batch) { close(done) }
	if !g.Run(b) {
		<-done
	}
	if b.Outcome != store.Decided {
		return b.Why, b.Outcome
	}
	return string(b.Out), b.Outcome
}

// eventually waits until f is true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); {
		if time.Now().After(end) {
			t.Fatalf("it did not come to pass: %s", what)
		}
		timer := time.NewTimer(5 * time.Millisecond)
		<-timer.C
	}
}

func testLogger(t testing.TB) *slog.Logger {
	if os.Getenv("STINT_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

// node is a Group with what it needs, so that it can be stopped and started again.
type node struct {
	t     testing.TB
	name  string
	ks    *engine.Keyspace
	log   *memLog
	snaps *raft.InmemSnapshotStore
	addr  string
	conf  func(*Config)
	*Group

	live atomic.Pointer[Group] // Group, for who may come while it is started
}

func newNode(t testing.TB, name string, conf func(*Config)) *node {
	return &node{t: t, name: name, log: newMemLog(), snaps: raft.NewInmemSnapshotStore(), conf: conf}
}

func (n *node) start() {
	n.t.Helper()
	ks, err := engine.New(engine.Options{Shards: 4})
	if err != nil {
		n.t.Fatal(err)
	}
	n.ks = ks
	c := Config{
		NodeID: n.name, Keyspace: ks, Executor: words{}, Log: n.log, Snapshots: n.snaps, Dir: n.t.TempDir(),
		Lookup:          func([][]byte) (int32, bool) { return 0, true },
		DecisionTimeout: 2 * time.Second, ElectionTimeout: 300 * time.Millisecond,
		Logger: testLogger(n.t).With("node", n.name),
		Fatal:  func(err error) { n.t.Errorf("node %s: %v", n.name, err) },
	}
	if n.conf != nil {
		n.conf(&c)
	}
	if n.Group, err = Open(c); err != nil {
		n.t.Fatal(err)
	}
	n.live.Store(n.Group)
}

func (n *node) stop() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := n.Group.Close(ctx); err != nil {
		n.t.Errorf("stop %s: %v", n.name, err)
	}
}

// listen opens a port on the loopback.
func listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newCluster starts n nodes that found a cluster.
func newCluster(t testing.TB, n int, conf func(*Config)) []*node {
	t.Helper()
	var nodes []*node
	var listeners []net.Listener
	var join []string
	for range n {
		l := listen(t, "127.0.0.1:0")
		listeners = append(listeners, l)
		join = append(join, l.Addr().String())
	}
	for i := range n {
		addr := join[i]
		first := listeners[i]
		nd := newNode(t, fmt.Sprint("n", i+1), func(c *Config) {
			l := first
			if first = nil; l == nil {
				l = listen(t, addr)
			}
			c.Port = &PortConfig{Listener: l, Advertise: addr, Join: join, Expect: n}
			if conf != nil {
				conf(c)
			}
		})
		nd.addr = addr
		nodes = append(nodes, nd)
		nd.start()
	}
	t.Cleanup(func() {
		for _, n := range nodes {
			n.stop()
		}
	})
	return nodes
}

// leaderOf waits for a node that decides.
func leaderOf(t testing.TB, nodes []*node) *node {
	t.Helper()
	var leader *node
	eventually(t, "a leader", func() bool {
		for _, n := range nodes {
			if n.isReady() && n.term.Load() != 0 {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}
