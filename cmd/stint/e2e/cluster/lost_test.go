//go:build unix

package cluster

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestAcknowledgedUnitsAreNeverLost kills nodes under load, one or all at once:
// what is left of a limit that does not refill is its capacity without every unit
// that was granted, and without those at most whose outcome is unknown.
func TestAcknowledgedUnitsAreNeverLost(t *testing.T) {
	const (
		keys     = 4
		capacity = 1_000_000
	)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c := startCluster(t, mustProgram(t), nil)
	var granted, open [keys]atomic.Int64
	take := func(key int) []string {
		// 1,000,000 an hour and more would refill within the test.
		return []string{"THROTTLE", fmt.Sprintf("lost-%d", key), strconv.Itoa(capacity), "1/h"}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for id := range clients {
		r := rand.New(rand.NewPCG(seed, uint64(1+id)))
		wg.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			w := &wire{addr: c.nodes[id%3].addr}
			defer func() { w.close() }()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				key, n := r.IntN(keys), 1+r.IntN(8)
				var batch [][]string
				for range n {
					batch = append(batch, take(key))
				}
				replies, o, _ := w.do(callTimeout, batch...)
				switch o {
				case unknown:
					open[key].Add(int64(n))
				case decided:
					for _, v := range replies {
						if five, ok := v.([]any); ok && five[0] == int64(1) {
							granted[key].Add(1)
						} else {
							t.Errorf("a unit was refused, or the reply is none: %v", v)
						}
					}
				}
				if o != decided {
					w.close()
					w = &wire{addr: c.nodes[r.IntN(3)].addr}
				}
			}
		})
	}
	until(loadTime(t), func() {
		during(between(r, 100*time.Millisecond, 400*time.Millisecond))
		down := r.Perm(3)[:1+2*(r.IntN(3)/2)] // one, or all at once
		for _, i := range down {
			c.nodes[i].kill()
		}
		for _, i := range down {
			c.nodes[i].start()
		}
		c.mustLeader()
	})
	close(stop)
	wg.Wait()
	c.ready()
	for key := range keys {
		least, most := granted[key].Load(), granted[key].Load()+open[key].Load()
		for _, n := range c.nodes {
			if used := capacity - n.remaining(take(key)); used < least || used > most {
				t.Errorf("node %s: %d units of key %d are used; %d were granted, and the outcome of %d is unknown", n.name, used, key, least, most-least)
			}
		}
		t.Logf("key %d: %d granted, %d unknown", key, least, most-least)
		if least == 0 {
			t.Error("nothing was granted: this proves nothing")
		}
	}
	c.converged()
}

// remaining is what is left of a limit, which changes nothing.
func (n *node) remaining(take []string) int64 {
	n.t.Helper()
	var left int64
	eventually(n.t, patience, "node "+n.name+" answers a read", func() bool {
		v, err := n.ask(append(append([]string(nil), take...), "1", "PEEK")...)
		five, ok := v.([]any)
		if err != nil || !ok || len(five) != 5 {
			return false
		}
		left, ok = five[2].(int64)
		return ok
	})
	return left
}
