package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-dev/stint/engine/limit"
)

// raw makes effects by hand: a byte and a string as they are, an int64 as an
// unsigned varint, a signed as a signed one.
func raw(parts ...any) (b []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case byte:
			b = append(b, p)
		case string:
			b = append(append(b, byte(len(p))), p...)
		case int64:
			b = binary.AppendUvarint(b, uint64(p))
		case signed:
			b = binary.AppendVarint(b, int64(p))
		default:
			panic(fmt.Sprintf("a part of type %T", p))
		}
	}
	return b
}

type signed int64

// TestApplyRefusesWhatNoOverlayWrites fails when damaged effects are applied, or
// panic: other replicas could make something else of them.
func TestApplyRefusesWhatNoOverlayWrites(t *testing.T) {
	const (
		now    = int64(1e18)
		none   = int64(0)
		second = int64(1e9)
		bucket = effectPut + byte(limit.KindBucket)
		fixed  = effectPut + byte(limit.KindFixed)
	)
	newLog := raw(effectLog|byte(headLimit), "log", int64(10), none, second)
	after := func(head []byte, parts ...any) []byte { return append(head[:len(head):len(head)], raw(parts...)...) }
	good := raw(bucket|headLimit, "new", int64(10), int64(1), second, signed(second), none)
	cases := map[string][]byte{
		"cut short":                        good[:len(good)-1],
		"a number of too many bytes":       after(raw(bucket|headLimit, "new"), int64(-1), int64(1), second, signed(second), none),
		"an operation to come":             raw(byte(effectPut-1), "new", none),
		"a flag to come":                   raw(byte(effectDelete|headNone), "old"),
		"a flag that makes no sense":       raw(byte(effectDelete|headAnew), "old"),
		"a database too many":              raw(effectDelete|byte(headDB), byte(Databases), "old"),
		"a key of no bytes":                raw(effectDelete|byte(0), ""),
		"a key that is too long":           append(raw(effectDelete|byte(0), int64(MaxKey+1)), make([]byte, MaxKey+1)...),
		"a limit that was never given":     raw(bucket, "new", none, signed(second), none),
		"a period of nothing":              raw(fixed|headLimit, "new", int64(10), none, none, signed(0), int64(1)),
		"a limit that cannot be":           raw(fixed|headLimit, "new", none, none, second, signed(0), int64(1)),
		"a window with a rate":             raw(fixed|headLimit, "new", int64(10), int64(1), second, signed(0), int64(1)),
		"a window before time began":       raw(fixed|headLimit, "new", int64(10), none, second, signed(-now/second-1), int64(1)),
		"a window too far ahead":           raw(fixed|headLimit, "new", int64(10), none, int64(1<<30), signed(1<<34), int64(1)),
		"a window too far back":            raw(fixed|headLimit, "new", int64(10), none, int64(1<<30), signed(-1<<34), int64(1)),
		"a window after time ends":         raw(fixed|headLimit, "new", int64(10), none, second, signed(limit.MaxTime), int64(1)),
		"a time past all numbers":          raw(bucket|headLimit, "new", int64(10), int64(1), second, signed(1<<63-1), none),
		"a bucket that is full":            raw(bucket|headLimit, "new", int64(10), int64(1), second, signed(0), none),
		"a log under a rate":               raw(effectLog|byte(headLimit), "new", int64(10), int64(1), second, none, none, int64(1), signed(0), int64(1)),
		"a log under no limit":             raw(effectLog|byte(headLimit), "new", none, none, second, none, none, int64(1), signed(0), int64(1)),
		"a log's change where is a bucket": raw(effectLog|byte(headLimit), "old", int64(10), none, second, none, none, int64(1), signed(0), int64(1)),
		"entries that are not there":       after(newLog, int64(2), int64(2), int64(1), signed(0), int64(1)),
		"entries of a log that has run out": raw(effectLog|byte(headLimit), "late", int64(10), none, second,
			int64(1), none, int64(1), signed(0), int64(1)),
		"too many entries to drop":      after(newLog, int64(limit.MaxLogEntries+1), none, none),
		"far too many entries to drop":  after(newLog, int64(1<<63-1), int64(1), none),
		"far too many newest to drop":   after(newLog, int64(1), int64(1<<63-1), none),
		"more units than can be there":  after(newLog, none, none, int64(1), signed(0), int64(limit.MaxLogSum-2)),
		"entries that do not follow":    after(newLog, none, none, int64(1<<62)),
		"an entry of no cost":           after(newLog, none, none, int64(1), signed(0), none),
		"an entry before the one there": after(newLog, none, none, int64(1), signed(-3e8), int64(1)),
		"entries of one time":           after(newLog, none, none, int64(2), signed(0), int64(1), signed(0), int64(1)),
		"an entry past time's end":      after(newLog, none, none, int64(1), signed(limit.MaxTime-now+1), int64(1)),
		"more units than can be":        after(newLog, none, none, int64(1), signed(0), int64(1<<62)),
	}
	for what, effects := range cases {
		ks := newKeyspace(t, Options{Shards: 1})
		tx := ks.Begin(now - 5e8)
		w := limit.WindowLimit{Limit: 10, Period: second}
		for i := range int64(3) {
			if _, err := tx.Window(limit.KindLog, []byte("log"), w, 1, limit.Consume); err != nil {
				t.Fatal(err)
			}
			tx.End()
			tx = ks.Begin(now - 5e8 + (i+1)*1e8)
		}
		if _, err := tx.Throttle([]byte("old"), limit.BucketLimit{Capacity: 10, Rate: rate(t, "1/s")}, 2, limit.Consume); err != nil {
			t.Fatal(err)
		}
		w.Period = 1e8
		if _, err := tx.Window(limit.KindLog, []byte("late"), w, 1, limit.Consume); err != nil {
			t.Fatal(err)
		}
		tx.End()
		if err := ks.Apply(now, effects); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: error %v", what, err)
		}
		tx = ks.Begin(now)
		if kind := tx.Kind([]byte("new")); kind != limit.None {
			t.Errorf("%s: made a %s", what, kind)
		}
		tx.End()
	}
	if err := newKeyspace(t, Options{}).Apply(now, good); err != nil {
		t.Errorf("good effects, made in the same way: %v", err)
	}
}

