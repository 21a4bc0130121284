package persist

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
)

// fill decides once on each of n keys of 14 bytes.
func fill(t testing.TB, ks *engine.Keyspace, n int) {
	t.Helper()
	tx := ks.Begin(t0)
	defer tx.End()
	l := limit.BucketLimit{Capacity: 10, Rate: rate(1, 3_600_000_000_000)}
	key := []byte("key:0123456789")
	for i := range n {
		binary.BigEndian.PutUint64(key[6:], uint64(i))
		if r, err := tx.Throttle(key, l, 1, limit.Consume); r.Allowed != 1 || err != nil {
			t.Fatal(r, err)
		}
	}
}

// What a large flush and a compaction leave on the heap does not wait for the
// collector, which would come when the heap has doubled.
func TestALargeFlushLeavesNoGarbage(t *testing.T) {
	const keys = 400_000
	f, ks := begin(t, t.TempDir(), Options{tick: still().tick, compact: 1 << 20})
	fill(t, ks, keys)
	var m runtime.MemStats
	for round := range 3 { // the second round's flush comes after a base was written
		if round == 1 {
			fill(t, ks, keys)
		}
		for range 4 {
			if err := f.Save(); err != nil {
				t.Fatal(err)
			}
		}
		for f.Info().Compacting {
			if err := f.Save(); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Save(); err != nil { // begins after the memory was given back
			t.Fatal(err)
		}
		runtime.ReadMemStats(&m)
		held := ks.Stats(t0).Memory
		if extra := int64(m.HeapSys-m.HeapReleased) - held; extra > 12<<20 {
			t.Errorf("round %d: %d bytes of heap besides the tables' %d", round, extra, held)
		}
	}
	if f.Info().Compactions == 0 {
		t.Error("no base was written")
	}
	if err := f.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestGarbageIsCollectedByHowMuchIsWritten(t *testing.T) {
	collections := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumGC
	}
	var g garbage
	most := g.most()
	if most < leastGarbage {
		t.Fatalf("a limit of %d bytes", most)
	}
	if g.add(most - 1); g.giveBack() {
		t.Error("memory was given back after little was written")
	}
	// The limit follows what is live, so more than it was before.
	before := collections()
	if g.add(most); collections() == before {
		t.Error("nothing was collected after much was written")
	}
	if !g.giveBack() {
		t.Error("no memory was given back after much was written")
	}
	if g.giveBack() {
		t.Error("memory was given back twice")
	}
}
