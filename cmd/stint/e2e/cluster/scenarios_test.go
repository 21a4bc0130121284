//go:build unix

package cluster

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// scenario is a way in which a cluster is disturbed under load.
type scenario struct {
	name   string
	short  bool // it is part of the short form too
	small  bool // it is tried with small snapshots too
	pinned bool // clients stay at their node
	// fault disturbs the cluster for about so long, and may leave it disturbed.
	fault func(c *cluster, r *rand.Rand, d time.Duration)
}

var scenarios = []scenario{
	{name: "calm", fault: func(_ *cluster, _ *rand.Rand, d time.Duration) { during(d) }},

	{name: "leader-killed", short: true, small: true, fault: func(c *cluster, r *rand.Rand, d time.Duration) {
		until(d, func() {
			during(between(r, 100*time.Millisecond, 500*time.Millisecond))
			l := c.mustLeader()
			l.kill()
			c.mustLeader(l)
			during(between(r, 0, 300*time.Millisecond))
			l.start()
		})
	}},

	{name: "all-killed", small: true, fault: func(c *cluster, r *rand.Rand, d time.Duration) {
		during(d / 2)
		for _, i := range r.Perm(len(c.nodes)) {
			c.nodes[i].kill()
		}
		for _, i := range r.Perm(len(c.nodes)) {
			c.nodes[i].start()
		}
		c.mustLeader()
		during(d / 4)
	}},

	{name: "leader-paused", pinned: true, fault: func(c *cluster, r *rand.Rand, d time.Duration) {
		until(d, func() {
			during(between(r, 50*time.Millisecond, 300*time.Millisecond))
			l := c.mustLeader()
			l.pause()
			c.mustLeader(l)
			during(between(r, 0, 500*time.Millisecond))
			l.resume()
		})
	}},

	{name: "leader-cut-off", short: true, small: true, pinned: true, fault: func(c *cluster, r *rand.Rand, d time.Duration) {
		until(d, func() {
			during(between(r, 50*time.Millisecond, 300*time.Millisecond))
			l := c.mustLeader()
			c.mesh.isolate(l.name, c.names()...)
			c.mustLeader(l)
			during(between(r, 0, 500*time.Millisecond))
			c.mesh.heal()
		})
	}},

	// The leader's requests arrive, and the answers do not, until it is over.
	{name: "answers-held-back", pinned: true, fault: func(c *cluster, r *rand.Rand, d time.Duration) {
		until(d, func() {
			during(between(r, 50*time.Millisecond, 300*time.Millisecond))
			l := c.mustLeader()
			for _, n := range c.followers(l) {
				c.mesh.set(n.name, l.name, fate{held: true})
			}
			during(between(r, 100*time.Millisecond, 1200*time.Millisecond))
			c.mesh.heal()
		})
	}},

	{name: "one-way-cuts", pinned: true, fault: func(c *cluster, r *rand.Rand, d time.Duration) {
		until(d, func() {
			from, to := c.nodes[r.IntN(len(c.nodes))], c.nodes[r.IntN(len(c.nodes))]
			if from == to {
				return
			}
			f := fate{lost: true}
			if r.IntN(2) == 0 {
				f = fate{held: true}
			}
			c.mesh.set(from.name, to.name, f)
			during(between(r, 50*time.Millisecond, 600*time.Millisecond))
			if r.IntN(3) == 0 {
				c.mesh.heal()
			}
		})
	}},

	{name: "slow-network", fault: func(c *cluster, r *rand.Rand, d time.Duration) {
		for _, from := range c.nodes {
			for _, to := range c.nodes {
				c.mesh.set(from.name, to.name, fate{delay: between(r, time.Millisecond, 60*time.Millisecond)})
			}
		}
		during(d)
	}},

	{name: "transfers", fault: func(c *cluster, r *rand.Rand, d time.Duration) {
		until(d, func() {
			n := c.nodes[r.IntN(len(c.nodes))]
			// It may fail, as when another one is under way.
			_, _ = n.ask("RAFT", "TRANSFER", c.nodes[r.IntN(len(c.nodes))].name)
			during(between(r, 0, 100*time.Millisecond))
		})
	}},

	{name: "rolling-restarts", fault: func(c *cluster, r *rand.Rand, d time.Duration) {
		for _, i := range r.Perm(len(c.nodes)) {
			n := c.nodes[i]
			n.stop()
			during(d / 10)
			n.start()
			eventually(c.t, patience, "decisions can be made through "+n.name, func() bool { return n.info()["serving"] == "1" })
		}
	}},

	{name: "snapshots", small: true, fault: func(c *cluster, r *rand.Rand, d time.Duration) {
		until(d, func() {
			n := c.nodes[r.IntN(len(c.nodes))]
			_, _ = n.ask("RAFT", "SNAPSHOT")
			n.kill()
			during(between(r, 0, 300*time.Millisecond))
			n.start()
			c.mustLeader()
		})
	}},
}

// TestEveryHistoryHasAnOrder is the proof that the cluster is one server: under
// each kind of fault the answers that clients got are those that one server could
// have given, one after the other, each between its question and its answer.
func TestEveryHistoryHasAnOrder(t *testing.T) {
	everyHistory(t, nil, func(s scenario) bool { return s.short || long })
}

// everyHistory puts a cluster of nodes with an environment through scenarios.
func everyHistory(t *testing.T, env []string, chosen func(scenario) bool) {
	c := startCluster(t, mustProgram(t), func(_ int, n *node) { n.env = env })
	load := loadTime(t)
	for _, s := range scenarios {
		if !chosen(s) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			for _, w := range c.suffer(t, s, rand.New(rand.NewPCG(seed, 0)), load) {
				t.Error(w)
			}
			c.converged()
		})
	}
}

// leastCalls is how many calls must be decided in a scenario.
const leastCalls = 60

// suffer puts the cluster through a scenario, in rounds, and tells what was wrong.
func (c *cluster) suffer(t *testing.T, s scenario, r *rand.Rand, load time.Duration) (wrong []string) {
	t.Helper()
	outer := c.t
	c.use(t)
	defer c.use(outer)
	begun := time.Now()
	// A round in which the cluster was mostly away proves little: then there are
	// more of them.
	calls := 0
	for i := 0; len(wrong) == 0 && (i < 2 || time.Since(begun) < load || calls < leastCalls && i < 8); i++ {
		name := fmt.Sprintf("%s-%d-%d", s.name, i, r.Uint32())
		o := newRound(c, r, name, i%2 == 0)
		o.pinned = s.pinned
		wrong = o.run(func() { s.fault(c, r, min(load/2, lasting)) })
		calls += o.h.count[decided]
	}
	if calls < leastCalls && len(wrong) == 0 {
		wrong = append(wrong, fmt.Sprintf("%s: only %d calls were decided: this proves nothing", s.name, calls))
	}
	return wrong
}

// use has failures reported by a test.
func (c *cluster) use(t *testing.T) {
	c.t = t
	for _, n := range c.nodes {
		n.t = t
	}
}

// pause stops the process in the middle of whatever it does.
func (n *node) pause() { n.signal(syscall.SIGSTOP); n.stopped = true }
