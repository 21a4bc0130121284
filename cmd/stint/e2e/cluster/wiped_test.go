//go:build unix && slow

package cluster

import (
	"testing"
	"time"
)

// TestAWipedVoterGivesNothingAway: units that the leader and one follower have
// acknowledged are on those two nodes only. If the follower loses its folder and
// comes back under its name, it must not elect, together with the node that has
// never heard of the units, a leader that would grant them again.
func TestAWipedVoterGivesNothingAway(t *testing.T) {
	c := startCluster(t, mustProgram(t), nil)
	take := []string{"THROTTLE", "wiped", "100", "1/h"}
	leader := c.mustLeader()
	rest := c.followers(leader)
	wiped, behind := rest[0], rest[1]
	c.mesh.isolate(behind.name, c.names()...)
	w := &wire{addr: leader.addr}
	defer w.close()
	units := int64(0)
	for range 7 {
		if _, o, err := w.do(10*time.Second, take); o != decided {
			t.Fatalf("the leader and one follower decide nothing: %v", err)
		}
		units++
	}
	old := leader.idOf(wiped.name)
	leader.kill()
	wiped.kill()
	wiped.wipe()
	c.mesh.heal()
	wiped.start()
	// Nothing can be decided; should it be, the units must be there.
	until(8*electionTimeout, func() {
		for _, n := range rest {
			w := &wire{addr: n.addr}
			replies, o, _ := w.do(callTimeout, append(take, "1", "PEEK"))
			w.close()
			if o == decided {
				t.Fatalf("without the only node that knows of %d units, node %s answers %v", units, n.name, replies)
			}
		}
		during(electionTimeout / 20)
	})
	leader.start()
	c.ready()
	for _, n := range c.nodes {
		if left := n.remaining(take); left != 100-units {
			t.Errorf("node %s: %d units are left, want %d", n.name, left, 100-units)
		}
	}
	eventually(t, patience, "the wiped node votes again", func() bool {
		l := c.leader()
		return l != nil && l != wiped && l.roleOf(wiped.name) == "voter"
	})
	if id := c.mustLeader().idOf(wiped.name); id == old || id == "" {
		t.Errorf("the wiped node is a member as %q, as it was before", id)
	}
	if n := len(c.mustLeader().members()); n != 3 {
		t.Errorf("the cluster has %d members", n)
	}
	c.converged()
}

// idOf is a member's Raft ID as n knows it, "" if it is none.
func (n *node) idOf(name string) string {
	for _, m := range n.members() {
		if m.node == name {
			return m.id
		}
	}
	return ""
}
