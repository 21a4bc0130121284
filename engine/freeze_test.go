package engine

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-dev/stint/engine/limit"
)

// freeze opens a view or ends the test.
func freeze(t testing.TB, ks *Keyspace) *Frozen {
	t.Helper()
	f, err := ks.Freeze()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// shown is what a view has shown in chunks and shows until its end, by database
// and key.
func shown(t testing.TB, f *Frozen, chunks ...[]byte) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, chunk := range chunks {
		collect(t, chunk, m)
	}
	for more := true; more; {
		var chunk []byte
		chunk, more = f.Append(nil, 100)
		collect(t, chunk, m)
	}
	if f.Keys() != len(m) {
		t.Fatalf("the view shows %d keys and says %d", len(m), f.Keys())
	}
	return m
}

// everyKind decides on a key of each kind in two databases.
func everyKind(t testing.TB, ks *Keyspace, now, cost int64) {
	t.Helper()
	for _, db := range []uint8{0, 9} {
		for _, c := range []string{
			"THROTTLE bucket 100 1/m", "LEAK leaky 100 1/m", "WINDOW log 100 1h %d LOG",
			"WINDOW fixed 100 1h %d FIXED", "WINDOW sliding 100 1h %d SLIDING", "THROTTLE " + strings.Repeat("long", 500) + " 200 7/h",
		} {
			if strings.Contains(c, "%d") {
				c = fmt.Sprintf(c, cost)
			} else {
				c += fmt.Sprint(" ", cost)
			}
			tx := ks.Begin(now)
			tx.Select(db)
			command(t, tx, strings.Fields(c))
		}
	}
}

// TestTheHashIsTheSameEverywhere fails when another machine, another process or a
// later version would hash the same state to another number. Nodes of two versions
// compare their hashes, so the number may only change with limit.ValueFormat.
func TestTheHashIsTheSameEverywhere(t *testing.T) {
	const want = 0x664a56e946b717f2
	for _, shards := range []int{1, 64} {
		ks := newKeyspace(t, Options{Shards: shards})
		everyKind(t, ks, t0, 3)
		everyKind(t, ks, t0+second, 2)
		if got := freeze(t, ks).Hash(); got != want {
			t.Errorf("%d shards: the hash is %#x, want %#x", shards, got, uint64(want))
		}
	}
	if got := freeze(t, newKeyspace(t, Options{})).Hash(); got != 0 {
		t.Errorf("of nothing: %#x", got)
	}
}

// TestTheHashTellsStatesApart fails when two states that differ in one thing have
// the same hash.
func TestTheHashTellsStatesApart(t *testing.T) {
	hashes := map[uint64]string{}
	for name, change := range map[string]func(*Keyspace, *Tx){
		"nothing":          func(*Keyspace, *Tx) {},
		"the time":         func(ks *Keyspace, _ *Tx) { ks.Advance(t0 + 1) },
		"a key less":       func(_ *Keyspace, tx *Tx) { tx.Delete([]byte("fixed")) },
		"a database less":  func(_ *Keyspace, tx *Tx) { tx.Select(9); tx.FlushDB() },
		"all keys less":    func(_ *Keyspace, tx *Tx) { tx.FlushAll() },
		"a key more":       func(_ *Keyspace, tx *Tx) { command(t, tx, []string{"THROTTLE", "bucket\x00", "100", "1/m", "3"}) },
		"of a key's units": func(_ *Keyspace, tx *Tx) { command(t, tx, []string{"THROTTLE", "bucket", "100", "1/m", "1"}) },
		"a key's limit":    func(_ *Keyspace, tx *Tx) { command(t, tx, []string{"THROTTLE", "bucket", "101", "1/m", "1"}) },
		"a log's entry":    func(_ *Keyspace, tx *Tx) { command(t, tx, []string{"REFUND", "log", "1"}) },
		"a database's key": func(_ *Keyspace, tx *Tx) {
			tx.Delete([]byte("bucket"))
			tx.Select(1)
			command(t, tx, []string{"THROTTLE", "bucket", "100", "1/m", "3"})
		},
		"another key": func(_ *Keyspace, tx *Tx) {
			tx.Delete([]byte("bucket"))
			command(t, tx, []string{"THROTTLE", "bucke", "100", "1/m", "3"})
		},
		"another kind": func(_ *Keyspace, tx *Tx) {
			tx.Delete([]byte("bucket"))
			command(t, tx, []string{"LEAK", "bucket", "100", "1/m", "3"})
		},
	} {
		ks := newKeyspace(t, Options{})
		everyKind(t, ks, t0, 3)
		tx := ks.Begin(t0)
		change(ks, tx)
		tx.End()
		h := freeze(t, ks).Hash()
		if other, twice := hashes[h]; twice {
			t.Errorf("%s and %s hash to %#x", name, other, h)
		}
		hashes[h] = name
	}
}

