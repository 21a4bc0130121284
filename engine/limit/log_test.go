package limit

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// TestLogEqualsSlice fails when the ring and a plain slice differ after any
// change, or when GrowBytes does not say what Apply adds.
func TestLogEqualsSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g Log
		var model []oracleEntry
		now := int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "changes") {
			var c LogChange
			now += rapid.Int64Range(0, 2).Draw(t, "step")
			// Long stretches of growing and of shrinking reach every size.
			if rapid.IntRange(0, 3).Draw(t, "drop") == 0 {
				c.Drop = rapid.IntRange(0, len(model)).Draw(t, "Drop")
			}
			if rapid.IntRange(0, 3).Draw(t, "pop") == 0 {
				c.Pop = rapid.IntRange(0, len(model)-c.Drop).Draw(t, "Pop")
			}
			model = model[c.Drop : len(model)-c.Pop]
			if n := len(model); n > 0 && model[n-1].cost > 1 && rapid.Bool().Draw(t, "trim") {
				c.Trim = rapid.Int64Range(1, model[n-1].cost-1).Draw(t, "Trim")
				model[n-1].cost -= c.Trim
			}
			if c.Cost = rapid.Int64Range(0, 5).Draw(t, "Cost"); c.Cost > 0 {
				c.At = now
				if n := len(model); n > 0 && model[n-1].at == now {
					model[n-1].cost += c.Cost
				} else {
					model = append(model, oracleEntry{now, c.Cost})
				}
			}
			before, grows := max(g.Bytes(), logBytes), g.GrowBytes(c)
			g.Apply(c)
			if added := g.Bytes() - before; max(added, 0) != grows {
				t.Fatalf("%+v added %d bytes, GrowBytes said %d", c, added, grows)
			}
			total := int64(0)
			if g.Len() != len(model) {
				t.Fatalf("%d entries after %+v, want %d", g.Len(), c, len(model))
			}
			for i, e := range model {
				at, cost := g.At(i)
				if at != e.at || cost != e.cost {
					t.Fatalf("entry %d is %d at %d after %+v, want %d at %d", i, cost, at, c, e.cost, e.at)
				}
				total += e.cost
			}
			if g.Total() != total {
				t.Fatalf("total %d, want %d", g.Total(), total)
			}
			if len(g.ring) > max(minEntries, 4*g.Len()+3) {
				t.Fatalf("room for %d is kept for %d entries", len(g.ring), g.Len())
			}
		}
	})
}

// TestNilLog fails when a nil log is anything but empty.
func TestNilLog(t *testing.T) {
	var g *Log
	if g.Len() != 0 || g.Total() != 0 || g.Bytes() != 0 {
		t.Errorf("a nil log has %d entries, total %d, %d bytes", g.Len(), g.Total(), g.Bytes())
	}
	l := WindowLimit{10, second}
	c, res, err := l.DecideLog(nil, 3, Consume, 5)
	if err != nil || c != (LogChange{At: 5, Cost: 3}) || res != (Result{Allowed: 1, Limit: 10, Remaining: 7, ResetMs: 1000}) {
		t.Errorf("decided %+v, %+v, %v", c, res, err)
	}
	made := new(Log)
	made.Apply(c)
	if grows := g.GrowBytes(c); grows != made.Bytes() {
		t.Errorf("a new log takes %d bytes, GrowBytes said %d", made.Bytes(), grows)
	}
	if grows := g.GrowBytes(LogChange{}); grows != 0 {
		t.Errorf("no change grows by %d bytes", grows)
	}
	if c, res := l.RefundLog(nil, 3, 5); c != (LogChange{}) || res != (Result{Allowed: 1, Limit: 10, Remaining: 10}) {
		t.Errorf("refunded %+v, %+v", c, res)
	}
	if c := l.ConvertLog(nil, WindowLimit{1, minute}, 5); c != (LogChange{}) {
		t.Errorf("converted %+v", c)
	}
	if l.LiveLog(nil, 5) != 0 || l.ExpiryLog(nil) != 0 {
		t.Error("a nil log lives")
	}
}

