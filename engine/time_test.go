package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
)

// kinds makes a state of each kind under the key "k" that uses all of it: the
// same call again is refused. Each runs out ten seconds after the whole second.
var kinds = map[string]func(tx *Tx, cost int64, m limit.Mode) (limit.Result, error){
	"bucket": func(tx *Tx, cost int64, m limit.Mode) (limit.Result, error) {
		return tx.Throttle([]byte("k"), bucket(10, 1, second), cost, m)
	},
	"leak": func(tx *Tx, cost int64, m limit.Mode) (limit.Result, error) {
		return tx.Leak([]byte("k"), bucket(10, 1, second), cost, m)
	},
	"fixed": func(tx *Tx, cost int64, m limit.Mode) (limit.Result, error) {
		return tx.Window(limit.KindFixed, []byte("k"), limit.WindowLimit{Limit: 10, Period: 10 * second}, cost, m)
	},
	"sliding": func(tx *Tx, cost int64, m limit.Mode) (limit.Result, error) {
		return tx.Window(limit.KindSliding, []byte("k"), limit.WindowLimit{Limit: 10, Period: 5 * second}, cost, m)
	},
	"log": func(tx *Tx, cost int64, m limit.Mode) (limit.Result, error) {
		return tx.Window(limit.KindLog, []byte("k"), limit.WindowLimit{Limit: 10, Period: 10 * second}, cost, m)
	},
}

// at runs f at a time and releases the locks.
func at(ks *Keyspace, now int64, f func(tx *Tx)) {
	tx := ks.Begin(now)
	defer tx.End()
	f(tx)
}

// TestAKeyIsGoneFromTheInstantItIsFull asks every command about the instant at
// which a key is full again, and the one before.
func TestAKeyIsGoneFromTheInstantItIsFull(t *testing.T) {
	key := []byte("k")
	for name, decide := range kinds {
		for _, before := range []int64{1, 0} {
			ks := newKeyspace(t, Options{Track: true})
			at(ks, t0, func(tx *Tx) {
				if r, err := decide(tx, 10, limit.Consume); err != nil || r.Allowed != 1 || r.ResetMs != 10_000 {
					t.Fatalf("%s: %+v, %v", name, r, err)
				}
			})
			there := before == 1
			at(ks, t0+10*second-before, func(tx *Tx) {
				if got := tx.Kind(key) != limit.None; got != there {
					t.Errorf("%s, %d ns before: Kind says %v", name, before, got)
				}
				if _, got := tx.Expiry(key); got != there {
					t.Errorf("%s, %d ns before: Expiry says %v", name, before, got)
				}
				if _, got := tx.Inspect(key); got != there {
					t.Errorf("%s, %d ns before: Inspect says %v", name, before, got)
				}
				shown := false
				tx.Scan(0, 100, func([]byte, limit.Kind) { shown = true })
				if shown != there || (tx.Count() == 1) != there {
					t.Errorf("%s, %d ns before: Scan says %v, Count %d", name, before, shown, tx.Count())
				}
				if got := tx.Delete(key); got != there {
					t.Errorf("%s, %d ns before: Delete says %v", name, before, got)
				}
			})
		}
	}
}

// TestWhatChangesNothingIsNotWritten fails when a refusal under the same limit,
// PEEK, cost 0 or a refund of nothing ends up on a disk.
func TestWhatChangesNothingIsNotWritten(t *testing.T) {
	for name, decide := range kinds {
		ks := newKeyspace(t, Options{Track: true})
		at(ks, t0, func(tx *Tx) { _, _ = decide(tx, 10, limit.Consume) })
		drain(ks.Cut(), 1<<20)
		// Later too, when a window has rolled on or entries have left.
		for _, later := range []int64{0, 1, 5*second + 1} {
			at(ks, t0+later, func(tx *Tx) {
				if r, err := decide(tx, 10, limit.Consume); err != nil || r.Allowed != 0 {
					t.Fatalf("%s: %+v, %v; want a refusal", name, r, err)
				}
				_, _ = decide(tx, 1, limit.Peek)
				_, _ = decide(tx, 0, limit.Consume)
				_, _ = tx.Refund([]byte("k"), 0)
				_, _ = tx.Refund([]byte("absent"), 5)
			})
			if n := ks.Changed(); n != 0 {
				t.Errorf("%s, %d ns later: %d changes", name, later, n)
			}
		}
		// But a change is one.
		at(ks, t0+second, func(tx *Tx) { _, _ = tx.Refund([]byte("k"), 1) })
		if n := ks.Changed(); n != 1 {
			t.Errorf("%s: a refund is %d changes", name, n)
		}
	}
}