// TestALogInTheOverlayIsTheLog runs random commands on one sliding log, most of
// them in one entry with others, against a keyspace that decides directly.
func TestALogInTheOverlayIsTheLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newReplicated(t)
		direct := newKeyspace(t, Options{})
		now := int64(1e18)
		for range rapid.IntRange(1, 20).Draw(rt, "entries") {
			now += rapid.SampledFrom([]int64{0, 1, 100_000_000, 300_000_000, 1_000_000_000}).Draw(rt, "passes")
			tx, d := r.o.Begin(now), direct.Begin(now)
			for range rapid.IntRange(0, 5).Draw(rt, "commands") {
				var c []string
				switch rapid.IntRange(0, 7).Draw(rt, "command") {
				case 0:
					c = []string{"DEL", "k"}
				case 1, 2:
					c = []string{"REFUND", "k", rapid.SampledFrom([]string{"1", "2", "3", "9"}).Draw(rt, "units")}
				default:
					c = []string{"WINDOW", "k", rapid.SampledFrom([]string{"9", "9", "5"}).Draw(rt, "limit"), rapid.SampledFrom([]string{"1s", "1s", "400ms"}).Draw(rt, "period"),
						rapid.SampledFrom([]string{"1", "2", "4"}).Draw(rt, "cost"), "LOG", rapid.SampledFrom([]string{"LOG", "LOG", "FORCE"}).Draw(rt, "mode")}
				}
				want, got := command(t, d, c), command(t, tx, c)
				if w, g := inspect(d, "k"), inspect(tx, "k"); w != g || !reflect.DeepEqual(want, got) {
					rt.Fatalf("%q at %d: held back %v, %s, directly %v, %s", c, now, got, g, want, w)
				}
			}
			direct.Advance(now)
			r.commit(t, now)
			want := hashOfState(t, direct)
			if a, b := hashOfState(t, r.leader), hashOfState(t, r.replica); a != want || b != want {
				rt.Fatalf("hashes at %d: directly %x, leader %x, replica %x", now, want, a, b)
			}
			if rapid.Bool().Draw(rt, "sweep") {
				for r.replica.Sweep(16) {
				}
			}
		}
	})
}

// TestSizeHoldsForTheLargestEffects fails when Size, which is added up before
// anything is encoded, is exceeded by extreme limits, times and costs.
func TestSizeHoldsForTheLargestEffects(t *testing.T) {
	const late = int64(limit.MaxTime)
	key := make([]byte, MaxKey)
	for what, run := range map[string]func(r *replicated, tx func(at int64) *Tx) error{
		"bucket": func(r *replicated, tx func(int64) *Tx) error {
			l := limit.BucketLimit{Capacity: limit.MaxUnits, Rate: limit.Rate{Count: limit.MaxUnits, Period: limit.MaxFill}}
			_, err := tx(late).Throttle(key, l, limit.MaxUnits-7, limit.Consume)
			return err
		},
		"fixed": func(r *replicated, tx func(int64) *Tx) error {
			_, err := tx(late).Window(limit.KindFixed, key, limit.WindowLimit{Limit: limit.MaxUnits, Period: limit.MaxPeriod}, limit.MaxUnits, limit.Force)
			return err
		},
		"sliding": func(r *replicated, tx func(int64) *Tx) error {
			l := limit.WindowLimit{Limit: limit.MaxUnits, Period: limit.MaxPeriod}
			for _, at := range []int64{0, late / 2, late} {
				if _, err := tx(at).Window(limit.KindSliding, key, l, limit.MaxUnits, limit.Force); err != nil {
					return err
				}
			}
			return nil
		},
		"log": func(r *replicated, tx func(int64) *Tx) error {
			l := limit.WindowLimit{Limit: limit.MaxLogLimit, Period: limit.MaxPeriod}
			if _, err := tx(late-limit.MaxPeriod+2).Window(limit.KindLog, key, l, limit.MaxUnits/2, limit.Force); err != nil {
				return err
			}
			o := tx(late)
			for range 50 {
				if _, err := o.Refund(key, 3); err != nil {
					return err
				}
				if _, err := o.Window(limit.KindLog, key, l, limit.MaxUnits/4, limit.Force); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		r := newReplicated(t)
		last := int64(-1)
		err := run(r, func(at int64) *Tx {
			if last >= 0 {
				r.commit(t, last)
			}
			last = at
			tx := r.o.Begin(at)
			tx.Select(Databases - 1)
			return tx
		})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if r.o.Size() > effectBytes+len(key) {
			t.Errorf("%s: Size says %d for one key", what, r.o.Size())
		}
		if len(r.commit(t, last)) == 0 { // compares with Size
			t.Errorf("%s has no effects", what)
		}
	}
}
