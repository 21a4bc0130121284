//go:build !race

// The race detector makes sync.Pool forget at random, so allocations can be
// counted only without it.

package session

import "testing"

func TestPipelineAllocatesNothing(t *testing.T) {
	s, f, _ := newSession("")
	f.quiet = true
	out := make([]byte, 0, 4096)
	exists, ping := words("EXISTS k"), words("PING")
	n := testing.AllocsPerRun(1000, func() {
		for range 16 {
			s.Command(exists, true)
		}
		s.Command(ping, true)
		s.Command(exists, true)
		out, _, _ = s.Flush(out[:0], false)
	})
	if n != 0 {
		t.Errorf("%v allocations for a pipeline, want 0", n)
	}
}
