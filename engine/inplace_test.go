package engine

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-dev/stint/engine/limit"
)

// inFull is the direct backing under another type, so that no decision is made
// in place.
type inFull struct{ *direct }

// Decisions in place and in full are two pieces of code for one thing: the same
// calls, the same answers, the same state, counts and changes.
func TestInPlaceAndInFullDecideTheSame(t *testing.T) {
	limits := []limit.BucketLimit{
		{Capacity: 3, Rate: limit.Rate{Count: 1, Period: 1_000_000_000}},
		{Capacity: 10, Rate: limit.Rate{Count: 7, Period: 3_000_000_000}},
		{Capacity: limit.MaxUnits, Rate: limit.Rate{Count: limit.MaxUnits, Period: 1}},
		{Capacity: 1, Rate: limit.Rate{Count: 1, Period: limit.MaxFill}},
	}
	rapid.Check(t, func(t *rapid.T) {
		track := rapid.Bool().Draw(t, "track")
		var spaces [2]*Keyspace
		var txs [2]Tx
		for i := range spaces {
			ks, err := New(Options{Shards: 2, Track: track})
			if err != nil {
				t.Fatal(err)
			}
			spaces[i] = ks
			ks.BeginInto(&txs[i], 0)
		}
		spaces[1].seed = spaces[0].seed // the same keys in the same shards
		now := int64(1_700_000_000_000_000_000)
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			now += rapid.SampledFrom([]int64{-1000, 0, 1, 999_999, 400_000_000, 5_000_000_000}).Draw(t, "later")
			key := []byte{rapid.SampledFrom([]byte("abc")).Draw(t, "key")}
			l := rapid.SampledFrom(limits).Draw(t, "limit")
			cost := rapid.OneOf(rapid.Int64Range(0, 5), rapid.Just(int64(limit.MaxUnits))).Draw(t, "cost")
			m := rapid.SampledFrom([]limit.Mode{limit.Consume, limit.Peek, limit.Force, limit.AtMost}).Draw(t, "mode")
			what := rapid.SampledFrom([]string{"throttle", "throttle", "throttle", "leak", "fixed", "refund", "sweep", "cut"}).Draw(t, "call")
			var said [2]string
			for i, ks := range spaces {
				tx := &txs[i]
				ks.BeginInto(tx, now)
				if i == 1 {
					tx.b = inFull{&tx.direct}
				}
				var r limit.Result
				var err error
				switch what {
				case "throttle":
					r, err = tx.Throttle(key, l, cost, m)
				case "leak":
					r, err = tx.Leak(key, l, cost, m&1)
				case "fixed":
					r, err = tx.Window(limit.KindFixed, key, limit.WindowLimit{Limit: 5, Period: 1_000_000_000}, cost, m&1)
				case "refund":
					r, err = tx.Refund(key, cost)
				}
				tx.End()
				if what == "sweep" {
					ks.Sweep(2)
				}
				if what == "cut" && track {
					drainAll(ks)
				}
				in, there := tx.Inspect(key)
				tx.End()
				said[i] = fmt.Sprintf("%+v %v %+v %v %+v", r, err, in, there, ks.Stats(now))
			}
			if said[0] != said[1] {
				t.Fatalf("%s at %d\nin place: %s\nin full:  %s", what, now, said[0], said[1])
			}
		}
	})
}

// A bucket that has filled up and then refuses is not written: what it holds is
// what a drain has shown.
func TestARefusalOfAFullBucketChangesNothing(t *testing.T) {
	ks, err := New(Options{Shards: 1, Track: true})
	if err != nil {
		t.Fatal(err)
	}
	l := limit.BucketLimit{Capacity: 3, Rate: limit.Rate{Count: 1, Period: 1_000_000_000}}
	tx := ks.Begin(1_700_000_000_000_000_000)
	if r, err := tx.Throttle([]byte("k"), l, 2, limit.Consume); r.Allowed != 1 || err != nil {
		t.Fatal(r, err)
	}
	tx.End()
	drainAll(ks)
	ks.BeginInto(tx, 1_700_000_100_000_000_000)
	if r, err := tx.Throttle([]byte("k"), l, 4, limit.Consume); r.Allowed != 0 || err != nil {
		t.Fatal(r, err)
	}
	tx.End()
	if n := ks.Changed(); n != 0 {
		t.Fatalf("%d changes after a refusal", n)
	}
}

// drainAll drains a cut to nowhere.
func drainAll(ks *Keyspace) {
	c := ks.Cut()
	for more := true; more; {
		_, more = c.Append(nil, 1<<10)
	}
}
