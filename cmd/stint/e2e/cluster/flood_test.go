//go:build unix

package cluster

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestAFloodOfRefusalsWritesNothing: the log grows by an entry a second at most,
// which only says what time it is.
func TestAFloodOfRefusalsWritesNothing(t *testing.T) {
	c := startCluster(t, mustProgram(t), nil)
	take := []string{"THROTTLE", "flood", "5", "1/h", "5"}
	if _, err := c.nodes[0].ask(take...); err != nil {
		t.Fatal(err)
	}
	last := func() uint64 { return number(c.mustLeader().info(), "last_log_index") }
	before, begun := last(), time.Now()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var refused atomic.Int64
	for id := range clients {
		wg.Go(func() {
			w := &wire{addr: c.nodes[id%3].addr}
			defer w.close()
			batch := slices.Repeat([][]string{take}, 32)
			for {
				select {
				case <-stop:
					return
				default:
				}
				replies, o, err := w.do(callTimeout, batch...)
				if o == unknown {
					t.Errorf("the outcome of a refusal is unknown: %v", err)
					return
				}
				if o == decided {
					refused.Add(int64(len(replies)))
				}
			}
		})
	}
	during(2 * time.Second)
	close(stop)
	wg.Wait()
	grown, seconds := last()-before, time.Since(begun).Seconds()
	t.Logf("%d refusals, %d entries in %.1f s", refused.Load(), grown, seconds)
	if float64(grown) > seconds+1 {
		t.Errorf("the log has grown by %d entries in %.1f s of refusals only", grown, seconds)
	}
	if refused.Load() < 1000 {
		t.Errorf("only %d requests were refused: this is no flood", refused.Load())
	}
}
