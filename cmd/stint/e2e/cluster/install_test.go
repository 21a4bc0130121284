//go:build unix && slow

package cluster

import (
	"fmt"
	"testing"
)

// smallSnapshots has a node take a snapshot whenever its log has grown by some
// 64 KiB, and keep little of it: whoever is away for a moment needs the snapshot.
const smallSnapshots = "STINT_TEST_SNAPSHOT_BYTES=65536"

// TestANodeThatWasSentASnapshotCanLead: a node misses so much of the log that the
// leader has no longer all of it, gets a snapshot instead, and then leads.
func TestANodeThatWasSentASnapshotCanLead(t *testing.T) {
	c := startCluster(t, mustProgram(t), func(_ int, n *node) { n.env = []string{smallSnapshots} })
	leader := c.mustLeader()
	away := c.followers(leader)[0]
	missed := number(away.info(), "last_log_index")
	away.kill()
	w := &wire{addr: leader.addr}
	defer w.close()
	take := func(i int) []string { return []string{"THROTTLE", fmt.Sprintf("install-%d", i), "100", "1/h"} }
	const keys = 2000
	for i := range keys {
		// One at a time, so that each is an entry.
		if _, o, err := w.do(callTimeout, append(take(i), "3")); o != decided {
			t.Fatalf("two nodes of three decide nothing: %v", err)
		}
	}
	eventually(t, patience, "a snapshot was taken", func() bool { return number(leader.info(), "snapshot_index") > missed+keys/2 })
	away.start()
	eventually(t, patience, "the node has what it missed", func() bool {
		return number(away.info(), "applied_index") > missed+keys
	})
	c.ready()
	c.must("RAFT", "TRANSFER", away.name)
	eventually(t, patience, "it leads", func() bool { return c.leader() == away })
	for _, i := range []int{0, 1, keys / 2, keys - 1} {
		if left := away.remaining(take(i)); left != 97 {
			t.Errorf("%d units are left of key %d, want 97", left, i)
		}
	}
	if v, err := away.ask(append(take(0), "97")...); err != nil {
		t.Errorf("it leads and decides nothing: %v, %v", v, err)
	}
	c.converged()
	for _, n := range c.nodes {
		n.kill()
	}
	for _, n := range c.nodes {
		n.start()
	}
	c.ready()
	if left := away.remaining(take(0)); left != 0 {
		t.Errorf("after a restart %d units are left of a key, want 0", left)
	}
	// Only who was sent a snapshot, or has taken one, has any.
	if at := number(away.info(), "snapshot_index"); at <= missed {
		t.Errorf("the node was sent no snapshot: its newest one is of entry %d, and it had %d entries itself", at, missed)
	}
	c.converged()
}
