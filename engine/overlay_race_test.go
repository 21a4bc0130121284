package engine

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
)

// TestSweepsAndViewsBesideTheOverlay fails, with the race detector, when an overlay
// or Apply touches what sweeps, views and reads touch without the lock; and, always,
// when they make the replica differ.
func TestSweepsAndViewsBesideTheOverlay(t *testing.T) {
	r := newReplicated(t)
	stop := make(chan struct{})
	var beside sync.WaitGroup
	defer beside.Wait()
	stopped := sync.OnceFunc(func() { close(stop) })
	defer stopped()
	for _, f := range []func(){
		func() { r.leader.Sweep(8) },
		func() {
			if f, err := r.leader.Freeze(); err == nil {
				f.Hash()
			}
		},
		func() {
			tx := r.leader.Begin(0)
			tx.Inspect([]byte("key 3"))
			tx.Inspect([]byte("log 3"))
			tx.End()
		},
	} {
		beside.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	l := limit.BucketLimit{Capacity: 3, Rate: rate(t, "3/s")}
	w := limit.WindowLimit{Limit: 50, Period: 1e9}
	now := int64(1e18)
	for i := range 400 {
		now += 10_000_000
		tx := r.o.Begin(now)
		for k := range 30 {
			_, err := tx.Throttle(fmt.Appendf(nil, "key %d", (i*7+k*k)%90), l, 1, limit.Consume)
			if err == nil && k%3 == 0 {
				_, err = tx.Window(limit.KindLog, fmt.Appendf(nil, "log %d", k%9), w, 1, limit.Consume)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		r.commit(t, now)
	}
	stopped()
	beside.Wait()
	if a, b := hashOfState(t, r.leader), hashOfState(t, r.replica); a != b {
		t.Errorf("the leader's state has hash %x, the replica's %x", a, b)
	}
}
