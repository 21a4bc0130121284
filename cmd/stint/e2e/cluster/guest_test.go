//go:build unix && slow

package cluster

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestANonVoterProvesNothing: a leader that can reach a node without a vote only
// must neither decide nor take its answers for a majority's.
func TestANonVoterProvesNothing(t *testing.T) {
	c := startPatient(t, mustProgram(t))
	guest := c.guest(c.nodes[0].program)
	eventually(t, patience, "the new node is a member", func() bool { return c.mustLeader().idOf(guest.name) != "" })
	c.must("RAFT", "SERVER", "DEMOTE", guest.name)
	c.ready()
	proved := 0
	for i := 0; i < 12 && proved < 3; i++ {
		wrong, asked := c.staleRead(i, guest)
		for _, w := range wrong {
			t.Error(w)
		}
		if asked {
			proved++
		}
	}
	if proved == 0 {
		t.Error("the old leader never led any more when it was asked: this proves nothing")
	}
	// From here on the first node waits no longer than the others.
	c.nodes[0].stop()
	c.nodes[0].waits = 0
	c.nodes[0].start()
	c.ready()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := scenario{name: "non-voter", pinned: true, fault: func(c *cluster, r *rand.Rand, d time.Duration) {
		until(d, func() {
			during(between(r, 50*time.Millisecond, 300*time.Millisecond))
			l := c.mustLeader()
			for _, n := range c.nodes {
				if n != l && n != guest {
					c.mesh.cut(n.name, l.name)
					c.mesh.cut(n.name, guest.name)
				}
			}
			c.mustLeader(l)
			during(between(r, 0, 500*time.Millisecond))
			c.mesh.heal()
		})
	}}
	for _, w := range c.suffer(t, s, rand.New(rand.NewPCG(seed, 0)), loadTime(t)) {
		t.Error(w)
	}
	if role := c.mustLeader().roleOf(guest.name); role != "non-voter" {
		t.Errorf("the node that was demoted is %q now", role)
	}
	c.must("RAFT", "SERVER", "PROMOTE", guest.name)
	eventually(t, patience, "the new node votes", func() bool {
		role := c.mustLeader().roleOf(guest.name)
		return role == "voter" || role == "leader"
	})
	c.converged()
}

// guest adds a node that joins, and starts it.
func (c *cluster) guest(program string) *node {
	n := c.add(c.t.TempDir(), program, len(c.nodes))
	n.args = []string{"--join", strings.Join(c.doors(), ",")}
	n.start()
	return n
}
