package table

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-dev/stint/engine/limit"
)

// view is an open view of a model, and what it must show still.
type view struct {
	t    *Table // nil: there is no view. A load leaves the table to it
	want map[string]state
}

// freeze opens a view, or goes on with the one that is open.
func (m *model) freeze(t *rapid.T) {
	w := &m.view
	if w.t == nil {
		*w = view{t: m.Table, want: maps.Clone(m.live)}
		maps.DeleteFunc(w.want, func(_ string, s state) bool { return s.expiry <= m.now })
		m.Freeze(m.now)
		return
	}
	saved := func(key, value []byte) {
		was, ok := w.want[string(key)]
		if v := copyOf(string(value)); !ok || stateOf(&v) != was {
			t.Fatalf("%.20q is shown as %v, was %v, awaited: %v", key, v, was, ok)
		}
		delete(w.want, string(key))
	}
	put := func(key []byte, v *limit.Value) { saved(key, limit.AppendValue(nil, v)) }
	if w.t.FrozenSome(rapid.SampledFrom([]int{1, 5, 50, 5000}).Draw(t, "places"), put, saved) {
		return
	}
	if len(w.want) > 0 {
		t.Fatalf("%d records of the view are not shown", len(w.want))
	}
	m.view = view{}
}

// thaw gives the view up.
func (m *model) thaw(t *rapid.T) {
	if m.view.t == nil {
		return
	}
	for m.view.t.FrozenSome(rapid.SampledFrom([]int{1, 5000}).Draw(t, "places"), nil, nil) {
	}
	m.view = view{}
}