// TestNoTwoSimilarKeysHashAlike fails when the sum over keys that differ in a bit,
// or in where the key ends and the value begins, does not tell them apart.
func TestNoTwoSimilarKeysHashAlike(t *testing.T) {
	seen := map[uint64]string{}
	take := func(db uint8, key, value []byte) {
		h, is := hashOf(db, key, value), fmt.Sprintf("%d %q %q", db, key, value)
		if other, twice := seen[h]; twice && other != is {
			t.Fatalf("%s and %s hash to %#x", is, other, h)
		}
		seen[h] = is
	}
	zeros := make([]byte, 40)
	for n := range zeros {
		for db := range uint8(Databases) {
			take(db, zeros[:n], zeros[n:])
			take(db, zeros[:n], nil)
			take(db, zeros[:n], zeros[:n])
		}
		for bit := range 8 * n {
			b := bytes.Clone(zeros[:n])
			b[bit/8] ^= 1 << (bit % 8)
			take(0, b, zeros[:4])
			take(0, zeros[:4], b)
		}
	}
	// Pairs whose values change places, and sums of pairs.
	sums := map[uint64]int{}
	for i := range 300 {
		for j := range i {
			sums[hashOf(0, fmt.Append(nil, i), fmt.Append(nil, j))+hashOf(0, fmt.Append(nil, j), fmt.Append(nil, i))]++
		}
	}
	if len(sums) != 300*299/2 {
		t.Errorf("%d different sums of %d pairs", len(sums), 300*299/2)
	}
}

// TestTheHashIsOfTheStateAndNotOfItsHistory fails when the hash depends on order,
// sweeps, shards, or on what came and went.
func TestTheHashIsOfTheStateAndNotOfItsHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ks := newKeyspace(t, Options{Shards: 4, Track: true})
		now := t0
		ks.Advance(now)
		for range rapid.IntRange(0, 60).Draw(rt, "commands") {
			now += rapid.SampledFrom([]int64{0, 1, second / 3, second}).Draw(rt, "later")
			tx := ks.Begin(now)
			tx.Select(uint8(rapid.IntRange(0, 2).Draw(rt, "db")))
			command(t, tx, randomCommand(rt))
		}
		var changes [][]byte
		f := freeze(t, ks)
		for more := true; more; {
			var c []byte
			c, more = f.Append(nil, 1)
			changes = append(changes, c)
		}
		other := newKeyspace(t, Options{Shards: 16})
		load := func(c []byte) {
			if err := other.Load(c); err != nil {
				rt.Fatal(err)
			}
		}
		// Things that come and go first; then the state in another order, some twice.
		other.Advance(t0 - 3600*second)
		everyKind(t, other, t0-3600*second, 9)
		if rapid.Bool().Draw(rt, "flush") {
			tx := other.Begin(t0 - 3600*second)
			tx.FlushAll()
		} else {
			for _, db := range []uint8{0, 9} {
				for _, key := range []string{"log", "fixed", "sliding", "bucket", "leaky", strings.Repeat("long", 500)} {
					tx := other.Begin(t0 - 3600*second)
					tx.Select(db)
					if !tx.Delete([]byte(key)) {
						rt.Fatal(key)
					}
					tx.End()
				}
			}
		}
		other.Advance(f.Latest())
		for _, c := range rapid.Permutation(changes).Draw(rt, "order") {
			load(c)
			if len(c)%3 == 0 {
				load(c)
			}
		}
		for rapid.Bool().Draw(rt, "sweep") && ks.Sweep(8) {
		}
		a, b := freeze(t, ks), freeze(t, other)
		if x, y := a.Hash(), b.Hash(); x != y || a.Keys() != b.Keys() || a.Latest() != b.Latest() {
			rt.Fatalf("%d keys at %d: %#x, restored %d at %d: %#x", a.Keys(), a.Latest(), x, b.Keys(), b.Latest(), y)
		}
	})
}

