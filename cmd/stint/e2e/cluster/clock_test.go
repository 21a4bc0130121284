//go:build unix && slow

package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestAClockThatIsWrongIsNotFollowed: one node's clock is an hour ahead. Whoever
// leads, and after all were down at once, time goes on as it should: an hour ahead
// every limit would be full again.
func TestAClockThatIsWrongIsNotFollowed(t *testing.T) {
	for _, offset := range []string{"1h", "-1h"} {
		t.Run(offset, func(t *testing.T) {
			c := startCluster(t, mustProgram(t), func(i int, n *node) {
				if i == 1 {
					n.env = []string{"STINT_TEST_CLOCK_OFFSET=" + offset}
				}
			})
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			for i, fault := range []func(){
				func() {
					until(time.Second, func() {
						_, _ = c.mustLeader().ask("RAFT", "TRANSFER", c.nodes[r.IntN(3)].name)
						during(100 * time.Millisecond)
					})
				},
				func() { c.must("RAFT", "TRANSFER", "n2"); during(time.Second) },
				func() {
					for _, n := range c.nodes {
						n.kill()
					}
					for _, n := range c.nodes {
						n.start()
					}
					c.mustLeader()
					during(time.Second)
				},
			} {
				o := newRound(c, r, fmt.Sprintf("clock-%s-%d", offset, i), false)
				for _, w := range o.run(fault) {
					t.Error(w)
				}
				o.compareClocks(t, offset[0] == '-')
			}
			c.converged()
		})
	}
}

// clockError is how far the time of decisions may be from the true one: a clock is
// believed that is at most 5 s ahead, and a new leader may step back by a second.
const clockError = 7 * time.Second

// compareClocks compares the times of decisions with the clock here. After all
// nodes were down, the lower one of two clocks decides, and so time may be behind
// where one of them is: that gives nothing away.
func (o *round) compareClocks(t *testing.T, behind bool) {
	for _, op := range o.h.ops {
		r := op.Output.(result)
		if !r.known {
			continue
		}
		called, returned := o.h.begun.Add(time.Duration(op.Call)), o.h.begun.Add(time.Duration(op.Return))
		early, late := called.Sub(time.Unix(0, r.stamp)), time.Unix(0, r.stamp).Sub(returned)
		if late > clockError || early > clockError && !behind {
			t.Errorf("%s: decided at a time that is %v ahead of the clock", describe(op.Input, op.Output), late)
			return
		}
	}
}
