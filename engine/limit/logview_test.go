package limit

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// entriesOf are all entries of a log.
func entriesOf(g *Log) []oracleEntry {
	var all []oracleEntry
	for i := range g.Len() {
		at, cost := g.At(i)
		all = append(all, oracleEntry{at, cost})
	}
	return all
}

// TestAViewChangesAsTheLogWould fails when a view and a copy of its log differ
// after any change, when the log itself has changed, or when what Changed tells
// does not make the one from the other.
func TestAViewChangesAsTheLogWould(t *testing.T) {
	var v Log // one view's memory serves all
	rapid.Check(t, func(t *rapid.T) {
		var g Log
		now := int64(0)
		change := func(on *Log) (c LogChange) {
			now += rapid.Int64Range(0, 2).Draw(t, "step")
			n := on.Len()
			if rapid.Bool().Draw(t, "drop") {
				c.Drop = rapid.IntRange(0, n).Draw(t, "Drop")
			}
			if rapid.IntRange(0, 2).Draw(t, "pop") == 0 {
				c.Pop = rapid.IntRange(0, n-c.Drop).Draw(t, "Pop")
			}
			if left := n - c.Pop; left > c.Drop {
				if _, cost := on.At(left - 1); cost > 1 && rapid.Bool().Draw(t, "trim") {
					c.Trim = rapid.Int64Range(1, cost-1).Draw(t, "Trim")
				}
			}
			c.At, c.Cost = now, rapid.Int64Range(0, 5).Draw(t, "Cost")
			return c
		}
		// Drops among the additions, so that the ring's oldest is anywhere in it.
		for range rapid.IntRange(0, 30).Draw(t, "history") {
			g.Apply(LogChange{Drop: min(g.Len(), rapid.IntRange(0, 2).Draw(t, "leave")), At: now, Cost: 3})
			now++
		}
		before, copied := entriesOf(&g), Log{ring: slices.Clone(g.ring), head: g.head, n: g.n, base: g.base}
		g.View(&v)
		for range rapid.IntRange(0, 8).Draw(t, "changes") {
			c := change(&v)
			v.Apply(c)
			copied.Apply(c)
			if got, want := entriesOf(&v), entriesOf(&copied); !slices.Equal(got, want) || v.Total() != copied.Total() {
				t.Fatalf("after %+v the view is %v, want %v", c, got, want)
			}
			if !slices.Equal(entriesOf(&g), before) {
				t.Fatalf("after %+v of a view the log is %v, and was %v", c, entriesOf(&g), before)
			}
		}
		drop, pop, kept := v.Changed()
		made := slices.Concat(before[drop:len(before)-pop], entriesOf(&v)[kept:])
		if len(before)-drop-pop != kept || !slices.Equal(made, entriesOf(&v)) {
			t.Fatalf("dropping %d and %d and adding all from %d on makes %v of %v, not %v", drop, pop, kept, made, before, entriesOf(&v))
		}
	})
}

// TestAViewOfNoLogIsEmpty fails when views of nothing share what is written to
// one of them, or keep what they were of.
func TestAViewOfNoLogIsEmpty(t *testing.T) {
	var a, b Log
	var none *Log
	a.Apply(LogChange{At: 1, Cost: 1})
	a.View(&b)
	b.Apply(LogChange{At: 2, Cost: 1})
	none.View(&b)
	if b.Len() != 0 || b.Total() != 0 || b.ring != nil {
		t.Fatalf("%d entries, total %d, room for %d", b.Len(), b.Total(), len(b.ring))
	}
	b.Apply(LogChange{At: 3, Cost: 7})
	var c Log
	none.View(&c)
	if c.Len() != 0 || b.Total() != 7 || noLog.n != 0 {
		t.Errorf("another view has %d entries, the first a total of %d", c.Len(), b.Total())
	}
	if drop, pop, kept := b.Changed(); drop != 0 || pop != 0 || kept != 0 {
		t.Errorf("changed %d, %d, %d", drop, pop, kept)
	}
}