// TestAHashOfHalfAViewIsOfTheRest fails when Hash after Append shows a key again.
func TestAHashOfHalfAViewIsOfTheRest(t *testing.T) {
	ks := newKeyspace(t, Options{Shards: 1})
	everyKind(t, ks, t0, 3)
	f := freeze(t, ks)
	if _, more := f.Append(nil, 1); !more || f.Keys() != 1 {
		t.Fatalf("one byte is enough for %d keys", f.Keys())
	}
	f.Hash()
	if f.Keys() != 12 {
		t.Fatalf("%d keys, want 12", f.Keys())
	}
}

// TestOneViewAtATime fails when two views are open at once, or when closing one
// twice closes another.
func TestOneViewAtATime(t *testing.T) {
	ks := newKeyspace(t, Options{})
	everyKind(t, ks, t0, 3)
	one := freeze(t, ks)
	if _, err := ks.Freeze(); !errors.Is(err, ErrFrozen) {
		t.Fatalf("a second view: %v", err)
	}
	one.Close()
	two := freeze(t, ks)
	one.Close()
	one.Append(nil, 1)
	if _, err := ks.Freeze(); !errors.Is(err, ErrFrozen) {
		t.Fatalf("a second view: %v", err)
	}
	everyKind(t, ks, t0, 1)
	if n := len(shown(t, two)); n != 12 {
		t.Fatalf("the view shows %d keys, want 12", n)
	}
	freeze(t, ks).Close() // the walk has closed the one before
}

// TestFreezeHoldsEveryShardAtOnce fails when a decision can fall between two shards
// of a view, or between its keys and its time.
func TestFreezeHoldsEveryShardAtOnce(t *testing.T) {
	ks := newKeyspace(t, Options{Shards: 4})
	everyKind(t, ks, t0, 3)
	// Whoever decides at the last shard has the view wait, with all others held.
	last := &ks.shards[3]
	last.mu.Lock()
	latest := make(chan int64, 1)
	go func() {
		f, err := ks.Freeze()
		if err != nil {
			t.Error(err)
		}
		latest <- f.Latest()
	}()
	for i := range ks.shards[:3] {
		for sh := &ks.shards[i]; sh.mu.TryLock(); runtime.Gosched() {
			sh.mu.Unlock()
			if len(latest) > 0 {
				t.Fatal("the view is there, while a shard was not locked")
			}
		}
	}
	ks.Advance(t0 + second)
	last.mu.Unlock()
	if got := <-latest; got != t0+second {
		t.Fatalf("the view is of %d, and has decisions of %d", got, t0+second)
	}
}

// TestAViewOutlivesAReset fails when a flush, or a restore over it, takes away what
// a view still has to show, or shows what came later.
func TestAViewOutlivesAReset(t *testing.T) {
	ks := newKeyspace(t, Options{Shards: 4})
	everyKind(t, ks, t0, 3)
	want := shown(t, freeze(t, ks))
	f := freeze(t, ks)
	everyKind(t, ks, t0, 1)
	chunk, _ := f.Append(nil, 1)
	ks.Reset()
	everyKind(t, ks, t0/2, 1)
	got := shown(t, f, chunk)
	if !maps.Equal(got, want) || f.Latest() != t0 {
		t.Fatalf("the view of %d has %d keys, want %d", f.Latest(), len(got), len(want))
	}
	if f := freeze(t, ks); f.Latest() != t0/2 || len(shown(t, f)) != 12 {
		t.Fatal("the state after a reset is not what was written since")
	}
}