// TestEveryChangeSavesForAView has one record be changed in each of the ways
// there are, between the beginning of a view and its walk, and fails when one of
// them forgets the view: then it shows the new state, twice or nothing.
func TestEveryChangeSavesForAView(t *testing.T) {
	long := []byte(strings.Repeat("long key ", 20))
	log := func(n int) *limit.Value {
		g := new(limit.Log)
		for i := range n {
			g.Apply(limit.LogChange{At: 9*second + int64(i), Cost: 1})
		}
		return &limit.Value{Kind: limit.KindLog, Limit: limit.Params{A: 10, C: second}, Log: g}
	}
	window := func(count int64) *limit.Value {
		return &limit.Value{Kind: limit.KindFixed, Limit: limit.Params{A: 10, C: second}, W: [3]int64{9 * second, count}}
	}
	sliding := &limit.Value{Kind: limit.KindSliding, Limit: limit.Params{A: 10, C: second}, W: [3]int64{9 * second, 1, 2}}
	put := func(v *limit.Value) func(*Table, Ref) error {
		return func(tab *Table, ref Ref) error { return tab.Put(tab.hash(long), long, ref, v) }
	}
	putLog := func(c limit.LogChange) func(*Table, Ref) error {
		return func(tab *Table, ref Ref) error { return tab.PutLog(tab.hash(long), long, ref, log(0).Limit, c) }
	}
	for name, c := range map[string]struct {
		before *limit.Value
		change func(*Table, Ref) error
	}{
		"a bucket in place": {bucketAt(9 * second), func(tab *Table, ref Ref) error {
			tab.PutBucket(ref, limit.Bucket{FullAt: 9*second + 1})
			return nil
		}},
		"a value of its kind": {window(1), put(window(2))},
		"another limit": {window(1), put(&limit.Value{
			Kind: limit.KindFixed, Limit: limit.Params{A: 11, C: second}, W: [3]int64{9 * second, 1},
		})},
		"an entry of a log":                 {log(2), putLog(limit.LogChange{At: 9*second + 5, Cost: 1})},
		"a log's oldest entry":              {log(2), putLog(limit.LogChange{Drop: 1})},
		"another log":                       {log(2), put(log(3))},
		"another kind that fits":            {sliding, put(log(3))},
		"another kind that fits not":        {log(2), put(sliding)},
		"a log where a window was":          {sliding, putLog(limit.LogChange{At: 9 * second, Cost: 1})},
		"a deletion":                        {bucketAt(9 * second), func(tab *Table, ref Ref) error { tab.Delete(tab.hash(long), ref, true); return nil }},
		"a deletion that nobody is told of": {log(2), func(tab *Table, ref Ref) error { tab.Delete(tab.hash(long), ref, false); return nil }},
		"a sweep": {bucketAt(9 * second), func(tab *Table, _ Ref) error {
			if tab.SweepPage(20*second) == 0 {
				return fmt.Errorf("nothing was swept")
			}
			return nil
		}},
		"memory for another": {bucketAt(9 * second), func(tab *Table, _ Ref) error {
			tab.SetNow(20 * second)
			tab.acct.budget.SetMax(1)
			defer tab.acct.budget.SetMax(0)
			key := bytes.Repeat([]byte("x"), 3000)
			if err := tab.Put(tab.hash(key), key, NoRef, bucketAt(90*second)); err != ErrFull {
				return fmt.Errorf("the budget refused nothing: %v", err)
			}
			return nil
		}},
		"a load": {bucketAt(9 * second), func(tab *Table, _ Ref) error { return tab.Load(tab.hash(long), long, bucketAt(11*second)) }},
		"gone and back": {bucketAt(9 * second), func(tab *Table, ref Ref) error {
			tab.Delete(tab.hash(long), ref, true)
			return tab.Put(tab.hash(long), long, NoRef, bucketAt(12*second))
		}},
		"gone, and its page with it": {bucketAt(9 * second), func(tab *Table, ref Ref) error {
			tab.Delete(tab.hash(long), ref, true)
			for i := range 100 {
				key := fmt.Append(nil, "short ", i)
				if err := tab.Put(tab.hash(key), key, NoRef, bucketAt(12*second)); err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		for _, track := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", tracked: ", track), func(t *testing.T) {
				tab := New(Options{Track: track, Hash: goodHash})
				before := string(limit.AppendValue(nil, c.before))
				v := copyOf(before)
				if err := store(tab, long, &v); err != nil {
					t.Fatal(err)
				}
				if track { // a cut that waits is a view of its own
					tab.Cut()
				}
				for round := range 2 {
					idle := tab.acct.bytes
					tab.Freeze(second)
					if round == 0 {
						if err := c.change(tab, tab.Find(tab.hash(long), long)); err != nil {
							t.Fatal(err)
						}
					}
					mustCheck(t, tab)
					want := map[string]string{string(long): before}
					if round == 1 {
						// The next view shows what became of it: the flags are alike.
						clear(want)
						tab.Scan(0, 1<<20, func(key []byte, v *limit.Value) { want[string(key)] = string(limit.AppendValue(nil, v)) })
					}
					got, shown := map[string]string{}, 0
					saved := func(key, value []byte) { got[string(key)] = string(value); shown++ }
					put := func(key []byte, v *limit.Value) { saved(key, limit.AppendValue(nil, v)) }
					for tab.FrozenSome(3, put, saved) {
					}
					if shown != len(want) || !maps.Equal(got, want) {
						t.Fatalf("view %d shows %d: %q, want %q", round, shown, got, want)
					}
					if round == 1 && tab.acct.bytes != idle {
						t.Fatalf("%d bytes more are reserved after a view", tab.acct.bytes-idle)
					}
					mustCheck(t, tab)
					if tab.watched != track {
						t.Fatal("without a view, writes still look for one")
					}
				}
				if !track {
					return
				}
				// What is saved for the view must not be missing in the cut.
				got := ""
				saved := func(key, value []byte) {
					if bytes.Equal(key, long) {
						got = string(value)
					}
				}
				for tab.DrainSome(3, func(key []byte, v *limit.Value) { saved(key, limit.AppendValue(nil, v)) }, saved, func([]byte) {}) {
				}
				if got != before && name != "a load" {
					t.Fatalf("the cut shows %q, want %q", got, before)
				}
			})
		}
	}
}