// TestLogBounds fails when a log takes more entries than it may, refuses what
// needs no new entry, or counts entries that have left.
func TestLogBounds(t *testing.T) {
	l := WindowLimit{MaxLogLimit, hour}
	g := new(Log)
	const start = int64(1_764_500_000_000_000_000)
	for i := range int64(MaxLogEntries) {
		c, res, err := l.DecideLog(g, 1, Force, start+i)
		if err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
		if want := int64(MaxLogLimit - 1 - i); res.Remaining != want {
			t.Fatalf("entry %d: remaining %d, want %d", i, res.Remaining, want)
		}
		g.Apply(c)
	}
	if g.Len() != MaxLogEntries || g.Bytes() > MaxLogEntries*16+logBytes {
		t.Fatalf("%d entries take %d bytes", g.Len(), g.Bytes())
	}
	last := start + MaxLogEntries - 1
	if c, res, err := l.DecideLog(g, 1, Force, last+1); !errors.Is(err, ErrLogFull) || c != (LogChange{}) || res != (Result{}) {
		t.Errorf("one entry too many: %+v, %+v, %v", c, res, err)
	}
	// The same time needs no entry, a look and a refusal neither.
	if c, _, err := l.DecideLog(g, 5, Force, last); err != nil || c.Cost != 5 || g.GrowBytes(c) != 0 {
		t.Errorf("at the time of the newest entry: %+v, %v", c, err)
	}
	for _, m := range []Mode{Peek, Consume} {
		c, res, err := l.DecideLog(g, 1, m, last+1)
		// The entry whose leaving makes room is the millionth and first, a
		// million ns ago.
		want := Result{Limit: MaxLogLimit, Remaining: -MaxLogLimit, WaitMs: 3_599_999, ResetMs: 3_600_000}
		if err != nil || c != (LogChange{}) || res != want {
			t.Errorf("mode %d: %+v, %+v, %v", m, c, res, err)
		}
	}
	// One has left: there is room for one.
	c, res, err := l.DecideLog(g, 1, Force, start+l.Period)
	if err != nil || c.Drop != 1 || res.Remaining != -MaxLogLimit {
		t.Errorf("after the oldest has left: %+v, %+v, %v", c, res, err)
	}
	if c, _, err := l.DecideLog(g, 1, Force, start+l.Period-1); !errors.Is(err, ErrLogFull) {
		t.Errorf("just before the oldest leaves: %+v, %v", c, err)
	}
	// FORCE's bound on the sum.
	g.Apply(LogChange{Drop: g.Len()})
	if g.Bytes() != logBytes+minEntries*16 {
		t.Errorf("an empty log keeps %d bytes", g.Bytes())
	}
	for i := range int64(2) {
		c, res, _ = l.DecideLog(g, MaxUnits, Force, start+i)
		g.Apply(c)
	}
	if g.Total() != MaxLogLimit+MaxUnits || res.Forgotten != MaxUnits-MaxLogLimit || res.Remaining != -MaxUnits {
		t.Errorf("total %d, %+v", g.Total(), res)
	}
	if c, res, _ = l.DecideLog(g, 7, Force, start+2); c != (LogChange{}) || res.Forgotten != 7 {
		t.Errorf("at the bound: %+v, %+v", c, res)
	}
	if l.LiveLog(g, start+l.Period-1) != 2 || l.LiveLog(g, start+l.Period) != 1 || l.LiveLog(g, start+l.Period+1) != 0 {
		t.Error("LiveLog counts what does not")
	}
}

// TestSumsWrap fails when a log depends on its running sum staying small.
func TestSumsWrap(t *testing.T) {
	l := WindowLimit{10, second}
	g := &Log{base: 1<<64 - 6}
	for i := range int64(3) {
		c, _, _ := l.DecideLog(g, 3, Consume, i)
		g.Apply(c)
	}
	want := Result{Limit: 10, Remaining: 1, WaitMs: 1000, ResetMs: 1000}
	if _, res, _ := l.DecideLog(g, 2, Consume, 2); res != want {
		t.Errorf("%+v, want %+v", res, want)
	}
	if c, res := l.RefundLog(g, 4, 2); c != (LogChange{Pop: 1, Trim: 1}) || res.Remaining != 5 {
		t.Errorf("refund: %+v, %+v", c, res)
	}
}

// TestSearchIsShort fails when finding an entry takes more than some
// logarithm of their number, or when nothing having left takes more than a
// look or two.
func TestSearchIsShort(t *testing.T) {
	const n = 1 << 20
	g := &Log{ring: make([]LogEntry, n), n: n, head: n / 3}
	for i := range n {
		*g.entry(i) = LogEntry{At: int64(i), Sum: uint64(i + 1)}
	}
	for _, want := range []int{0, 1, 5, n / 2, n - 1, n} {
		looks := 0
		got := g.search(0, func(e *LogEntry) bool {
			looks++
			return e.At >= int64(want)
		})
		if got != want {
			t.Errorf("found %d, want %d", got, want)
		}
		if looks > 45 || want <= 1 && looks > 3 {
			t.Errorf("%d looks for entry %d", looks, want)
		}
	}
}