// TestWhatAViewSavesIsCounted fails when the memory of a view is not in the
// budget, or stays there.
func TestWhatAViewSavesIsCounted(t *testing.T) {
	ks := newKeyspace(t, Options{Shards: 2})
	write := func() {
		for i := range 5000 {
			tx := ks.Begin(t0)
			if _, err := tx.Throttle(fmt.Append(nil, "key ", i), still(1000), 1, limit.Consume); err != nil {
				t.Fatal(err)
			}
			tx.End()
		}
	}
	write()
	before := ks.Stats(t0).Memory
	for _, end := range []func(*Frozen){(*Frozen).Close, func(f *Frozen) { f.Hash() }} {
		f := freeze(t, ks)
		write()
		if grown := ks.Stats(t0).Memory - before; grown < 5000*20 || grown > 5000*60 {
			t.Errorf("5,000 saved keys take %d bytes", grown)
		}
		end(f)
		if after := ks.Stats(t0).Memory; after != before {
			t.Errorf("%d bytes after a view, %d before", after, before)
		}
	}
}

// TestAViewLetsOthersIn fails when a walk holds a lock for more than a step of it,
// whatever the step's values weigh.
func TestAViewLetsOthersIn(t *testing.T) {
	ks := newKeyspace(t, Options{Shards: 1})
	for i := range 2000 {
		tx := ks.Begin(t0)
		_, _ = tx.Throttle(fmt.Append(nil, "key ", i), still(9), 1, limit.Consume)
		tx.End()
	}
	for _, weight := range []int{10, frozenBytes / 3, 10 * frozenBytes} {
		bytes, keys, heldBytes, heldKeys, holds := 0, 0, 0, 0, 0
		put := func(uint8, []byte, *limit.Value) {
			bytes += weight
			heldBytes += weight
			keys++
			heldKeys++
		}
		freeze(t, ks).walk(1<<40, func() int {
			if sh := &ks.shards[0]; sh.mu.TryLock() {
				sh.mu.Unlock()
				heldBytes, heldKeys = 0, 0
				holds++
			}
			if heldKeys > frozenStep || heldBytes >= frozenBytes+weight {
				t.Fatalf("%d keys of %d bytes under one hold", heldKeys, heldBytes)
			}
			return bytes
		}, put, func(db uint8, key, value []byte) { put(db, key, nil) })
		if keys != 2000 || holds < 2000/frozenStep {
			t.Fatalf("%d keys in %d holds", keys, holds)
		}
	}
}

// TestAViewIsOfOneInstantWhileOthersWrite fails when a view shows a later decision
// without an earlier one: a writer counts up keys in a fixed order, so that at any
// instant no key is ahead of the one before it. Cuts and sweeps go on beside it.
func TestAViewIsOfOneInstantWhileOthersWrite(t *testing.T) {
	const keys, rounds = 60, 200
	ks := newKeyspace(t, Options{Track: true, Shards: 16})
	name := func(i int) []byte { return fmt.Append(nil, "k", i) }
	var ended atomic.Bool
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() {
		defer ended.Store(true)
		for range rounds {
			for i := range keys {
				tx := ks.Begin(t0)
				kind := []limit.Kind{limit.KindLog, limit.KindFixed}[i%2]
				if _, err := tx.Window(kind, name(i), limit.WindowLimit{Limit: 1_000_000, Period: 3600 * second}, 1, limit.Consume); err != nil {
					t.Error(err)
				}
				tx.End()
			}
		}
	})
	for _, f := range []func(){
		func() { drain(ks.Cut(), 200) },
		func() { ks.Sweep(4) },
		func() { // what runs out and comes again beside the rest
			tx := ks.Begin(t0)
			tx.Select(1)
			_, _ = tx.Throttle(name(1), still(9), 1, limit.Force)
			tx.Delete(name(1))
			tx.End()
		},
	} {
		beside.Go(func() {
			for !ended.Load() {
				f()
			}
		})
	}
	for last := false; !last; {
		last = ended.Load()
		f := freeze(t, ks)
		var chunks [][]byte
		for more := true; more; {
			var chunk []byte
			chunk, more = f.Append(nil, 300)
			chunks = append(chunks, chunk)
		}
		other := restore(t, f.Latest(), chunks)
		lowest, highest := int64(1<<40), int64(0)
		for i := range keys {
			used := cost(t, other, t0, string(name(i)))
			if used > lowest {
				t.Fatalf("key %d is at %d, one before it at %d", i, used, lowest)
			}
			lowest, highest = min(lowest, used), max(highest, used)
		}
		if highest-lowest > 1 || last && lowest != rounds {
			t.Fatalf("keys from %d to %d", lowest, highest)
		}
	}
}

