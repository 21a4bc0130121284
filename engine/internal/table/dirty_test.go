package table

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
)

func remove(t *Table, key []byte) {
	var v limit.Value
	if ref := t.Get(t.hash(key), key, &v); ref != NoRef {
		t.Delete(t.hash(key), ref, true)
	}
}

// Keys that come and go, each alone in its page, whose flags go with it, must
// not be listed each time: not one key, nor two that take turns at the page
// that is kept for the next.
func TestListOfChangesFollowsTheRecords(t *testing.T) {
	for name, keys := range map[string][][]byte{
		"one key":             {[]byte("k")},
		"two sizes in turn":   {[]byte("k"), bytes.Repeat([]byte("k"), 50)},
		"small and large":     {[]byte("k"), bytes.Repeat([]byte("l"), 1000), bytes.Repeat([]byte("m"), 4000)},
		"beside one that is":  {[]byte("k"), bytes.Repeat([]byte("stays"), 9)},
		"after many, at once": nil,
	} {
		b := NewBudget(0)
		tab := New(Options{Budget: b, Track: true, Hash: goodHash})
		if keys == nil {
			for i := range 20_000 {
				keys = append(keys, fmt.Append(nil, i))
				if err := store(tab, keys[i], bucketAt(second)); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range 20_000 {
			if err := store(tab, keys[i%len(keys)], bucketAt(second)); err != nil {
				t.Fatal(err)
			}
			if name == "beside one that is" && i%2 == 1 {
				continue
			}
			remove(tab, keys[i%len(keys)])
			if most := 2*tab.Len() + 2*pruneSlack; len(keys) < 20_000 && tab.Dirty() > most {
				t.Fatalf("%s: %d changes listed for %d records", name, tab.Dirty(), tab.Len())
			}
			if i%500 == 0 {
				mustCheck(t, tab)
			}
		}
		if most := 2*tab.Len() + 3*pruneSlack; tab.Dirty() > most {
			t.Errorf("%s: %d changes listed at the end, for %d records", name, tab.Dirty(), tab.Len())
		}
		mustCheck(t, tab)
	}
}

// What is pruned must not be missing from a drain, whenever the cut is made.
func TestPrunedListLosesNothing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	tab := New(Options{Track: true, Hash: goodHash})
	key := func() []byte {
		i := rnd.IntN(300)
		return append(fmt.Append(nil, i, ":"), make([]byte, i%5*300)...)
	}
	live, file := map[string]int64{}, map[string]int64{}
	pruned, cutInRound := 0, 0
	for cut := range 200 {
		// Mostly writes and mostly deletions in turn, so that the list is long
		// for what is there.
		steps := rnd.IntN(3000)
		for i := range steps {
			if tab.dirt.prune > 0 {
				pruned++
			}
			k := key()
			if few := 1 + i/400%2*8; rnd.IntN(10) < few {
				remove(tab, k)
				delete(live, string(k))
				continue
			}
			at := rnd.Int64N(second)
			if err := store(tab, k, bucketAt(at)); err != nil {
				t.Fatal(err)
			}
			live[string(k)] = at
		}
		mustCheck(t, tab)
		if tab.dirt.prune > 0 {
			cutInRound++
		}
		tab.Cut()
		mustCheck(t, tab)
		for tab.DrainSome(50, func(k []byte, v *limit.Value) { file[string(k)] = v.W[0] }, nil, func(k []byte) { delete(file, string(k)) }) {
		}
		if len(file) != len(live) {
			t.Fatalf("cut %d: %d records drained, there are %d", cut, len(file), len(live))
		}
		for k, at := range live {
			if file[k] != at {
				t.Fatalf("cut %d: %.9q is drained as %d, is %d", cut, k, file[k], at)
			}
		}
	}
	if pruned < 1000 || cutInRound < 5 {
		t.Errorf("%d calls within a round, %d cuts: this proves little", pruned, cutInRound)
	}
}

// A saved value is passed on as it is: decoding a log would take as much memory
// as the log, and long, under the caller's lock.
func TestDrainOfASavedLogDoesNotDecodeIt(t *testing.T) {
	tab := New(Options{Track: true, Hash: goodHash})
	key, p := []byte("log"), limit.Params{A: 1_000_000, C: second}
	h := tab.hash(key)
	var v limit.Value
	for at := range int64(5000) {
		if err := tab.PutLog(h, key, tab.Get(h, key, &v), p, limit.LogChange{At: at * 1000, Cost: 1}); err != nil {
			t.Fatal(err)
		}
	}
	at := int64(5_000_000)
	var want, got []byte
	show := func(_, value []byte) { got = append(got[:0], value...) }
	// AllocsPerRun would call it with nothing left to drain: the bytes of many
	// drains are compared instead with those of one decoded log.
	var before, after runtime.MemStats
	made := uint64(0)
	for range 20 {
		tab.Get(h, key, &v)
		want = limit.AppendValue(want[:0], &v)
		tab.Cut()
		at += 1000
		if err := tab.PutLog(h, key, tab.Get(h, key, &v), p, limit.LogChange{Drop: 1, At: at, Cost: 1}); err != nil {
			t.Fatal(err)
		}
		got = slices.Grow(got[:0], len(want))
		runtime.ReadMemStats(&before)
		tab.DrainSome(1, nil, show, nil)
		runtime.ReadMemStats(&after)
		made += after.TotalAlloc - before.TotalAlloc
		if !bytes.Equal(got, want) {
			t.Fatalf("drained %d bytes that differ from the %d of the value", len(got), len(want))
		}
		for tab.DrainSome(1, nil, nil, nil) {
		}
	}
	if made >= 5000*16 {
		t.Errorf("%d bytes allocated by drains of 20 saved logs", made)
	}
}

// A record that moves leaves a slot behind, and its ref in the list.
func TestListOfChangesFollowsMoves(t *testing.T) {
	tab := New(Options{Track: true, Hash: goodHash})
	v := limit.Value{Kind: limit.KindSliding, Limit: common, W: [3]int64{1, 2, 3}}
	for i := range 4000 {
		if err := store(tab, fmt.Append(nil, "0123456789", i%1000), bucketAt(1)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		if err := store(tab, fmt.Append(nil, "0123456789", i), &v); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 700 {
		remove(tab, fmt.Append(nil, "0123456789", i))
	}
	if most := 2*tab.Len() + 2*pruneSlack; tab.Dirty() > most {
		t.Errorf("%d changes listed for %d records", tab.Dirty(), tab.Len())
	}
	mustCheck(t, tab)
}

// A drain goes on from slot to slot within a page. When the page was given back
// meanwhile and holds slots of another size, what lies where the drain stood is
// the middle of a record, and not to be taken for one.
func TestDrainOfAPageThatTookAnotherSize(t *testing.T) {
	tab := New(Options{Track: true, Hash: goodHash})
	short, long := map[string]bool{}, map[string]bool{}
	for i := range byte(20) {
		short[string([]byte{'k', i})] = true
		long[string(append(bytes.Repeat([]byte{0xff}, 60), i))] = true
	}
	v := bucketAt(0x7f7f7f7f7f7f7f7f)
	for key := range short {
		if err := store(tab, []byte(key), v); err != nil {
			t.Fatal(err)
		}
	}
	tab.Cut()
	drain := func(n int, want map[string]bool) (more bool) {
		show := func(key []byte) {
			if !want[string(key)] {
				t.Fatalf("the drain shows %q", key)
			}
			delete(want, string(key))
		}
		return tab.DrainSome(n, func(k []byte, _ *limit.Value) { show(k) }, func(k, _ []byte) { show(k) }, func([]byte) {})
	}
	left := map[string]bool{}
	for key := range short {
		left[key] = true
	}
	drain(3, left)
	for key := range short {
		remove(tab, []byte(key))
	}
	for key := range long {
		if err := store(tab, []byte(key), v); err != nil {
			t.Fatal(err)
		}
	}
	for drain(1, left) {
	}
	if len(left) > 0 {
		t.Errorf("%d keys of the cut were not shown", len(left))
	}
	mustCheck(t, tab)
	tab.Cut()
	for drain(1, long) {
	}
	if len(long) > 0 {
		t.Errorf("%d keys of the next cut were not shown", len(long))
	}
}
