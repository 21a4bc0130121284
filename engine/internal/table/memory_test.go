package table

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
)

func TestMemoryPerRecordAtEveryCount(t *testing.T) {
	const tables = 1
	for _, track := range []bool{false, true} {
		b := NewBudget(0)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		ts := make([]*Table, tables)
		for i := range ts {
			ts[i] = New(Options{Budget: b, Track: track, Hash: goodHash})
		}
		worst, key := 0.0, make([]byte, 14)
		for n := 1; n <= 160_000; n++ {
			for i, tab := range ts {
				copy(key, fmt.Appendf(nil, "k:%012d", n*tables+i))
				if err := tab.Put(tab.hash(key), key, NoRef, bucketAt(second)); err != nil {
					t.Fatal(err)
				}
			}
			if n >= 15_000 && n%500 == 0 {
				if per := float64(b.Used()) / float64(n*tables); per > worst {
					worst = per
				}
				if track && n%5000 == 0 {
					for _, tab := range ts {
						drainAll(tab)
					}
				}
			}
		}
		t.Logf("track %v: at most %.1f bytes a record", track, worst)
		if bound := 56.0; !track && worst > bound || worst > bound+4 {
			t.Errorf("track %v: %.1f bytes a record, want at most %.0f and 4 for tracking", track, worst, bound)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		grown, made := float64(after.HeapAlloc-before.HeapAlloc), float64(after.TotalAlloc-before.TotalAlloc)
		used := float64(b.Used())
		if grown > 1.03*used+1<<20 {
			t.Errorf("track %v: %.0f bytes in use, %.0f reserved", track, grown, used)
		}
		// What was allocated and let go again stays resident until the
		// garbage collector comes round. Keys and values of this test count too.
		own := float64(160_000 * tables * 96)
		if countAllocs && made > 1.10*used+own+1<<20 {
			t.Errorf("track %v: %.0f bytes allocated for %.0f in use: growth makes garbage", track, made, used)
		}
		for _, tab := range ts {
			mustCheck(t, tab)
			tab.Close()
		}
		if b.Used() != 0 {
			t.Errorf("%d bytes reserved after Close", b.Used())
		}
	}
}

func TestAlmostEmptyTableIsSmall(t *testing.T) {
	b := NewBudget(0)
	tab := New(Options{Budget: b, Track: true, Hash: goodHash})
	if err := store(tab, []byte("k"), bucketAt(second)); err != nil {
		t.Fatal(err)
	}
	if b.Used() > 6<<10 {
		t.Errorf("a table of one record takes %d bytes", b.Used())
	}
}

func TestPageIsFilledToTheLastSlot(t *testing.T) {
	tab := New(Options{Hash: goodHash})
	for i := range 33 {
		if err := store(tab, fmt.Appendf(nil, "%08d", i), bucketAt(second)); err != nil {
			t.Fatal(err)
		}
		if n := tab.slab.count[0]; n != uint32(1+i/32) {
			t.Fatalf("%d records of 32 bytes lie in %d pages", i+1, n)
		}
	}
}

func TestMemoryComesBack(t *testing.T) {
	for _, how := range []string{"expired", "deleted"} {
		b := NewBudget(0)
		tab := New(Options{Budget: b, Hash: goodHash})
		rnd := rand.New(rand.NewPCG(1, 2))
		var keys [][]byte
		for i := range 30_000 {
			key := append(fmt.Appendf(nil, "%d:", i), make([]byte, rnd.IntN(200))...)
			v := bucketAt(second)
			v.Limit.A = int64(i + 1) // each a limit of its own
			if err := tab.Put(tab.hash(key), key, NoRef, v); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, key)
		}
		full := b.Used()
		switch how {
		case "expired":
			for tab.SweepPage(2*second) > 0 {
			}
		case "deleted":
			var v limit.Value
			for i, key := range keys {
				tab.Delete(tab.hash(key), tab.Get(tab.hash(key), key, &v), true)
				if i%3000 == 0 {
					mustCheck(t, tab)
				}
			}
		}
		mustCheck(t, tab)
		// The page table and the list of its free numbers stay.
		if b.Used() > full/50 || tab.Len() != 0 {
			t.Errorf("%s: %d bytes of %d for %d records", how, b.Used(), full, tab.Len())
		}
	}
}

func TestChurnDoesNotGrow(t *testing.T) {
	b := NewBudget(0)
	tab := New(Options{Budget: b, Track: true, Hash: goodHash})
	rnd := rand.New(rand.NewPCG(3, 4))
	peak := int64(0)
	for round := range 40 {
		now := int64(round) * second
		for i := range 3000 {
			key := append(fmt.Appendf(nil, "%d:%d:", round, i), make([]byte, rnd.IntN(300))...)
			v := bucketAt(now + second/2 + rnd.Int64N(second))
			v.Limit.A = now + int64(i) + 1
			if err := store(tab, key, v); err != nil {
				t.Fatal(err)
			}
		}
		for tab.SweepPage(now+second) > 0 {
		}
		drainAll(tab)
		if round < 10 {
			peak = max(peak, b.Used())
		} else if b.Used() > peak*11/10 {
			t.Fatalf("round %d: %d bytes, were %d", round, b.Used(), peak)
		}
	}
	mustCheck(t, tab)
}
