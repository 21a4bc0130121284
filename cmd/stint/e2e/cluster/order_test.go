//go:build unix

package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestNodesCanStartInAnyOrder founds clusters and restarts them, each node being
// up before the next one is started.
func TestNodesCanStartInAnyOrder(t *testing.T) {
	orders := [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	if !long {
		orders = orders[rand.IntN(len(orders)):][:1]
	}
	for i, order := range orders {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			c := newCluster(t, mustProgram(t), 3, nil)
			take := []string{"THROTTLE", "order", "100", "1/h"}
			peek := append(append([]string(nil), take...), "1", "PEEK")
			start := func(order [3]int) {
				for i, k := range order {
					n := c.nodes[k]
					n.start()
					eventually(t, patience, "node "+n.name+" answers PING", func() bool { _, err := n.ask("PING"); return err == nil })
					if i == 0 {
						if v, err := n.ask(peek...); err == nil {
							t.Errorf("one node of three has decided: %v", v)
						}
					}
				}
				c.ready()
			}
			start(order)
			if _, err := c.nodes[0].ask(take...); err != nil {
				t.Fatal(err)
			}
			for _, k := range order {
				c.nodes[k].stop()
			}
			start(orders[len(orders)-1-i])
			for _, n := range c.nodes {
				if left := n.remaining(take); left != 99 {
					t.Errorf("node %s: %d units are left, want 99", n.name, left)
				}
			}
			c.converged()
		})
	}
}
