package engine

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
	"pgregory.net/rapid"
)

// free reports whether no shard of ks is locked.
func free(ks *Keyspace) bool {
	for i := range ks.shards {
		if !ks.shards[i].mu.TryLock() {
			return false
		}
		ks.shards[i].mu.Unlock()
	}
	return true
}

var aheadLimit = limit.BucketLimit{Capacity: 5, Rate: limit.Rate{Count: 1, Period: 1e9}}

// TestAnnouncedKeysAreDecidedAsOthers fails when announcing keys changes a
// decision: whichever are announced, left out, asked for in another order, the
// same or new ones, and in whatever shards they are.
func TestAnnouncedKeysAreDecidedAsOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.SampledFrom([]int{1, 2, 64}).Draw(t, "shards")
		a, _ := New(Options{Shards: shards, Track: rapid.Bool().Draw(t, "track")})
		b, _ := New(Options{Shards: shards})
		now := int64(1e18)
		ta, tb := a.Begin(now), b.Begin(now)
		for range rapid.IntRange(1, 30).Draw(t, "groups") {
			now += rapid.Int64Range(0, 3e9).Draw(t, "pause")
			a.BeginInto(ta, now)
			b.BeginInto(tb, now)
			db := uint8(rapid.IntRange(0, 1).Draw(t, "db"))
			ta.Select(db)
			tb.Select(db)
			var keys [][]byte
			for range rapid.IntRange(1, MaxAhead+3).Draw(t, "keys") {
				keys = append(keys, fmt.Appendf(nil, "key%d", rapid.IntRange(0, 40).Draw(t, "key")))
			}
			n := ta.Ahead(keys)
			if n < 1 || n > min(len(keys), MaxAhead) {
				t.Fatalf("%d of %d keys are announced", n, len(keys))
			}
			for range rapid.IntRange(0, 2*len(keys)).Draw(t, "calls") {
				key := keys[rapid.IntRange(0, len(keys)-1).Draw(t, "which")]
				switch rapid.IntRange(0, 3).Draw(t, "call") {
				case 0:
					if x, y := ta.Kind(key), tb.Kind(key); x != y {
						t.Fatalf("kind %v, want %v", x, y)
					}
				case 1:
					if x, y := ta.Delete(key), tb.Delete(key); x != y {
						t.Fatalf("deleted %v, want %v", x, y)
					}
				default:
					cost := rapid.Int64Range(0, 6).Draw(t, "cost")
					x, errx := ta.Throttle(key, aheadLimit, cost, limit.Consume)
					y, erry := tb.Throttle(key, aheadLimit, cost, limit.Consume)
					if x != y || errx != erry {
						t.Fatalf("%v %v, want %v %v", x, errx, y, erry)
					}
				}
			}
			ta.End()
			tb.End()
			if !free(a) {
				t.Fatal("a lock is held after the end")
			}
		}
		if x, y := a.Stats(now).Keys, b.Stats(now).Keys; x != y {
			t.Fatalf("keys %v, want %v", x, y)
		}
	})
}

// TestAnnouncedKeysCannotBlockEachOther fails when transactions that announce
// the same keys in different orders wait for one another for ever, or when two
// of them decide on one key at the same time.
func TestAnnouncedKeysCannotBlockEachOther(t *testing.T) {
	ks, err := New(Options{Shards: 8})
	if err != nil {
		t.Fatal(err)
	}
	const rounds, workers = 2000, 4
	l := limit.BucketLimit{Capacity: 1e6, Rate: limit.Rate{Count: 1, Period: 3600e9}}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			var keys [][]byte
			for i := range MaxAhead {
				keys = append(keys, []byte{byte('a' + (i*(2*w+1)+w)%MaxAhead)})
			}
			tx := new(Tx)
			for range rounds {
				ks.BeginInto(tx, 1)
				for left := keys; len(left) > 0; {
					n := tx.Ahead(left)
					for _, key := range left[:n] {
						if _, err := tx.Throttle(key, l, 1, limit.Consume); err != nil {
							t.Error(err)
						}
					}
					left = left[n:]
				}
				tx.End()
			}
		})
	}
	all.Wait()
	tx := ks.Begin(1)
	defer tx.End()
	for i := range MaxAhead {
		info, _ := tx.Inspect([]byte{byte('a' + i)})
		if info.Used != rounds*workers {
			t.Errorf("key %c: %d used, want %d", 'a'+i, info.Used, rounds*workers)
		}
	}
}

// TestAheadEndsWhereALockIsTaken fails when announcing waits for a lock while
// it holds another: two that do so can wait for ever.
func TestAheadEndsWhereALockIsTaken(t *testing.T) {
	ks, err := New(Options{Shards: 1024})
	if err != nil {
		t.Fatal(err)
	}
	keys := [][]byte{[]byte("a"), []byte("b"), []byte("c")}
	other := ks.Begin(1)
	if _, err := other.Throttle(keys[1], aheadLimit, 1, limit.Consume); err != nil {
		t.Fatal(err)
	}
	tx := ks.Begin(1)
	if n := tx.Ahead(keys); n != 1 {
		t.Errorf("%d keys are announced, want the one before the locked", n)
	}
	tx.End()
	other.End()
	if n := tx.Ahead(keys); n != 3 {
		t.Errorf("%d keys are announced, want 3", n)
	}
	tx.End()
	if !free(ks) {
		t.Error("a lock is held after the end")
	}
}

// TestAnnouncedKeysMakeRoom fails when memory cannot be freed for a key that was
// announced, because its transaction holds the locks.
func TestAnnouncedKeysMakeRoom(t *testing.T) {
	ks, err := New(Options{MaxMemory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	tx := new(Tx)
	fill := func(now int64, n int) (refused int) {
		for i := 0; i < n; i += MaxAhead {
			ks.BeginInto(tx, now)
			var keys [][]byte
			for j := range MaxAhead {
				keys = append(keys, fmt.Appendf(nil, "%d:%d", now, i+j))
			}
			tx.Ahead(keys)
			for _, key := range keys {
				if _, err := tx.Throttle(key, aheadLimit, 5, limit.Consume); err != nil {
					refused++
				}
			}
			tx.End()
		}
		return refused
	}
	if fill(1e18, 40_000) == 0 {
		t.Fatal("the memory holds too much for this test")
	}
	if n := fill(1e18+10e9, 5_000); n > 0 {
		t.Errorf("%d of 5000 were refused though all keys before were full again", n)
	}
	if !free(ks) {
		t.Error("a lock is held after the end")
	}
}

// TestAheadKeepsNoKey fails when a transaction keeps its caller's memory alive.
func TestAheadKeepsNoKey(t *testing.T) {
	ks, _ := New(Options{})
	tx := ks.Begin(1)
	tx.Ahead([][]byte{[]byte("a"), []byte("b")})
	tx.End()
	for _, key := range tx.direct.ahead.keys {
		if key != nil {
			t.Errorf("%q is kept", key)
		}
	}
	keys := [][]byte{[]byte("a"), []byte("b"), []byte("c")}
	if n := testing.AllocsPerRun(100, func() { tx.Ahead(keys); tx.End() }); n > 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