// TestAFlushedDatabaseIsAChange fails when what a restart would bring back
// counts as saved.
func TestAFlushedDatabaseIsAChange(t *testing.T) {
	ks := newKeyspace(t, Options{Track: true})
	at(ks, t0, func(tx *Tx) {
		_, _ = tx.Window(limit.KindFixed, []byte("k"), limit.WindowLimit{Limit: 9, Period: second}, 1, limit.Consume)
	})
	drain(ks.Cut(), 1<<20)
	at(ks, t0, func(tx *Tx) { tx.FlushDB() })
	if n, s := ks.Changed(), ks.Stats(t0).Changed; n != 1 || s != 1 {
		t.Errorf("%d and %d changes, want 1", n, s)
	}
	drain(ks.Cut(), 1<<20)
	if n, s := ks.Changed(), ks.Stats(t0).Changed; n != 0 || s != 0 {
		t.Errorf("%d and %d changes after a cut, want none", n, s)
	}
	// Nobody drains a keyspace that does not track.
	ks = newKeyspace(t, Options{})
	at(ks, t0, func(tx *Tx) { tx.FlushDB() })
	if n, s := ks.Changed(), ks.Stats(t0).Changed; n != 0 || s != 0 {
		t.Errorf("%d and %d changes that are not tracked", n, s)
	}
}

// TestAnotherLimitIsStoredByARefusal fails when what a refusal has converted is
// forgotten, or when PEEK or cost 0 stores it.
func TestAnotherLimitIsStoredByARefusal(t *testing.T) {
	ks := newKeyspace(t, Options{Track: true})
	key := []byte("k")
	at(ks, t0, func(tx *Tx) {
		_, _ = tx.Throttle(key, bucket(10, 1, second), 10, limit.Consume)
		for _, m := range []limit.Mode{limit.Peek, limit.Consume} {
			_, _ = tx.Throttle(key, bucket(20, 1, second), int64(m), m)
			if i, _ := tx.Inspect(key); i.Limit.A != 10 {
				t.Errorf("mode %d of cost %d stored capacity %d", m, m, i.Limit.A)
			}
		}
		if r, err := tx.Throttle(key, bucket(20, 1, second), 21, limit.Consume); err != nil || r.Allowed != 0 || r.Remaining != 0 {
			t.Errorf("%+v, %v", r, err)
		}
		if i, _ := tx.Inspect(key); i.Limit.A != 20 || i.Used != 20 {
			t.Errorf("%+v, want all of 20 used", i)
		}
		// Windows: another limit simply applies, and is remembered.
		w := []byte("w")
		_, _ = tx.Window(limit.KindLog, w, limit.WindowLimit{Limit: 5, Period: second}, 5, limit.Consume)
		_, _ = tx.Window(limit.KindLog, w, limit.WindowLimit{Limit: 7, Period: second}, 8, limit.Consume)
		if i, _ := tx.Inspect(w); i.Limit.A != 7 || i.Used != 5 {
			t.Errorf("%+v, want 5 of 7 used", i)
		}
	})
}

// TestWhatAConversionForgetsIsCounted: a bucket forced to the most that its
// limit allows has more than that under a larger one.
func TestWhatAConversionForgetsIsCounted(t *testing.T) {
	ks := newKeyspace(t, Options{})
	at(ks, t0, func(tx *Tx) {
		r, err := tx.Throttle([]byte("k"), bucket(1, 1, 1), limit.MaxUnits, limit.Force)
		if err != nil || r.Forgotten != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		r, err = tx.Throttle([]byte("k"), bucket(limit.MaxUnits, 1, 1), 1, limit.Consume)
		if err != nil || r.Forgotten == 0 {
			t.Fatalf("%+v, %v; want units forgotten", r, err)
		}
		tx.End()
		if got := ks.Stats(t0).Forgotten; got != r.Forgotten {
			t.Errorf("%d units are counted, want %d", got, r.Forgotten)
		}
	})
}

