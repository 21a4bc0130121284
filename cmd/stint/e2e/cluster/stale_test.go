//go:build unix

package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestADeposedLeaderDoesNotReadFromItsPast is the hardest case for a leader that
// has changed nothing and must find out whether it still leads.
func TestADeposedLeaderDoesNotReadFromItsPast(t *testing.T) {
	c := startPatient(t, mustProgram(t))
	tries := 1
	if long {
		tries = 5
	}
	proved := 0
	for i := 0; i < 4*tries && proved < tries; i++ {
		wrong, asked := c.staleRead(i, nil)
		if asked {
			proved++
		}
		for _, w := range wrong {
			t.Error(w)
		}
	}
	if proved == 0 {
		t.Error("the old leader never led any more when it was asked: this proves nothing")
	}
}

// startPatient starts a cluster whose first node believes for long that it leads
// when it hears nothing, while the others elect another one soon.
func startPatient(t *testing.T, program string, env ...string) *cluster {
	return startCluster(t, program, func(i int, n *node) {
		n.env = env
		if i == 0 {
			n.waits = 20 * electionTimeout
		}
	})
}

// staleRead has the first node lead, holds back the answers to what it sends, cuts
// it off, has the others elect another leader and take units there, and then asks
// the first one. The answers, and they alone, reach it behind that question: they
// were sent before it, and prove nothing about now. asked is false if it knew already
// that it leads no more. guest, if not nil, has no vote: it stays reachable all the
// time, and its answers prove nothing either.
func (c *cluster) staleRead(i int, guest *node) (wrong []string, asked bool) {
	c.t.Helper()
	on := &subject{key: fmt.Sprintf("stale-%d", i), kind: bucket, capacity: 100, count: 1, period: int64(time.Hour)}
	old := c.nodes[0]
	rest := slices.DeleteFunc(c.followers(old), func(n *node) bool { return n == guest })
	eventually(c.t, patience, "the first node leads", func() bool {
		c.upright()
		if c.leader() == old {
			return true
		}
		_, _ = old.ask("RAFT", "TRANSFER", old.name)
		return false
	})
	// If time went on, the old leader would want to store that first.
	c.clock(time.Now().UnixNano())
	w, v := &wire{addr: old.addr}, &wire{}
	defer w.close()
	defer func() { v.close() }()
	if !await(patience, func() bool { _, o, _ := w.do(callTimeout, on.command(take, 1)); return o == decided }) {
		c.t.Fatalf("the leader decides nothing in %v", patience)
	}
	for _, n := range rest {
		c.mesh.set(n.name, old.name, fate{held: true})
	}
	during(electionTimeout / 2) // something is sent to each
	for _, n := range rest {
		c.mesh.set(old.name, n.name, fate{held: true})
	}
	if guest != nil {
		c.mesh.isolate(guest.name, names(rest)...)
	}
	var next *node
	eventually(c.t, patience, "another node leads", func() bool {
		for _, n := range rest {
			if n.info()["state"] == "leader" {
				next = n
			}
		}
		return next != nil
	})
	v.addr = next.addr
	if !await(patience, func() bool { _, o, _ := v.do(callTimeout, on.command(take, 5)); return o == decided }) {
		c.t.Fatalf("the new leader decides nothing in %v", patience)
	}
	if state := old.info()["state"]; state != "leader" {
		c.t.Logf("the old leader is a %s already", state)
		c.repair()
		c.ready()
		return nil, false
	}
	if _, err := w.send(10*time.Second, on.command(peek, 1)); err != nil {
		c.t.Fatal(err)
	}
	during(electionTimeout / 20) // it is asked whether it leads
	for _, n := range rest {
		c.mesh.set(n.name, old.name, fate{held: true, requests: true})
	}
	replies, o, err := w.receive(1)
	c.repair()
	c.ready()
	if o != decided {
		c.t.Logf("the old leader says: %v", err)
		return nil, true
	}
	five, _ := replies[0].([]any)
	if len(five) != 5 || five[2].(int64) > 94 {
		return []string{fmt.Sprintf("node %s answered %v from before it was deposed; at least 6 of 100 units were taken when it was asked", old.name, replies[0])}, true
	}
	return nil, true
}
