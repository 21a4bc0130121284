package table

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
)

// A large need that is refused must not be in the way of a small one.
func TestRefusedReserveIsInNobodysWay(t *testing.T) {
	b := NewBudget(1000)
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if b.Reserve(1001) {
					t.Error("the bound is passed")
				}
			}
		})
	}
	refused := 0
	for range 500_000 {
		if !b.Reserve(1) {
			refused++
			continue
		}
		b.Release(1)
	}
	close(done)
	wg.Wait()
	if refused > 0 || b.Used() != 0 {
		t.Errorf("%d small needs were refused, %d bytes are left reserved", refused, b.Used())
	}
}

// full is a table at its budget's bound that refuses new buckets and windows,
// tracked or not, with limits of their own.
func full(t *testing.T) *Table {
	t.Helper()
	b := NewBudget(256 << 10)
	tab := New(Options{Budget: b, Track: true, Hash: goodHash})
	for i := 0; ; i++ {
		v := bucketAt(second)
		v.Limit.A += int64(i % 100)
		if err := store(tab, fmt.Append(nil, "key", i), v); err != nil {
			break
		}
	}
	b.SetMax(b.Used())
	return tab
}

func TestRefusedInsertMakesNoGarbage(t *testing.T) {
	tab := full(t)
	b := tab.acct.budget
	v := bucketAt(second)
	large := make([]byte, 4000)
	p, c := limit.Params{A: 3, C: second}, limit.LogChange{At: 1, Cost: 1}
	i := 0
	refused := map[string]func() error{
		"a bucket":            func() error { return tab.insert(tab.hash(large[:9]), large[:9], v, limit.LogChange{}) },
		"a large key":         func() error { return tab.insert(tab.hash(large), large, v, limit.LogChange{}) },
		"a log":               func() error { return tab.PutLog(7, large[:200], NoRef, p, c) },
		"a log of a new page": func() error { return tab.PutLog(7, large[:3], NoRef, p, c) },
		"a limit of its own": func() error {
			i++
			w := limit.Value{Kind: limit.KindSliding, Limit: limit.Params{A: int64(1000 + i), C: second}}
			return tab.Put(uint64(i)<<20, large[:700], NoRef, &w)
		},
	}
	for name, f := range refused {
		if a := allocs(1000, func() {
			if f() == nil {
				t.Fatal(name, "is not refused")
			}
		}); a > 0 {
			t.Errorf("%s: %v allocations for a refusal", name, a)
		}
	}
	mustCheck(t, tab)

	// A key that comes and goes alone in its page beside refusals that the
	// page cannot help: it is kept for the key.
	lone := make([]byte, 100)
	b.SetMax(b.Used() + 1<<10)
	come := func() {
		if err := tab.insert(tab.hash(lone), lone, v, limit.LogChange{}); err != nil {
			t.Fatal(err)
		}
	}
	come()
	remove(tab, lone)
	if a := allocs(1000, func() {
		for _, name := range []string{"a large key", "a limit of its own"} {
			if refused[name]() == nil {
				t.Fatal(name, "is not refused")
			}
		}
		come()
		remove(tab, lone)
	}); a > 0 {
		t.Errorf("%v allocations for a key that comes and goes beside refusals", a)
	}
	mustCheck(t, tab)
}

// Of the pages that are kept only as many go as are needed.
func TestSparesGoByNeed(t *testing.T) {
	s := &slab{acct: &account{budget: NewBudget(0)}}
	keep := func() {
		for i := range s.spare {
			if s.spare[i] == nil {
				s.spare[i] = make([]byte, 1<<(minPageShift+i))
				s.acct.must(1 << (minPageShift + i))
			}
		}
	}
	const all = (1<<pageSizes - 1) << minPageShift
	for _, c := range []struct {
		need, left int64
		ok         bool
	}{
		{1, all - 1<<10, true}, {1 << 10, all - 1<<10, true}, {1<<10 + 1, all - 3<<10, true},
		{all - 1, 0, true}, {all, 0, true}, {all + 1, all, false}, {0, 0, true},
	} {
		keep()
		if ok := s.dropSpares(c.need); ok != c.ok || s.acct.bytes != c.left {
			t.Errorf("for %d bytes: %v, %d are left of %d, want %d", c.need, ok, s.acct.bytes, int64(all), c.left)
		}
	}
}

// A page that is kept and what is left below the bound make room together; one
// byte less does not, and then the page stays.
func TestSpareMakesUpWhatLacks(t *testing.T) {
	for lack := range int64(2) {
		b := NewBudget(0)
		tab := New(Options{Budget: b, Hash: goodHash})
		small, large := []byte("small"), make([]byte, 200) // pages of 1 and 2 KiB
		if err := store(tab, small, bucketAt(second)); err != nil {
			t.Fatal(err)
		}
		remove(tab, small)
		b.SetMax(b.Used() + 1<<10 - lack)
		before := b.Used()
		switch err := store(tab, large, bucketAt(second)); {
		case lack == 0 && err != nil:
			t.Error("an emptied page is held back:", err)
		case lack == 1 && (err == nil || b.Used() != before):
			t.Errorf("%v, %d bytes were given back in vain", err, before-b.Used())
		}
		mustCheck(t, tab)
	}
}

// After a count, pages whose records were all written again are not read by
// the next one.
func TestCountMakesMinimaExact(t *testing.T) {
	tab := New(Options{Hash: goodHash})
	write := func(at int64) {
		for i := range 1000 {
			if err := store(tab, fmt.Append(nil, i), bucketAt(at+int64(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(second)
	write(9 * second)
	stale := func(now int64) (n int) {
		for i := range tab.slab.pages {
			if tab.slab.pages[i].least <= now {
				n++
			}
		}
		return n
	}
	now := 2 * second
	if stale(now) == 0 {
		t.Fatal("no page is stale")
	}
	if n := tab.CountLive(now); n != 1000 || stale(now) != 0 {
		t.Errorf("%d live records, %d pages to be read again", n, stale(now))
	}
	mustCheck(t, tab)
	// Counting must not hide from the sweep what expires later, or has.
	if n := tab.CountLive(9*second + 500); n != 500 {
		t.Errorf("%d live records, want 500", n)
	}
	mustCheck(t, tab)
	for tab.SweepPage(9*second+500) > 0 {
	}
	if tab.Len() != 500 {
		t.Errorf("%d records are left, want 500", tab.Len())
	}
	mustCheck(t, tab)
}