// TestWhatHadRunOutIsNotSaved fails when a view shows, or keeps, what had expired
// when it began, or keeps what nobody will look at.
func TestWhatHadRunOutIsNotSaved(t *testing.T) {
	tab := New(Options{Hash: goodHash})
	for i := range 100 {
		if err := store(tab, fmt.Append(nil, i), bucketAt(int64(i+1)*second)); err != nil {
			t.Fatal(err)
		}
	}
	tab.Freeze(50 * second)
	for tab.SweepPage(60*second) > 0 {
	}
	if n := tab.frozen.saved.n; n != 10 {
		t.Errorf("%d records were saved, want the 10 that were of use", n)
	}
	if !tab.FrozenSome(1, nil, nil) {
		t.Fatal("the view is at its end")
	}
	for i := range 100 {
		remove(tab, fmt.Append(nil, i))
	}
	if n := tab.frozen.saved.n; n != 9 {
		t.Errorf("%d records are saved for a view that was given up, want the 9 from before", n)
	}
	for tab.FrozenSome(7, nil, nil) {
	}
	mustCheck(t, tab)
}

// TestAViewOfAPageThatTookAnotherSize fails when a walk goes on in the middle of a
// record, because the page holds larger ones than when it stopped there.
func TestAViewOfAPageThatTookAnotherSize(t *testing.T) {
	tab := New(Options{Hash: goodHash})
	var keys [][]byte
	for i := range 25 { // they fill the first page of their class, 1 KiB, but for a few
		keys = append(keys, fmt.Append(nil, i))
		if err := store(tab, keys[i], bucketAt(9*second)); err != nil {
			t.Fatal(err)
		}
	}
	tab.Freeze(second)
	seen := map[string]int{}
	put := func(key []byte, _ *limit.Value) { seen[string(key)]++ }
	saved := func(key, _ []byte) { seen[string(key)]++ }
	tab.FrozenSome(10, put, saved)
	page := tab.frozen.page
	for _, k := range keys {
		remove(tab, k)
	}
	// Each 8 bytes of this key look like a bucket that was not seen.
	looks := bytes.Repeat([]byte{1, 0, byte(limit.KindBucket), 0, 0, 0, 0, 0}, 12)
	for i := range 8 {
		if err := store(tab, append(looks, byte(i)), bucketAt(9*second)); err != nil {
			t.Fatal(err)
		}
	}
	if p := &tab.slab.pages[page]; p.size() <= 40 || int(p.carved)*p.size() <= tab.frozen.slot || tab.frozen.slot%p.size() == 0 {
		t.Fatalf("the walk stands at %d of a page of %d slots of %d", tab.frozen.slot, p.carved, p.size())
	}
	for tab.FrozenSome(1, put, saved) {
	}
	for _, k := range keys {
		if seen[string(k)] != 1 {
			t.Errorf("%s is shown %d times", k, seen[string(k)])
		}
	}
	if len(seen) != len(keys) {
		t.Errorf("%d keys are shown, want %d", len(seen), len(keys))
	}
	mustCheck(t, tab)
}

// TestAViewAllocatesNothingLasting fails when the changes that save for a view
// make garbage, once the chunks for it are there.
func TestAViewAllocatesNothingLasting(t *testing.T) {
	tab := New(Options{Hash: goodHash})
	keys := make([][]byte, 40)
	for i := range keys {
		keys[i] = fmt.Append(nil, "key ", i)
		if err := store(tab, keys[i], bucketAt(second)); err != nil {
			t.Fatal(err)
		}
	}
	at := second
	nothing := func([]byte, *limit.Value) {}
	nothingSaved := func([]byte, []byte) {}
	tab.Freeze(0)
	if n := allocs(100, func() {
		at++
		for _, k := range keys {
			tab.PutBucket(tab.Find(tab.hash(k), k), limit.Bucket{FullAt: at})
		}
		for tab.FrozenSome(10, nothing, nothingSaved) {
		}
		tab.Freeze(0)
	}); n > 2 {
		t.Errorf("%v allocations for 40 saved records", n)
	}
}
