package table

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
)

var common = limit.Params{A: 100, B: 10, C: second}

func bucketAt(fullAt int64) *limit.Value {
	return &limit.Value{Kind: limit.KindBucket, Limit: common, W: [3]int64{fullAt, 1}}
}

// store is Get and Put of one key.
func store(t *Table, key []byte, v *limit.Value) error {
	var was limit.Value
	h := t.hash(key)
	return t.Put(h, key, t.Get(h, key, &was), v)
}

func drainAll(t *Table) {
	t.Cut()
	for t.DrainSome(1000, func([]byte, *limit.Value) {}, func([]byte) {}) {
	}
}

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
		if made > 1.10*used+own+1<<20 {
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

// One key that comes and goes must neither make garbage nor fill the lists.
func TestOneKeyComingAndGoing(t *testing.T) {
	b := NewBudget(0)
	tab := New(Options{Budget: b, Track: true, Hash: goodHash})
	other, key, v := []byte("other"), []byte("key"), bucketAt(second)
	h := tab.hash(key)
	if err := store(tab, other, v); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"beside another", "alone"} {
		allocs := testing.AllocsPerRun(5000, func() {
			if tab.Put(h, key, NoRef, v) != nil {
				t.Fatal("refused")
			}
			tab.Delete(h, tab.Get(h, key, v), true)
		})
		if allocs > 0 {
			t.Errorf("%s: %v allocations", what, allocs)
		}
		if what == "beside another" && tab.Dirty() > 2 {
			t.Errorf("%d changes listed for two keys", tab.Dirty())
		}
		var o limit.Value
		if ref := tab.Get(tab.hash(other), other, &o); ref != NoRef {
			tab.Delete(tab.hash(other), ref, true)
		}
		drainAll(tab)
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	tab := New(Options{Budget: NewBudget(0), Track: true, Hash: goodHash})
	keys := make([][]byte, 2000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key-%d", i)
		if err := store(tab, keys[i], bucketAt(second)); err != nil {
			t.Fatal(err)
		}
	}
	drainAll(tab)
	var v limit.Value
	i := 0
	update := func() {
		key := keys[i%len(keys)]
		i++
		h := tab.hash(key)
		ref := tab.Get(h, key, &v)
		v.W[0]++
		v.Limit.A = 100 + int64(i&1)
		if tab.Put(h, key, ref, &v) != nil {
			t.Fatal("refused")
		}
	}
	for range 2 * len(keys) {
		update() // the first writes are listed
	}
	if n := testing.AllocsPerRun(5000, update); n > 0 {
		t.Errorf("%v allocations for an update", n)
	}
	key := []byte("absent")
	h := tab.hash(key)
	if n := testing.AllocsPerRun(1000, func() { tab.Get(h, key, &v) }); n > 0 {
		t.Errorf("%v allocations to find nothing", n)
	}

	key = []byte("log")
	h = tab.hash(key)
	p := limit.Params{A: 100, C: second}
	var at int64
	appendLog := func(drop int) {
		at++
		ref := tab.Get(h, key, &v)
		if tab.PutLog(h, key, ref, p, limit.LogChange{Drop: drop, At: at, Cost: 1}) != nil {
			t.Fatal("refused")
		}
	}
	for range 10 {
		appendLog(0)
	}
	if n := testing.AllocsPerRun(1000, func() { appendLog(1) }); n > 0 {
		t.Errorf("%v allocations for a log that does not grow", n)
	}
	if n := testing.AllocsPerRun(1000, func() { tab.CountLive(0); tab.SweepPage(1) }); n > 0 {
		t.Errorf("%v allocations to count", n)
	}
}

func TestKeysOfEveryLengthAndKind(t *testing.T) {
	tab := New(Options{Hash: goodHash})
	key := bytes.Repeat([]byte{0xFF}, MaxKey+1)
	for kind := limit.KindBucket; kind <= limit.KindLog; kind++ {
		for n := 0; n <= MaxKey+1; n++ {
			v := limit.Value{Kind: kind, Limit: common, W: [3]int64{1, 2}}
			switch kind {
			case limit.KindSliding:
				v.W[2] = 3
			case limit.KindLog:
				v.W, v.Log = [3]int64{}, new(limit.Log)
			}
			err := store(tab, key[:n], &v)
			if n < 1 || n > MaxKey {
				if !errors.Is(err, ErrKey) {
					t.Fatalf("a key of %d bytes: %v", n, err)
				}
				continue
			}
			var got limit.Value
			if tab.Get(tab.hash(key[:n]), key[:n], &got); err != nil || got != v {
				t.Fatalf("a key of %d bytes: %v %v, want %v", n, err, got, v)
			}
		}
		mustCheck(t, tab)
	}
	if tab.Len() != MaxKey {
		t.Errorf("%d records", tab.Len())
	}
}

func TestSlotSizes(t *testing.T) {
	if n := len(slotSizes); n > maxClasses || slotSizes[n-1] < largestSlot {
		t.Fatalf("%d classes up to %d", n, slotSizes[n-1])
	}
	for size := 25; size <= largestSlot; size++ {
		slot := slotSizes[classFor(size)]
		if slot < size || slot%slotUnit != 0 || slot > max(32, size*135/100+slotUnit) {
			t.Errorf("a record of %d bytes has a slot of %d", size, slot)
		}
		if waste := pageBytes % slot; waste > pageBytes/50 {
			t.Errorf("slots of %d leave %d bytes of a page", slot, waste)
		}
	}
	if s := slotSizes[classFor(recordSize(limit.KindBucket, 14))]; s != 40 {
		t.Errorf("a bucket under 14 bytes has a slot of %d", s)
	}
}

func TestBudgetBound(t *testing.T) {
	b := NewBudget(64 << 10)
	tab := New(Options{Budget: b, Hash: goodHash})
	var err error
	n := 0
	for ; err == nil; n++ {
		err = store(tab, fmt.Appendf(nil, "key-%d", n), bucketAt(second+int64(n)))
	}
	n--
	if !errors.Is(err, ErrFull) || b.Used() > b.Max() || n < 800 {
		t.Fatalf("%v after %d records, %d bytes", err, n, b.Used())
	}
	mustCheck(t, tab)
	if b.SetMax(1); b.Reserve(1) || !b.Reserve(0) {
		t.Error("the budget is passed, or refuses nothing at all")
	}
	// What is there is decided on, also under another limit.
	v := bucketAt(second)
	v.Limit.A++
	if err := store(tab, []byte("key-0"), v); err != nil {
		t.Error("a record that is there is refused:", err)
	}
	// New ones are taken while there are free slots, and no longer.
	err = nil
	for i := 0; err == nil && i < 1000; i++ {
		before, n := b.Used(), tab.Len()
		err = store(tab, fmt.Appendf(nil, "new-%d", i), v)
		if b.Used() != before || err != nil && tab.Len() != n {
			t.Fatal("a refused record left something behind:", err, b.Used()-before)
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Error("the bound does not hold:", err)
	}
	mustCheck(t, tab)

	// Once time allows, expired records make room.
	b.SetMax(64 << 10)
	tab.SetNow(2 * second)
	for i := range 5000 {
		if err := store(tab, fmt.Appendf(nil, "more-%d", i), bucketAt(second)); err != nil {
			t.Fatal("expired records were not freed:", err)
		}
	}
	mustCheck(t, tab)
}

// Each step of growth is refused once, and then granted.
func TestRefusedGrowthChangesNothing(t *testing.T) {
	b := NewBudget(0)
	tab := New(Options{Budget: b, Hash: goodHash})
	refused := 0
	for i := range 6000 {
		key := fmt.Appendf(nil, "key-%d", i)
		v := bucketAt(second)
		v.Limit.A = int64(i%500 + 1)
		for room := int64(1); ; room += 150 {
			b.SetMax(b.Used() + room)
			err := store(tab, key, v)
			if err == nil {
				break
			}
			if refused++; refused%7 == 0 {
				mustCheck(t, tab)
			}
			if tab.Len() != i {
				t.Fatal("a refused record is there")
			}
		}
	}
	mustCheck(t, tab)
	var v limit.Value
	for i := range 6000 {
		key := fmt.Appendf(nil, "key-%d", i)
		if tab.Get(tab.hash(key), key, &v); v.Limit.A != int64(i%500+1) {
			t.Fatalf("record %d is lost", i)
		}
	}
	if refused < 100 {
		t.Errorf("only %d refusals", refused)
	}
}

func TestLogGrowthIsBounded(t *testing.T) {
	b := NewBudget(0)
	tab := New(Options{Budget: b, Track: true, Hash: goodHash})
	key, p := []byte("log"), limit.Params{A: 1_000_000, C: second}
	h := tab.hash(key)
	var v limit.Value
	add := func(at int64) error {
		return tab.PutLog(h, key, tab.Get(h, key, &v), p, limit.LogChange{At: at * 1000, Cost: 2})
	}
	for at := range int64(20_000) {
		if err := add(at); err != nil {
			t.Fatal(err)
		}
		b.SetMax(b.Used() + 1_000_000)
	}
	b.SetMax(1)
	var err error
	n := int64(20_000)
	for ; err == nil; n++ {
		err = add(n)
	}
	n--
	tab.Get(h, key, &v)
	if !errors.Is(err, ErrFull) || v.Log.Len() != int(n) || v.Log.Total() != 2*n || n > 40_000 {
		t.Fatalf("%v at %d entries, should be %d", err, v.Log.Len(), n)
	}
	mustCheck(t, tab)
	// Older entries may go at the bound: that takes no memory. The drain still
	// shows them, they were there at the cut.
	tab.Cut()
	if err := tab.PutLog(h, key, tab.Get(h, key, &v), p, limit.LogChange{Drop: int(n) - 1}); err != nil {
		t.Fatal(err)
	}
	mustCheck(t, tab)
	drained := 0
	for tab.DrainSome(1, func(_ []byte, v *limit.Value) { drained += v.Log.Len() }, func([]byte) {}) {
	}
	if drained != int(n) {
		t.Errorf("%d entries drained, want %d", drained, n)
	}
	if tab.dirt.buf != nil {
		t.Errorf("%d bytes kept", cap(tab.dirt.buf))
	}
}

func TestCutNeedsTheLastDrained(t *testing.T) {
	tab := New(Options{Track: true, Hash: goodHash})
	if err := store(tab, []byte("k"), bucketAt(1)); err != nil {
		t.Fatal(err)
	}
	tab.Cut()
	defer func() {
		if recover() == nil {
			t.Error("a second Cut loses what is pending")
		}
	}()
	tab.Cut()
}

// A closed table can still be drained: a flush must not take from a cut what
// was there at its instant.
func TestDrainAfterClose(t *testing.T) {
	b := NewBudget(0)
	tab := New(Options{Budget: b, Track: true, Hash: goodHash})
	for i := range 1000 {
		if err := store(tab, fmt.Appendf(nil, "%d", i), bucketAt(1)); err != nil {
			t.Fatal(err)
		}
	}
	tab.Cut()
	tab.Close()
	n := 0
	for tab.DrainSome(10, func([]byte, *limit.Value) { n++ }, func([]byte) {}) {
	}
	if n != 1000 || b.Used() != 0 {
		t.Errorf("%d records drained, %d bytes reserved", n, b.Used())
	}
}

// A record that expires early because units were given back must not come back
// as the older, longer-lived value that a drain showed before.
func TestSweepOfWhatWasDrainedOlder(t *testing.T) {
	tab := New(Options{Track: true, Hash: goodHash})
	key := []byte("k")
	file := map[string]int64{}
	drain := func() {
		tab.Cut()
		for tab.DrainSome(1, func(k []byte, v *limit.Value) { file[string(k)] = v.W[0] }, func(k []byte) { delete(file, string(k)) }) {
		}
	}
	put := func(fullAt int64) {
		if err := store(tab, key, bucketAt(fullAt)); err != nil {
			t.Fatal(err)
		}
	}
	put(1000)
	drain()
	put(500)
	if tab.SweepPage(600) != 1 {
		t.Fatal("not swept")
	}
	drain()
	if len(file) != 0 {
		t.Errorf("the older value is still there: %v", file)
	}
	put(1000)
	drain()
	tab.SweepPage(2000)
	if tab.Dirty() != 0 {
		t.Error("a tombstone for what expires outside as well")
	}
}