// TestAFrozenViewIsOfOneInstant changes keys in every way while views are walked,
// to their ends or not.
func TestAFrozenViewIsOfOneInstant(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		track := rapid.Bool().Draw(rt, "track")
		ks := newKeyspace(t, Options{Shards: 2, Track: track})
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		now := int64(1e18)
		write := func() {
			now += int64(rng.IntN(200_000_000))
			tx := ks.Begin(now)
			defer tx.End()
			tx.Select(uint8(rng.IntN(2)))
			key := []byte(fmt.Sprint("key ", rng.IntN(300)))
			switch rng.IntN(24) {
			case 0:
				tx.Delete(key)
			case 1, 2:
				for ks.Sweep(2) {
				}
			case 3:
				if rng.IntN(8) == 0 {
					tx.FlushDB()
				}
			case 4:
				if track && rng.IntN(3) == 0 {
					drain(ks.Cut(), 500)
				}
			case 5, 6, 7:
				_, _ = tx.Window(limit.KindLog, append(key, 'l'), limit.WindowLimit{Limit: 50, Period: 30e9}, 1, limit.Consume)
			default:
				_, _ = tx.Throttle(key, limit.BucketLimit{Capacity: 9, Rate: limit.Rate{Count: 1, Period: int64(1+rng.IntN(3)) * 5e9}}, 1, limit.Force)
			}
		}
		for range rapid.IntRange(1, 5).Draw(rt, "views") {
			for range rapid.IntRange(0, 400).Draw(rt, "before") {
				write()
			}
			want := map[string]string{}
			d := ks.Dump()
			chunk, _ := d.Append(nil, 1<<30)
			collect(t, chunk, want)
			f, err := ks.Freeze()
			if err != nil {
				rt.Fatal(err)
			}
			if _, err := ks.Freeze(); !errors.Is(err, ErrFrozen) {
				rt.Fatalf("a second view: %v", err)
			}
			early := rapid.IntRange(0, 3).Draw(rt, "early") == 0
			got := map[string]string{}
			for more := true; more; {
				for range rng.IntN(20) {
					write()
				}
				chunk, more = f.Append(nil, 1+rng.IntN(2000))
				collect(t, chunk, got)
				if early && rng.IntN(4) == 0 {
					f.Close()
					break
				}
			}
			f.Close()
			if early {
				continue
			}
			if len(got) != f.Keys() || !reflect.DeepEqual(got, want) {
				rt.Fatalf("the view has %d keys (it says %d), the state had %d", len(got), f.Keys(), len(want))
			}
		}
	})
}

// collect puts the changes of a chunk into a map, and fails if one is there twice.
func collect(t testing.TB, chunk []byte, into map[string]string) {
	t.Helper()
	err := VisitChunk(chunk, func(c *Change) error {
		key := fmt.Sprint(c.DB, string(c.Key))
		if _, twice := into[key]; twice {
			t.Fatalf("%q is shown twice", key)
		}
		into[key] = string(limit.AppendValue(nil, &c.Value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
