package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stint-dev/stint/cluster/internal/port"
	"github.com/stint-dev/stint/engine/store"
)

// sim is a cluster in virtual time, in one process, with links that can be cut.
type sim struct {
	t     testing.TB
	nodes []*node
	trans []*raft.InmemTransport

	mu  sync.Mutex
	cut map[[2]int]bool
}

// simCalls is the Raft port of node i.
type simCalls struct {
	s *sim
	i int
}

func (c simCalls) Go(addr, to string, kind uint8, payload []byte, done func([]byte, error)) {
	payload = append([]byte(nil), payload...)
	j, _ := strconv.Atoi(strings.TrimPrefix(addr, "sim"))
	go func() {
		time.Sleep(time.Millisecond)
		n := c.s.node(j)
		if c.s.isCut(c.i, j) || n == nil || to != "" && n.ID() != to {
			done(nil, port.ErrNotSent)
			return
		}
		var once sync.Once
		answer := func(reply []byte, err error) { once.Do(func() { done(reply, err) }) }
		n.serveCall(kind, payload, func(reply []byte) {
			reply = append([]byte(nil), reply...)
			go func() {
				time.Sleep(time.Millisecond)
				if c.s.isCut(j, c.i) {
					answer(nil, port.ErrLost)
					return
				}
				answer(reply, nil)
			}()
		})
	}()
}

func (c simCalls) Call(ctx context.Context, addr, to string, kind uint8, payload []byte) ([]byte, error) {
	type result struct {
		b   []byte
		err error
	}
	ch := make(chan result, 1)
	c.Go(addr, to, kind, payload, func(b []byte, err error) { ch <- result{b, err} })
	select {
	case r := <-ch:
		return r.b, r.err
	case <-ctx.Done():
		return nil, port.ErrLost
	}
}

// node is the Group of a node, nil before it was started.
func (s *sim) node(i int) *Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i >= len(s.nodes) {
		return nil
	}
	return s.nodes[i].live.Load()
}

func (s *sim) isCut(i, j int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut[[2]int{i, j}]
}

// link cuts or mends the links between two nodes, both ways.
func (s *sim) link(i, j int, on bool) {
	s.mu.Lock()
	s.cut[[2]int{i, j}], s.cut[[2]int{j, i}] = !on, !on
	s.mu.Unlock()
	if on {
		s.trans[i].Connect(s.addr(j), s.trans[j])
		s.trans[j].Connect(s.addr(i), s.trans[i])
	} else {
		s.trans[i].Disconnect(s.addr(j))
		s.trans[j].Disconnect(s.addr(i))
	}
}

func (s *sim) addr(i int) raft.ServerAddress { return raft.ServerAddress(fmt.Sprint("sim", i)) }