// TestARefundToFullForgetsTheKey fails when what is as new keeps memory, or is
// shown to a file.
func TestARefundToFullForgetsTheKey(t *testing.T) {
	for name, decide := range kinds {
		ks := newKeyspace(t, Options{Track: true})
		at(ks, t0, func(tx *Tx) {
			_, _ = decide(tx, 10, limit.Consume)
			_, _ = decide(tx, 3, limit.Force)
		})
		chunks := drain(ks.Cut(), 1<<20)
		at(ks, t0, func(tx *Tx) {
			if r, err := tx.Refund([]byte("k"), 13); err != nil || r.Remaining != 10 || r.ResetMs != 0 {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		})
		held := 0
		for i := range ks.shards {
			if tab := ks.shards[i].tables[0]; tab != nil {
				held += tab.Len()
			}
		}
		d := ks.Dump()
		for more := true; more; {
			_, more = d.Append(nil, 100)
		}
		if held != 0 || d.Keys() != 0 {
			t.Errorf("%s: %d records are held, %d dumped", name, held, d.Keys())
		}
		other := restore(t, t0, append(chunks, drain(ks.Cut(), 1)...))
		if got := other.Stats(t0).Keys[0]; got != 0 {
			t.Errorf("%s: a restart brings %d keys back", name, got)
		}
	}
}

// TestTwoOpenTransactionsShareTheLatestTime fails when one that began earlier
// decides at an earlier time than another before it, or sees a bucket that was
// not full at its time swept away.
func TestTwoOpenTransactionsShareTheLatestTime(t *testing.T) {
	for _, sweep := range []bool{false, true} {
		ks := newKeyspace(t, Options{Shards: 2})
		var other []byte // in the other shard
		for i := 0; ; i++ {
			other = []byte(fmt.Sprint("o", i))
			if ks.shardOf(ks.hash(other)) != ks.shardOf(ks.hash([]byte("k"))) {
				break
			}
		}
		l := bucket(10, 1, 1)
		at(ks, 1000, func(tx *Tx) { _, _ = tx.Throttle([]byte("k"), l, 10, limit.Consume) })
		a := ks.Begin(1001)
		at(ks, 1005, func(tx *Tx) { _, _ = tx.Throttle(other, l, 1, limit.Consume) })
		for sweep && ks.Sweep(2) {
		}
		if r, err := a.Throttle([]byte("k"), l, 6, limit.Consume); err != nil || r.Allowed != 0 || a.Now() != 1005 {
			t.Errorf("sweep %v: %+v, %v at %d; want a refusal at 1005", sweep, r, err, a.Now())
		}
		a.End()
		b := ks.Begin(1006)
		at(ks, 2000, func(tx *Tx) { _, _ = tx.Throttle(other, l, 1, limit.Consume) })
		for sweep && ks.Sweep(2) {
		}
		for i, want := range []int64{1, 0} {
			if r, err := b.Throttle([]byte("k"), l, 10, limit.Consume); err != nil || r.Allowed != want || b.Now() != 2000 {
				t.Errorf("sweep %v, decision %d: %+v, %v at %d", sweep, i, r, err, b.Now())
			}
		}
		b.End()
	}
}

// TestStatsCountAtTheLatestTime: a clock that is behind counts nothing twice.
func TestStatsCountAtTheLatestTime(t *testing.T) {
	ks := newKeyspace(t, Options{})
	at(ks, t0, func(tx *Tx) { _, _ = tx.Throttle([]byte("k"), bucket(1, 1, second), 1, limit.Consume) })
	at(ks, t0+2*second, func(tx *Tx) { _, _ = tx.Throttle([]byte("l"), bucket(1, 1, second), 1, limit.Consume) })
	if got := ks.Stats(0).Keys[0]; got != 1 {
		t.Errorf("%d keys, want 1", got)
	}
}

// TestChunksAreNotMuchLargerThanAsked fails when a chunk takes in many large
// records at once.
func TestChunksAreNotMuchLargerThanAsked(t *testing.T) {
	ks := newKeyspace(t, Options{Track: true, Shards: 1})
	at(ks, t0, func(tx *Tx) {
		for i := range 300 {
			key := bytes.Repeat([]byte{byte(i), byte(i >> 8)}, MaxKey/2)
			if _, err := tx.Throttle(key, still(5), 1, limit.Consume); err != nil {
				t.Fatal(err)
			}
		}
	})
	for _, chunks := range [][][]byte{drain(ks.Cut(), 10_000), dumped(ks, 10_000)} {
		for _, c := range chunks {
			if len(c) > 10_000+4*(MaxKey+100) {
				t.Fatalf("a chunk of %d bytes, 10000 were asked for", len(c))
			}
		}
		if len(chunks) < 60 {
			t.Errorf("%d chunks", len(chunks))
		}
	}
}

func dumped(ks *Keyspace, size int) (chunks [][]byte) {
	d := ks.Dump()
	for more := true; more; {
		var c []byte
		c, more = d.Append(nil, size)
		chunks = append(chunks, c)
	}
	return chunks
}

func TestADumpLeavesOutWhatIsFull(t *testing.T) {
	ks := newKeyspace(t, Options{Track: true})
	at(ks, t0, func(tx *Tx) {
		for i := range 100 {
			_, _ = tx.Throttle([]byte(fmt.Sprint(i)), bucket(1, 1, second), 1, limit.Consume)
		}
	})
	at(ks, t0+second, func(tx *Tx) { _, _ = tx.Throttle([]byte("k"), still(5), 1, limit.Consume) })
	d := ks.Dump()
	for more := true; more; {
		_, more = d.Append(nil, 100)
	}
	if d.Keys() != 1 {
		t.Errorf("%d keys are dumped, want 1", d.Keys())
	}
}

func TestDamagedChangesAreRefused(t *testing.T) {
	long := append([]byte{byte(OpDelete), 0}, binary.AppendUvarint(nil, MaxKey+1)...)
	long = append(long, make([]byte, MaxKey+1)...)
	for name, chunk := range map[string][]byte{
		"half a head":        {byte(OpPut)},
		"an unknown op":      {9, 0, 1, 'k'},
		"database 16":        {byte(OpDelete), 16, 1, 'k'},
		"no key":             {byte(OpDelete), 0, 0},
		"a key cut short":    {byte(OpDelete), 0, 5, 'k'},
		"a length cut short": {byte(OpDelete), 0, 0x80},
		"a key too long":     long,
		"no value":           {byte(OpPut), 0, 1, 'k'},
	} {
		if err := newKeyspace(t, Options{}).Load(chunk); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, want ErrDamaged", name, err)
		}
	}
}
