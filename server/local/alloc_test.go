//go:build !race

// The race detector makes sync.Pool forget at random, so allocations are
// counted without it.

package local_test

import (
	"testing"

	"github.com/stint-dev/stint/engine/store"
)

// TestCommandsDoNotAllocate pins what a command costs from the batch to the
// reply.
func TestCommandsDoNotAllocate(t *testing.T) {
	for _, c := range []struct {
		words  []string
		allocs float64
	}{
		{[]string{"THROTTLE", "k", "10", "100/m"}, 0},
		{[]string{"throttle", "k", "10", "100/m", "1", "force"}, 0},
		{[]string{"CL.THROTTLE", "k", "9", "100", "60", "1"}, 0},
		{[]string{"LEAK", "leak", "10", "5", "1", "PEEK"}, 0},
		{[]string{"WINDOW", "f", "10", "1m", "1", "FIXED"}, 0},
		{[]string{"WINDOW", "s", "10", "1m"}, 0},
		{[]string{"WINDOW", "l", "10", "1m", "1", "LOG"}, 0},
		{[]string{"REFUND", "k", "1"}, 0},
		{[]string{"TTL", "k"}, 0},
		{[]string{"TYPE", "k"}, 0},
		{[]string{"EXISTS", "k", "s", "none"}, 0},
		{[]string{"DEL", "none"}, 0},
	} {
		_, s := newStore(t)
		s.FreezeClock(1_900_000_000_000_000_000)
		b := store.Batch{Requests: []store.Request{request(t, c.words...)}}
		run := func() {
			b.Out = b.Out[:0]
			s.Run(&b)
		}
		run()
		if n := testing.AllocsPerRun(300, run); n != c.allocs {
			t.Errorf("%q allocates %v times, want %v", c.words, n, c.allocs)
		}
	}
}