// newSim makes n nodes, the last extra of which have no vote, that are a cluster.
func newSim(t testing.TB, n, extra int, conf func(i int, c *Config)) *sim {
	s := &sim{t: t, cut: map[[2]int]bool{}}
	var servers []raft.Server
	for i := range n {
		_, tr := raft.NewInmemTransport(s.addr(i))
		s.trans = append(s.trans, tr)
		nd := newNode(t, fmt.Sprint("n", i), nil)
		nd.addr = string(s.addr(i))
		nd.conf = func(c *Config) {
			c.Port = &PortConfig{Advertise: nd.addr}
			c.transport, c.calls = s.trans[i], simCalls{s, i}
			c.ElectionTimeout = time.Second
			c.DecisionTimeout = 500 * time.Millisecond
			c.Dir = ""
			if conf != nil {
				conf(i, c)
			}
		}
		s.nodes = append(s.nodes, nd)
		id := fmt.Sprintf("%016x", i)
		for k, v := range map[string]string{string(keyNode): nd.name, string(keyIncarnation): id, string(keyCluster): "c"} {
			if err := nd.log.Set([]byte(k), []byte(v)); err != nil {
				t.Fatal(err)
			}
		}
		suffrage := raft.Voter
		if i >= n-extra {
			suffrage = raft.Nonvoter
		}
		servers = append(servers, raft.Server{Suffrage: suffrage, ID: raft.ServerID(serverID(nd.name, id)), Address: s.addr(i)})
	}
	for i, nd := range s.nodes {
		c := raft.DefaultConfig()
		c.LocalID = servers[i].ID
		c.Logger = newRaftLogger(testLogger(t))
		if err := raft.BootstrapCluster(c, nd.log, nd.log, nd.snaps, s.trans[i], raft.Configuration{Servers: servers}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range s.nodes {
		s.connect(i)
		s.nodes[i].start()
	}
	return s
}

// connect connects a node to all others, as far as its links are not cut.
func (s *sim) connect(i int) {
	for j := range s.nodes {
		if j != i && j < len(s.trans) {
			s.link(i, j, true)
		}
	}
}

func (s *sim) stop() {
	for _, n := range s.nodes {
		n.stop()
	}
	time.Sleep(time.Minute) // Raft's goroutines that wait for an answer give up
}

// restart stops a node and starts it again with what it has on disk.
func (s *sim) restart(i int) {
	s.nodes[i].stop()
	_, s.trans[i] = raft.NewInmemTransport(s.addr(i))
	for j := range s.nodes {
		if j != i {
			s.link(i, j, !s.isCut(i, j))
		}
	}
	s.nodes[i].start()
}

// TestNothingAcknowledgedIsLost runs clients on random nodes in virtual time, while
// links are cut, nodes are stopped and leaderships handed over. At the end the
// units that were acknowledged are gone, and of the others only those whose
// outcome was unknown may be; and all nodes have the same state.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	seeds, first := 12, uint64(1)
	if s := os.Getenv("STINT_TEST_SEEDS"); s != "" {
		seeds, _ = strconv.Atoi(s)
		first = uint64(time.Now().UnixNano())
	}
	for i := range uint64(seeds) {
		seed := first + i
		synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func simulate(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	s := newSim(t, 3, 0, func(_ int, c *Config) { c.SnapshotBytes = 4 << 10 })
	defer s.stop()
	time.Sleep(5 * time.Second)
	var mu sync.Mutex
	acked, unknown, down := 0, 0, 0
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for c := range 4 {
		own := rand.New(rand.NewPCG(seed, uint64(100+c)))
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(own.IntN(30)) * time.Millisecond):
				}
				// One that is being restarted answers that it is stopping. A lock
				// around that would stop the virtual time.
				got, o := do(s.node(own.IntN(3)), "take k 1")
				mu.Lock()
				switch {
				case o == store.Decided && strings.HasPrefix(got, "1 "):
					acked++
				case o == store.Unknown:
					unknown++
				default:
					down++
				}
				mu.Unlock()
			}
		})
	}
	for range 12 {
		time.Sleep(time.Duration(500+rng.IntN(4000)) * time.Millisecond)
		i := rng.IntN(3)
		switch rng.IntN(6) {
		case 0, 1:
			s.link(i, (i+1)%3, false)
			if rng.IntN(2) == 0 {
				s.link(i, (i+2)%3, false)
			}
		case 2, 3:
			for i := range 3 {
				s.link(i, (i+1)%3, true)
			}
		case 4:
			s.restart(i)
		case 5:
			_ = s.nodes[i].Transfer("")
		}
	}
	close(stop)
	clients.Wait()
	for i := range 3 {
		s.link(i, (i+1)%3, true)
	}
	var left string
	for range 100 {
		var o store.Outcome
		if left, o = do(s.nodes[0].Group, "peek k"); o == store.Decided {
			break
		}
		time.Sleep(time.Second)
	}
	n, err := strconv.Atoi(strings.TrimSuffix(left, ";"))
	if used := 1_000_000 - n; err != nil || used < acked || used > acked+unknown {
		t.Errorf("seed %d: %d acknowledged, %d unknown, and %q are left, which is %d used", seed, acked, unknown, left, used)
	}
	if acked == 0 {
		t.Errorf("seed %d: nothing was acknowledged; %d unknown, %d refused", seed, unknown, down)
	}
	// A node that could not be reached for long is tried at longer and longer
	// intervals: Raft's, up to some ten seconds.
	var hashes []string
	for range 120 {
		hashes = hashes[:0]
		for _, n := range s.nodes {
			h, i := n.StateHash()
			hashes = append(hashes, fmt.Sprintf("%s after %d", h, i))
		}
		if hashes[0] == hashes[1] && hashes[1] == hashes[2] {
			return
		}
		time.Sleep(time.Second)
	}
	t.Errorf("seed %d: the states have the hashes %q", seed, hashes)
}
