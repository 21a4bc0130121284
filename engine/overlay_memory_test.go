package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
)

// TestTheOverlayDoesNotAllocate pins refusals, and writes once it is warm.
func TestTheOverlayDoesNotAllocate(t *testing.T) {
	const now = int64(1e18)
	l := limit.BucketLimit{Capacity: 1, Rate: rate(t, "1/d")}
	w := limit.WindowLimit{Limit: 1, Period: 1e12}
	keys := make([][]byte, 100)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key %d", i)
	}
	for what, decide := range map[string]func(tx *Tx, key []byte, at int64, m limit.Mode){
		"bucket": func(tx *Tx, key []byte, _ int64, m limit.Mode) { _, _ = tx.Throttle(key, l, 1, m) },
		"sliding": func(tx *Tx, key []byte, _ int64, m limit.Mode) {
			_, _ = tx.Window(limit.KindSliding, key, w, 1, m)
		},
		"log": func(tx *Tx, key []byte, _ int64, m limit.Mode) { _, _ = tx.Window(limit.KindLog, key, w, 1, m) },
	} {
		ks := newKeyspace(t, Options{})
		o := ks.NewOverlay()
		buf := make([]byte, 0, 64<<10)
		run := func(at int64, m limit.Mode) {
			tx := o.Begin(at)
			for _, k := range keys {
				decide(tx, k, at, m)
			}
			buf = o.Append(buf[:0])
		}
		none := func(of string, m limit.Mode) {
			run(now+1, m)
			if n := testing.AllocsPerRun(50, func() { run(now+1, m) }); n > 0 {
				t.Errorf("%s, %s: %v allocations", what, of, n)
			}
		}
		none("new", limit.Consume)
		run(now, limit.Consume)
		if err := ks.Apply(now, buf); err != nil {
			t.Fatal(err)
		}
		none("written again", limit.Force)
		none("refused", limit.Consume)
		for _, v := range o.views {
			if v.Bytes() > new(limit.Log).Bytes() {
				t.Errorf("%s: an empty overlay keeps %d bytes of a committed log", what, v.Bytes())
			}
		}
		if len(buf) > 0 || o.Writes() > 0 {
			t.Errorf("%s: refusals are %d writes and have %d bytes of effects", what, o.Writes(), len(buf))
		}
	}
}

// TestADecisionOfTheOverlayIsCountedAtOnce fails when INFO lags behind what was
// answered.
func TestADecisionOfTheOverlayIsCountedAtOnce(t *testing.T) {
	ks := newKeyspace(t, Options{})
	tx := ks.NewOverlay().Begin(1e18)
	l := limit.BucketLimit{Capacity: 2, Rate: rate(t, "1/d")}
	for range 5 {
		if _, err := tx.Throttle([]byte("k"), l, 1, limit.Consume); err != nil {
			t.Fatal(err)
		}
	}
	if s := ks.Stats(1e18); s.Allowed != 2 || s.Refused != 3 {
		t.Errorf("%d were allowed and %d refused, want 2 and 3", s.Allowed, s.Refused)
	}
}

// TestTheOverlayRefusesWhatDoesNotFit fails when entries, of one new key each or of
// many, take more memory than there is, or when what is there already can no
// longer be decided on.
func TestTheOverlayRefusesWhatDoesNotFit(t *testing.T) {
	for _, each := range []int{1, 40_000} {
		t.Run(fmt.Sprint(each, " keys an entry"), func(t *testing.T) {
			const most = 1 << 20
			ks := newKeyspace(t, Options{MaxMemory: most, Shards: 1})
			o := ks.NewOverlay()
			l := limit.BucketLimit{Capacity: 5, Rate: rate(t, "1/h")}
			now, refused := int64(1e18), 0
			tx := o.Begin(now)
			for i := range 40_000 {
				if _, err := tx.Throttle(fmt.Appendf(nil, "key %d", i), l, 1, limit.Consume); errors.Is(err, ErrOOM) {
					refused++
				} else if err != nil {
					t.Fatal(err)
				}
				if (i+1)%each == 0 {
					if err := ks.Apply(now, o.Append(nil)); err != nil {
						t.Fatal(err)
					}
					tx = o.Begin(now)
				}
			}
			if used := ks.Stats(now).Memory; refused == 0 || refused > 38_000 || used > most+64<<10 {
				t.Fatalf("%d refused, %d bytes used", refused, used)
			}
			// What one entry needs is estimated, a little too high: fill what is left.
			for err, i := error(nil), 0; err == nil; i++ {
				if _, err = o.Begin(now).Throttle(fmt.Appendf(nil, "more %d", i), l, 1, limit.Consume); err == nil {
					err = ks.Apply(now, o.Append(nil))
				}
			}
			tx = o.Begin(now)
			// At the limit: what is there, what is refused, and looks.
			for used := int64(2); used <= 5; used++ {
				if r, err := tx.Throttle([]byte("key 0"), l, 1, limit.Consume); err != nil || r.Remaining != 5-used {
					t.Errorf("a bucket that is there: %+v, %v", r, err)
				}
			}
			if r, err := tx.Throttle([]byte("key 0"), l, 1, limit.Consume); err != nil || r.Allowed != 0 {
				t.Errorf("a refusal: %+v, %v", r, err)
			}
			if r, err := tx.Throttle([]byte("new"), l, 1, limit.Peek); err != nil || r.Allowed != 1 {
				t.Errorf("a look: %+v, %v", r, err)
			}
			writes := o.Writes()
			if _, err := tx.Window(limit.KindLog, []byte("new"), limit.WindowLimit{Limit: 5, Period: 1e9}, 1, limit.Consume); !errors.Is(err, ErrOOM) || o.Writes() != writes {
				// A log takes more than a bucket's record.
				t.Errorf("a new log: %v, %d writes", err, o.Writes()-writes)
			}
			// Nothing is full at the latest time seen, though it is by now; once that
			// has come, what is full makes room.
			later := now + int64(6*3600e9)
			if _, err := o.Begin(later).Window(limit.KindLog, []byte("new"), limit.WindowLimit{Limit: 5, Period: 1e9}, 1, limit.Consume); !errors.Is(err, ErrOOM) {
				t.Errorf("keys were swept that are full at a time that may never count: %v", err)
			}
			ks.Advance(later)
			if _, err := o.Begin(later).Window(limit.KindLog, []byte("new"), limit.WindowLimit{Limit: 5, Period: 1e9}, 1, limit.Consume); err != nil {
				t.Errorf("full keys make no room: %v", err)
			}
		})
	}
}

// TestALogGrowsWithinTheLimit fails when what a sliding log's ring takes is not
// asked for.
func TestALogGrowsWithinTheLimit(t *testing.T) {
	ks := newKeyspace(t, Options{MaxMemory: 256 << 10, Shards: 1})
	o := ks.NewOverlay()
	w := limit.WindowLimit{Limit: 1_000_000, Period: 1e15}
	for i := range int64(100_000) {
		now := 1e18 + i
		_, err := o.Begin(now).Window(limit.KindLog, []byte("k"), w, 1, limit.Consume)
		if errors.Is(err, ErrOOM) {
			if i < 1000 {
				t.Errorf("refused after %d entries", i)
			}
			return
		}
		if err := errors.Join(err, ks.Apply(now, o.Append(nil))); err != nil {
			t.Fatal(err)
		}
	}
	t.Errorf("100,000 entries went into 256 KiB, %d bytes are used", ks.Stats(1e18).Memory)
}
