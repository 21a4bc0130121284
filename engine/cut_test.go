package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
	"pgregory.net/rapid"
)

func cost(t testing.TB, ks *Keyspace, now int64, key string) int64 {
	t.Helper()
	tx := ks.Begin(now)
	defer tx.End()
	info, _ := tx.Inspect([]byte(key))
	return info.Used
}

// TestACutShowsOneInstant fails when a drain shows a later decision without an
// earlier one: a writer counts up keys in a fixed order, so that at any
// instant no key is ahead of the one before it.
func TestACutShowsOneInstant(t *testing.T) {
	const keys, rounds = 40, 300
	ks := newKeyspace(t, Options{Track: true, Shards: 16})
	name := func(i int) []byte { return []byte(fmt.Sprint("k", i)) }
	var ended atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range rounds {
			for i := range keys {
				tx := ks.Begin(t0)
				if _, err := tx.Throttle(name(i), still(1_000_000), 1, limit.Consume); err != nil {
					t.Error(err)
				}
				tx.End()
			}
		}
		ended.Store(true)
	}()
	var chunks [][]byte
	cuts := 0
	for last := false; !last; cuts++ {
		last = ended.Load()
		c := ks.Cut()
		chunks = append(chunks, drain(c, 200)...)
		other := restore(t, c.Latest(), chunks)
		before := int64(1 << 40)
		lowest, highest := before, int64(0)
		for i := range keys {
			used := cost(t, other, t0, string(name(i)))
			if used > before {
				t.Fatalf("cut %d: key %d is at %d, the one before it at %d", cuts, i, used, before)
			}
			before = used
			lowest, highest = min(lowest, used), max(highest, used)
		}
		if highest-lowest > 1 {
			t.Fatalf("cut %d: keys from %d to %d", cuts, lowest, highest)
		}
		if last && highest != rounds {
			t.Fatalf("the last cut shows %d, want %d", highest, rounds)
		}
	}
	<-done
}

// TestDrainsShowEveryChange runs random commands, cuts and flushes, and fails
// when what was drained, or dumped, does not restore the same replies.
func TestDrainsShowEveryChange(t *testing.T) {
	commands := [][]string{
		{"THROTTLE", "a", "10", "5"}, {"THROTTLE", "a", "20", "1/m", "7", "FORCE"}, {"THROTTLE", "b", "3", "1"},
		{"LEAK", "c", "10", "2", "3"}, {"WINDOW", "d", "5", "10s", "2", "FIXED"}, {"WINDOW", "e", "5", "3s"},
		{"WINDOW", "f", "100", "10s", "3", "LOG"}, {"WINDOW", "f", "100", "2s", "50", "LOG"}, {"REFUND", "a", "5"},
		{"REFUND", "f", "4"}, {"DEL", "a"}, {"DEL", "f"}, {"REFUND", "d", "9"}, {"THROTTLE", "g", "10000", "1/d", "1000"},
	}
	rapid.Check(t, func(rt *rapid.T) {
		ks := newKeyspace(t, Options{Track: true, Shards: 2})
		now := t0
		var base, deltas [][]byte
		var d *Dump
		var fresh, since [][]byte
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now += rapid.SampledFrom([]int64{0, 1, second / 3, second, 5 * second, 3600 * second}).Draw(rt, "later")
			switch op := rapid.IntRange(0, 19).Draw(rt, "op"); {
			case op < 12:
				tx := ks.Begin(now)
				tx.Select(uint8(rapid.IntRange(0, 1).Draw(rt, "db")))
				command(t, tx, rapid.SampledFrom(commands).Draw(rt, "command"))
			case op == 12:
				tx := ks.Begin(now)
				tx.Select(uint8(rapid.IntRange(0, 1).Draw(rt, "db")))
				tx.FlushDB()
			case op == 13:
				ks.Sweep(8)
			case op == 14 && d == nil:
				d, fresh, since = ks.Dump(), nil, nil
			case op <= 16 && d != nil:
				chunk, more := d.Append(nil, 1)
				fresh = append(fresh, chunk)
				if !more {
					// The cut below makes the dump whole.
					fresh = append(fresh, nil)
				}
			default:
				c := ks.Cut()
				chunks := drain(c, rapid.IntRange(1, 100).Draw(rt, "size"))
				deltas, since = append(deltas, chunks...), append(since, chunks...)
				if n := len(fresh); d != nil && n > 0 && fresh[n-1] == nil {
					base, deltas, d = fresh[:n-1], since, nil
				}
				other := restore(t, c.Latest(), append(append([][]byte{}, base...), deltas...))
				for db := range uint8(2) {
					for _, key := range []string{"a", "b", "c", "d", "e", "f", "g"} {
						a, b := ks.Begin(now), other.Begin(now)
						a.Select(db)
						b.Select(db)
						x, xok := a.Inspect([]byte(key))
						y, yok := b.Inspect([]byte(key))
						a.End()
						b.End()
						if x != y || xok != yok {
							rt.Fatalf("%s in database %d: %+v %v, restored %+v %v", key, db, x, xok, y, yok)
						}
					}
				}
				if ks.Latest() != other.Latest() {
					rt.Fatalf("latest %d, restored %d", ks.Latest(), other.Latest())
				}
			}
		}
	})
}

