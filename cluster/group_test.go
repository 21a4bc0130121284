package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/engine/store"
)

func TestASingleVoterDecidesAtOnceAndKeepsIt(t *testing.T) {
	n := newNode(t, "solo", nil)
	n.start()
	begun := time.Now()
	for i := range 10 {
		got, o := do(n.Group, "take k 1", "peek k")
		if want := fmt.Sprintf("1 %d;%d;", 999_999-i, 999_999-i); o != store.Decided || got != want {
			t.Fatalf("%q (%v), want %q", got, o, want)
		}
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("the first decisions took %v", took)
	}
	n.stop()
	for round := range 3 {
		n.start()
		if got, o := do(n.Group, "peek k"); o != store.Decided || got != "999990;" {
			t.Fatalf("start %d: %q (%v)", round, got, o)
		}
		if round == 0 {
			if err := n.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		n.stop()
	}
	if got, o := do(n.Group, "peek k"); o != store.NotApplied {
		t.Errorf("after the stop: %q (%v)", got, o)
	}
}

func TestAPanicEndsOneBatchOnly(t *testing.T) {
	n := newNode(t, "solo", nil)
	n.start()
	defer n.stop()
	eventually(t, "a leader", n.Serving)
	outcomes := make(chan string, 3)
	for _, lines := range [][]string{{"take k 1"}, {"take k 5", "panic"}, {"take k 2"}} {
		b := batchOf(lines...)
		b.Done = func(b *store.Batch) { outcomes <- fmt.Sprint(b.Outcome, string(b.Out)) }
		n.Run(b)
	}
	failed := 0
	for range 3 {
		if strings.HasPrefix(<-outcomes, fmt.Sprint(store.NotApplied)) {
			failed++
		}
	}
	if got, _ := do(n.Group, "peek k"); failed != 1 || got != "999997;" {
		t.Errorf("%d failed, %q are left", failed, got)
	}
}

func TestThreeNodesHoldOneSetOfLimits(t *testing.T) {
	nodes := newCluster(t, 3, nil)
	leaderOf(t, nodes)
	for i := range 30 {
		got, o := do(nodes[i%3].Group, "take k 1")
		if want := fmt.Sprintf("1 %d;", 999_999-i); o != store.Decided || got != want {
			t.Fatalf("%d: %q (%v), want %q", i, got, o, want)
		}
	}
	eventually(t, "the same state everywhere", func() bool {
		want, at := nodes[0].StateHash()
		for _, n := range nodes[1:] {
			if h, i := n.StateHash(); h != want || i != at {
				return false
			}
		}
		return want != ""
	})
	entries := leaderOf(t, nodes).Status().Entries
	for range 50 {
		if got, o := do(nodes[1].Group, "take k 1000000"); o != store.Decided || got != "0 999970;" {
			t.Fatalf("%q (%v)", got, o)
		}
	}
	if n := leaderOf(t, nodes).Status().Entries; n > entries+2 {
		t.Errorf("refusals have written %d entries", n-entries)
	}
}

func TestALostLeaderLosesNothing(t *testing.T) {
	nodes := newCluster(t, 3, nil)
	sum := 0
	for round := range 3 {
		l := leaderOf(t, nodes)
		for range 5 {
			if _, o := do(l.Group, "take k 1"); o == store.Decided {
				sum++
			}
		}
		if round == 2 {
			break
		}
		l.stop()
		var rest []*node
		for _, n := range nodes {
			if n != l {
				rest = append(rest, n)
			}
		}
		leaderOf(t, rest)
		want := fmt.Sprintf("%d;", 1_000_000-sum)
		if got, o := do(rest[0].Group, "peek k"); o != store.Decided || got != want {
			t.Fatalf("after leader %d: %q (%v), want %q", round, got, o, want)
		}
		l.start()
		eventually(t, "the node is back", func() bool { return l.isReady() && l.Serving() })
	}
}
