//go:build unix

package cluster

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// lasting is the longest a round is under load: short ones keep the search for an
// order fast.
const lasting = 2 * time.Second

// round is one load on keys of its own, with a history.
type round struct {
	c        *cluster
	r        *rand.Rand
	name     string
	pinned   bool // each client stays at its node, whatever that answers
	frozen   bool // the clocks stand still, and so keys can be deleted too
	h        *history
	subjects []*subject
}

// newRound prepares keys; the cluster must be ready. Each begins with something
// stored in it, so that the models know a time.
func newRound(c *cluster, r *rand.Rand, name string, frozen bool) *round {
	c.t.Helper()
	o := &round{c: c, r: r, name: name, frozen: frozen, h: newHistory()}
	if frozen {
		c.clock(time.Now().UnixNano())
	} else {
		c.clock(0)
	}
	v, err := c.nodes[0].ask("DEBUG", "STAMP")
	stamp, ok := v.(int64)
	if !ok {
		c.t.Fatalf("DEBUG STAMP: %v, %v", v, err)
	}
	add := func(k kind, key string, capacity, count int64, period time.Duration, used int64) {
		s := &subject{
			key: fmt.Sprintf("%s-%s", key, name), kind: k, capacity: capacity, count: count, period: int64(period),
			epoch: stamp - int64(10*time.Second),
		}
		o.subjects = append(o.subjects, s)
		w := &wire{addr: c.nodes[0].addr}
		defer w.close()
		if !await(patience, func() bool { return o.h.do(clients, w, call{s, take, used}) == decided }) {
			c.t.Fatalf("nothing can be decided in %v", patience)
		}
	}
	// One never refuses, so that at any moment something is being stored; the
	// others do most of the time.
	add(bucket, "large", 1_000_000, 1, time.Hour, 1)
	if frozen {
		add(bucket, "small", 30, 1, time.Hour, 1)
		add(fixed, "fixed", 100, 0, time.Minute, 1)
		add(sliding, "sliding", 50, 0, time.Minute, 1)
		return o
	}
	// It is never full again: what is unknown has an effect that no time changes.
	add(bucket, "running", 5000, 300, time.Second, 4900)
	long := windowAround(stamp)
	add(fixed, "fixed", 1000, 0, long, 1)
	add(sliding, "sliding", 1000, 0, long, 1)
	return o
}

// windowAround is a length of windows whose border is not near.
func windowAround(ns int64) time.Duration {
	for _, p := range []time.Duration{time.Hour, 7 * time.Hour, 11 * time.Hour} {
		if int64(p)-ns%int64(p) > int64(10*time.Minute) {
			return p
		}
	}
	return 13 * time.Hour
}

// run has clients call until fault returns, lets the cluster recover, has each
// node say how all ends, and tells what is wrong with the answers.
func (o *round) run(fault func()) (wrong []string) {
	o.c.t.Helper()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for id := range clients {
		seed := o.r.Uint64()
		wg.Go(func() { o.client(id, rand.New(rand.NewPCG(seed, 1)), stop) })
	}
	fault()
	close(stop)
	wg.Wait()
	o.c.repair()
	o.c.ready()
	for _, n := range o.c.nodes {
		w := &wire{addr: n.addr}
		for _, s := range o.subjects {
			if !await(patience, func() bool { return o.h.do(clients, w, call{s, peek, 1}) == decided }) {
				o.c.t.Fatalf("node %s answers no read in %v", n.name, patience)
			}
		}
		w.close()
	}
	n := o.h.count
	o.c.t.Logf("%s: %d decided, %d not applied, %d unknown", o.name, n[decided], n[notApplied], n[unknown])
	return append(wrong, o.h.violations(o.name, o.c.keep)...)
}

// client is one client: one call at a time, never one twice.
func (o *round) client(id int, r *rand.Rand, stop <-chan struct{}) {
	wires := map[*node]*wire{}
	defer func() {
		for _, w := range wires {
			w.close()
		}
	}()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	at := o.c.nodes[id%len(o.c.nodes)]
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		w := wires[at]
		if w == nil {
			w = &wire{addr: at.addr}
			wires[at] = w
		}
		got := o.h.do(id, w, o.choose(r))
		if !o.pinned && (got != decided || r.IntN(20) == 0) {
			at = o.c.nodes[r.IntN(len(o.c.nodes))]
		}
	}
}

// choose is a random call.
func (o *round) choose(r *rand.Rand) call {
	i := r.IntN(len(o.subjects))
	c := call{o.subjects[i], take, 1 + r.Int64N(9)}
	switch n := r.IntN(20); {
	case n < 4:
		c.verb = peek
	case n < 5 && o.frozen && i > 0:
		c.verb = remove
	case n < 6 && o.frozen:
		c.verb = exists
	}
	return c
}
