package table

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
)

var common = limit.Params{A: 100, B: 10, C: second}

func bucketAt(fullAt int64) *limit.Value {
	return &limit.Value{Kind: limit.KindBucket, Limit: common, W: [3]int64{fullAt, 1}}
}

// countAllocs is whether allocations can be counted in this build.
var countAllocs bool

// allocs is how many allocations f makes, on average of n calls.
func allocs(n int, f func()) float64 {
	if a := testing.AllocsPerRun(n, f); countAllocs {
		return a
	}
	return 0
}

// store is Get and Put of one key.
func store(t *Table, key []byte, v *limit.Value) error {
	var was limit.Value
	h := t.hash(key)
	return t.Put(h, key, t.Get(h, key, &was), v)
}

func drainAll(t *Table) {
	t.Cut()
	for t.DrainSome(1000, func([]byte, *limit.Value) {}, func(_, _ []byte) {}, func([]byte) {}) {
	}
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
		n := allocs(5000, func() {
			if tab.Put(h, key, NoRef, v) != nil {
				t.Fatal("refused")
			}
			tab.Delete(h, tab.Get(h, key, v), true)
		})
		if n > 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
		if what == "beside another" && tab.Dirty() > 2 || tab.Dirty() > pruneSlack+4 {
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
	if n := allocs(5000, update); n > 0 {
		t.Errorf("%v allocations for an update", n)
	}
	key := []byte("absent")
	h := tab.hash(key)
	if n := allocs(1000, func() { tab.Get(h, key, &v) }); n > 0 {
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
	if n := allocs(1000, func() { appendLog(1) }); n > 0 {
		t.Errorf("%v allocations for a log that does not grow", n)
	}
	if n := allocs(1000, func() { tab.CountLive(0); tab.SweepPage(1) }); n > 0 {
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
	for i := range 3 * limitChunk {
		v.Limit.A++
		if err := store(tab, fmt.Appendf(nil, "key-%d", i), v); err != nil {
			t.Error("a record that is there is refused:", err)
		}
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

func TestBudgetIsExact(t *testing.T) {
	b := NewBudget(100)
	if !b.Reserve(100) || b.Reserve(1) || b.Used() != 100 {
		t.Errorf("%d of 100 bytes are reserved", b.Used())
	}
	b.Force(5)
	b.Release(6)
	if !b.Reserve(1) || b.Reserve(1) {
		t.Error("what is released cannot be reserved again")
	}
}

func TestEmptiedPagesMakeRoomAtTheBound(t *testing.T) {
	b := NewBudget(0)
	tab := New(Options{Budget: b, Hash: goodHash})
	large, v := make([]byte, 2000), bucketAt(second)
	if err := store(tab, large, v); err != nil {
		t.Fatal(err)
	}
	tab.Delete(tab.hash(large), tab.Get(tab.hash(large), large, v), true)
	b.SetMax(b.Used())
	if err := store(tab, []byte("small"), bucketAt(second)); err != nil {
		t.Error("an empty page is held back:", err)
	}
	mustCheck(t, tab)
}

// What was stored is not refused at a restart under a lower bound.
func TestLoadPassesTheBound(t *testing.T) {
	tab := New(Options{Budget: NewBudget(1), Track: true, Hash: goodHash})
	for i := range 3000 {
		key := fmt.Appendf(nil, "%d", i)
		if err := tab.Load(tab.hash(key), key, bucketAt(second)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tab.Load(0, nil, bucketAt(second)); !errors.Is(err, ErrKey) {
		t.Error("an empty key is loaded:", err)
	}
	if tab.acct.force || tab.loading || tab.Dirty() != 0 {
		t.Error("the table is still loading, or counts what it loaded as changed")
	}
	mustCheck(t, tab)
}

// With nothing due a sweep must not look at every page.
func TestSweepRemembersWhenTheNextIsDue(t *testing.T) {
	tab := New(Options{Hash: goodHash})
	for i := range 1000 {
		if err := store(tab, fmt.Appendf(nil, "%d", i), bucketAt(int64(i+10)*second)); err != nil {
			t.Fatal(err)
		}
	}
	if err := store(tab, []byte("0"), bucketAt(5000*second)); err != nil {
		t.Fatal(err)
	}
	for tab.due(10*second+1) != 0 {
		if n := tab.SweepPage(10*second + 1); n != 0 {
			t.Fatal("swept what is not due")
		}
	}
	if tab.slab.least != 11*second+1 {
		t.Errorf("the next record is due at %d, want %d", tab.slab.least, 11*second+1)
	}
}

// A cursor comes from a client: it may be anything.
func TestScanFromAnyCursor(t *testing.T) {
	tab := New(Options{Hash: goodHash})
	for i := range 500 {
		if err := store(tab, bytes.Repeat([]byte{byte(i)}, i%90+1), bucketAt(second)); err != nil {
			t.Fatal(err)
		}
	}
	var v limit.Value
	end := uint64(len(tab.slab.pages)+1) << refBits
	for c := uint64(0); c < end; c++ {
		next, done := tab.Scan(c, 1, func(key []byte, _ *limit.Value) {
			if tab.Get(tab.hash(key), key, &v) == NoRef {
				t.Fatalf("cursor %d shows %q", c, key)
			}
		})
		if !done && next <= c {
			t.Fatalf("cursor %d leads to %d", c, next)
		}
	}
	if _, done := tab.Scan(1<<63, 10, nil); !done {
		t.Error("a scan goes on past the end")
	}
}

// What a drain shows of a record that was written since is all as it was, its
// limit too.
func TestDrainShowsTheOldLimit(t *testing.T) {
	tab := New(Options{Track: true, Hash: goodHash})
	key, was := []byte("k"), bucketAt(5)
	if err := store(tab, key, was); err != nil {
		t.Fatal(err)
	}
	tab.Cut()
	is := bucketAt(6)
	is.Limit = limit.Params{A: 7, B: 7, C: 7}
	if err := store(tab, key, is); err != nil {
		t.Fatal(err)
	}
	drained := 0
	tab.DrainSome(9, nil, func(_, value []byte) {
		drained++
		if !bytes.Equal(value, limit.AppendValue(nil, was)) {
			t.Errorf("drained %x, was %v", value, *was)
		}
	}, nil)
	if drained != 1 {
		t.Errorf("%d records drained", drained)
	}
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
	show := func(_, value []byte) {
		v, rest, err := limit.DecodeValue(value)
		if drained += v.Log.Len(); err != nil || len(rest) > 0 {
			t.Error(err, len(rest))
		}
	}
	for tab.DrainSome(1, nil, show, nil) {
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
	for tab.DrainSome(10, func([]byte, *limit.Value) { n++ }, nil, nil) {
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
		for tab.DrainSome(1, func(k []byte, v *limit.Value) { file[string(k)] = v.W[0] }, nil, func(k []byte) { delete(file, string(k)) }) {
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