// TestACutInProgressSurvivesAFlush fails when a flush takes away what a drain
// still has to show, or brings back what it emptied.
func TestACutInProgressSurvivesAFlush(t *testing.T) {
	ks := newKeyspace(t, Options{Track: true, Shards: 1})
	tx := ks.Begin(t0)
	for _, k := range []string{"a", "b", "c"} {
		if _, err := tx.Throttle([]byte(k), still(9), 1, limit.Consume); err != nil {
			t.Fatal(err)
		}
	}
	first := ks.beginCut(t, tx)
	tx.FlushAll()
	if _, err := tx.Throttle([]byte("b"), still(9), 5, limit.Consume); err != nil {
		t.Fatal(err)
	}
	tx.End()
	chunks := drain(first, 1)
	other := restore(t, first.Latest(), chunks)
	for _, k := range []string{"a", "b", "c"} {
		if got := cost(t, other, t0, k); got != 1 {
			t.Errorf("at the cut %s had used %d, want 1", k, got)
		}
	}
	chunks = append(chunks, drain(ks.Cut(), 1)...)
	other = restore(t, first.Latest(), chunks)
	for k, want := range map[string]int64{"a": 0, "b": 5, "c": 0} {
		if got := cost(t, other, t0, k); got != want {
			t.Errorf("after the flush %s had used %d, want %d", k, got, want)
		}
	}
}

// beginCut makes a cut while tx goes on.
func (ks *Keyspace) beginCut(t *testing.T, tx *Tx) *Cut {
	t.Helper()
	tx.End()
	return ks.Cut()
}

func TestWhatIsNotChangedIsNotDrainedAgain(t *testing.T) {
	ks := newKeyspace(t, Options{Track: true})
	tx := ks.Begin(t0)
	for i := range 100 {
		for range 10 {
			if _, err := tx.Throttle([]byte(fmt.Sprint(i)), still(50), 1, limit.Consume); err != nil {
				t.Fatal(err)
			}
		}
	}
	tx.End()
	c := ks.Cut()
	chunks := drain(c, 1<<20)
	if c.Keys() != 100 {
		t.Errorf("%d changes of 100 keys", c.Keys())
	}
	tx = ks.Begin(t0)
	if r, err := tx.Throttle([]byte("0"), still(50), 41, limit.Consume); err != nil || r.Allowed != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	_, _ = tx.Throttle([]byte("1"), still(50), 1, limit.Peek)
	tx.End()
	if c := ks.Cut(); len(bytes.Join(drain(c, 1<<20), nil)) != 0 {
		t.Errorf("a refusal and a PEEK made %d changes", c.Keys())
	}
	other := restore(t, c.Latest(), chunks)
	if n := other.Changed(); n != 0 {
		t.Errorf("%d changes after a restore", n)
	}
	if n := other.Stats(t0).Keys[0]; n != 100 {
		t.Errorf("%d keys after a restore", n)
	}
}

func TestCutPanicsWhereItCannotBeRight(t *testing.T) {
	panics := func(ks *Keyspace) (did bool) {
		defer func() { did = recover() != nil }()
		ks.Cut()
		return false
	}
	if !panics(newKeyspace(t, Options{})) {
		t.Error("a cut of a keyspace that does not track changes")
	}
	ks := newKeyspace(t, Options{Track: true})
	c := ks.Cut()
	if !panics(ks) {
		t.Error("a cut before the last one was drained")
	}
	drain(c, 1)
	drain(c, 1)
	if panics(ks) {
		t.Error("no cut after the last one was drained")
	}
}

// FuzzLoad feeds arbitrary bytes to the decoder of changes: it refuses them or
// loads what can be decided on.
func FuzzLoad(f *testing.F) {
	ks := newKeyspace(f, Options{Track: true})
	tx := ks.Begin(t0)
	for _, args := range []string{
		`["THROTTLE","a","10","5"]`, `["LEAK","c","10","2","3"]`, `["WINDOW","d","5","10s","2","FIXED"]`,
		`["WINDOW","e","5","3s"]`, `["WINDOW","f","100","10s","3","LOG"]`,
	} {
		var a []string
		if err := json.Unmarshal([]byte(args), &a); err != nil {
			f.Fatal(err)
		}
		command(f, tx, a)
	}
	f.Add(bytes.Join(drain(ks.Cut(), 1<<20), nil))
	f.Add([]byte{byte(OpFlushDB), 3, byte(OpDelete), 0, 1, 'k'})
	f.Add([]byte{byte(OpPut), 0, 1, 'k'})
	f.Fuzz(func(t *testing.T, chunk []byte) {
		ks := newKeyspace(t, Options{Track: true, Shards: 1})
		err := ks.Load(chunk)
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatalf("%v is not ErrDamaged", err)
		}
		keys := map[string]bool{}
		_ = VisitChunk(chunk, func(c *Change) error {
			keys[string(c.Key)] = true
			return nil
		})
		for k := range keys {
			if k == "" {
				continue
			}
			tx := ks.Begin(t0)
			_, _ = tx.Refund([]byte(k), 1)
			_, _ = tx.Throttle([]byte(k), still(10), 1, limit.Force)
			_, _ = tx.Leak([]byte(k), still(10), 1, limit.Consume)
			for _, kind := range []limit.Kind{limit.KindFixed, limit.KindSliding, limit.KindLog} {
				_, _ = tx.Window(kind, []byte(k), limit.WindowLimit{Limit: 7, Period: second}, 1, limit.Force)
			}
			tx.End()
		}
	})
}
