package limit

import "testing"

// windowStep is one decision of a table, at ms after a multiple of the period.
type windowStep struct {
	ms   int64
	cost int64
	mode Mode
	want Result
}

// TestFixedByHand works a window of 10 units per second through by hand.
func TestFixedByHand(t *testing.T) {
	l := WindowLimit{10, second}
	const t0 = 1_764_500_000 * second
	var w Fixed
	for i, c := range []windowStep{
		{300, 0, Consume, Result{1, 10, 10, 0, 0, 0}},
		{300, 4, Consume, Result{1, 10, 6, 0, 700, 0}},
		{300, 7, Consume, Result{0, 10, 6, 700, 700, 0}},
		{300, 11, Peek, Result{0, 10, 6, -1, 700, 0}},
		{999, 6, Peek, Result{1, 10, 6, 0, 1, 0}},
		{999, 6, Consume, Result{1, 10, 0, 0, 1, 0}},
		{999, 3, Force, Result{1, 10, -3, 0, 1, 0}},
		{999, 0, Consume, Result{0, 10, -3, 1, 1, 0}},
		{999, 0, Force, Result{1, 10, -3, 0, 1, 0}},
		{1000, 0, Consume, Result{1, 10, 10, 0, 0, 0}},
		{1000, 10, Consume, Result{1, 10, 0, 0, 1000, 0}},
		{1000, MaxUnits, Force, Result{1, 10, -MaxUnits, 0, 1000, 0}},
		{1000, 5, Force, Result{1, 10, -MaxUnits, 0, 1000, 5}},
	} {
		var got Result
		if w, got = l.DecideFixed(w, c.cost, c.mode, t0+c.ms*millisecond); got != c.want {
			t.Errorf("step %d at %d ms: %+v, want %+v", i, c.ms, got, c.want)
		}
		if w.Count == 0 && w != (Fixed{}) {
			t.Errorf("step %d: as new is %+v", i, w)
		}
	}
	if w.Expiry(l) != t0+2*second {
		t.Errorf("expires at %d", w.Expiry(l))
	}
	// A lower limit never lowers a count that FORCE made under a higher one.
	low := WindowLimit{1, second}
	if w, got := low.DecideFixed(w, 1, Force, t0+second); w.Count != 10+MaxUnits || got.Forgotten != 1 {
		t.Errorf("under a lower limit: %+v, %+v", w, got)
	}
	// Another period: kept while its window is not over.
	w = Fixed{Start: t0, Count: 4}
	wide := WindowLimit{10, 7 * second}
	if got := wide.ConvertFixed(w, l, t0+999*millisecond); got != (Fixed{Start: t0 - t0%(7*second), Count: 4}) {
		t.Errorf("converted to %+v", got)
	}
	if got := wide.ConvertFixed(w, l, t0+second); got != (Fixed{}) {
		t.Errorf("converted to %+v after its end", got)
	}
	for units, want := range map[int64]Fixed{3: {t0, 1}, 4: {}, 5: {}} {
		if got, res := l.RefundFixed(w, units, t0+5); got != want || res.Remaining != 10-want.Count {
			t.Errorf("%d units back: %+v, %+v", units, got, res)
		}
	}
}

// TestRefundAfterTheEnd fails when units come back to a window that is over.
func TestRefundAfterTheEnd(t *testing.T) {
	l := WindowLimit{10, second}
	want := Result{Allowed: 1, Limit: 10, Remaining: 10}
	if w, res := l.RefundFixed(Fixed{second, 5}, 1, 2*second); w != (Fixed{}) || res != want {
		t.Errorf("fixed: %+v, %+v", w, res)
	}
	if w, res := l.RefundSliding(Sliding{second, 5, 5}, 1, 3*second); w != (Sliding{}) || res != want {
		t.Errorf("sliding: %+v, %+v", w, res)
	}
	if c, res := l.RefundLog(logOf(second, 5), 1, 2*second); c != (LogChange{Drop: 1}) || res != want {
		t.Errorf("log: %+v, %+v", c, res)
	}
}

// TestSlidingByHand works a window of 10 units per second through by hand.
func TestSlidingByHand(t *testing.T) {
	l := WindowLimit{10, second}
	const t0 = 1_764_500_000 * second
	var w Sliding
	for i, c := range []windowStep{
		{0, 0, Consume, Result{1, 10, 10, 0, 0, 0}},
		{500, 10, Consume, Result{1, 10, 0, 0, 1500, 0}},
		// In the next window 1 of 10 has faded after a tenth of it.
		{500, 1, Consume, Result{0, 10, 0, 600, 1500, 0}},
		{1099, 1, Consume, Result{0, 10, 0, 1, 901, 0}},
		{1100, 1, Consume, Result{1, 10, 0, 0, 1900, 0}},
		{1100, 10, Peek, Result{0, 10, 0, 1900, 1900, 0}},
		{1101, 1, Consume, Result{0, 10, 0, 99, 1899, 0}},
		{1101, 11, Consume, Result{0, 10, 0, -1, 1899, 0}},
		{1950, 1, Consume, Result{1, 10, 7, 0, 1050, 0}}, // ½ + 2
		{1950, 9, Force, Result{1, 10, -2, 0, 1050, 0}},
		{1950, 0, Consume, Result{0, 10, -2, 141, 1050, 0}}, // 11·(1 − e) ≤ 10
		{2090, 0, Consume, Result{0, 10, -1, 1, 910, 0}},
		{2091, 0, Consume, Result{1, 10, 0, 0, 909, 0}},
		{2999, 10, Consume, Result{0, 10, 9, 1, 1, 0}},
		{3000, 10, Consume, Result{1, 10, 0, 0, 2000, 0}},
		{3000, MaxUnits, Force, Result{1, 10, -MaxUnits, 0, 2000, 0}},
		{3000, 2, Force, Result{1, 10, -MaxUnits, 0, 2000, 2}},
		{4000, 0, Force, Result{1, 10, -MaxUnits, 0, 1000, 0}},
		{5000, 0, Consume, Result{1, 10, 10, 0, 0, 0}},
	} {
		var got Result
		if w, got = l.DecideSliding(w, c.cost, c.mode, t0+c.ms*millisecond); got != c.want {
			t.Errorf("step %d at %d ms: %+v, want %+v", i, c.ms, got, c.want)
		}
	}
	if w != (Sliding{}) {
		t.Errorf("as new is %+v", w)
	}
	w = Sliding{Start: t0, Prev: 5, Cur: 2}
	for units, want := range map[int64]Sliding{1: {t0, 5, 1}, 2: {t0, 5, 0}, 6: {t0, 1, 0}, 7: {}, 8: {}} {
		if got, _ := l.RefundSliding(w, units, t0+1); got != want {
			t.Errorf("%d units back: %+v", units, got)
		}
	}
	// Another period: the estimate, rounded up, counts from now on.
	wide := WindowLimit{3, 7 * second}
	const start = t0 - t0%(7*second)
	for ms, cur := range map[int64]int64{0: 7, 1: 7, 199: 7, 200: 6, 201: 6, 999: 3, 1000: 2, 1500: 1, 1999: 1} {
		want := Sliding{Start: start, Cur: cur}
		if got, forgotten := wide.ConvertSliding(w, l, t0+ms*millisecond); got != want || forgotten != 0 {
			t.Errorf("converted after %d ms to %+v, forgotten %d, want %+v", ms, got, forgotten, want)
		}
	}
	if got, _ := wide.ConvertSliding(w, l, t0+2*second); got != (Sliding{}) {
		t.Errorf("converted as new to %+v", got)
	}
	w = Sliding{Start: t0, Prev: MaxUnits, Cur: MaxUnits}
	if got, forgotten := wide.ConvertSliding(w, l, t0); got.Cur != 3+MaxUnits || forgotten != MaxUnits-3 {
		t.Errorf("cut to %+v, forgotten %d", got, forgotten)
	}
	if end := (Sliding{Start: MaxPeriod, Prev: 1, Cur: 1}).Expiry(WindowLimit{1, MaxPeriod}); end != 3*(1<<61) {
		t.Errorf("the latest expires at %d", end)
	}
}

// TestLogByHand works a log of 10 units per second through by hand.
func TestLogByHand(t *testing.T) {
	l := WindowLimit{10, second}
	const t0 = 1_764_500_000 * second
	g := new(Log)
	for i, c := range []windowStep{
		{0, 4, Consume, Result{1, 10, 6, 0, 1000, 0}},
		{100, 3, Consume, Result{1, 10, 3, 0, 1000, 0}},
		{100, 3, Consume, Result{1, 10, 0, 0, 1000, 0}},
		{200, 4, Consume, Result{0, 10, 0, 800, 900, 0}},
		{200, 5, Consume, Result{0, 10, 0, 900, 900, 0}},
		{200, 11, Peek, Result{0, 10, 0, -1, 900, 0}},
		{999, 1, Consume, Result{0, 10, 0, 1, 101, 0}},
		{1000, 4, Peek, Result{1, 10, 4, 0, 100, 0}},
		{1000, 5, Force, Result{1, 10, -1, 0, 1000, 0}},
		{1000, 0, Consume, Result{0, 10, -1, 100, 1000, 0}},
		{1000, 0, Force, Result{1, 10, -1, 0, 1000, 0}},
		{1100, 0, Consume, Result{1, 10, 5, 0, 900, 0}},
		{2000, 0, Consume, Result{1, 10, 10, 0, 0, 0}},
	} {
		change, got, err := l.DecideLog(g, c.cost, c.mode, t0+c.ms*millisecond)
		if err != nil || got != c.want {
			t.Errorf("step %d at %d ms: %+v, %v, want %+v", i, c.ms, got, err, c.want)
		}
		g.Apply(change)
	}
	if g.Len() != 2 || g.Total() != 11 {
		t.Errorf("%d entries of %d units are left: equal times are one entry, and what has left goes", g.Len(), g.Total())
	}

	g = logOf(t0, 4, t0+100*millisecond, 6)
	for units, want := range map[int64]LogChange{
		0: {}, 5: {Trim: 5}, 6: {Pop: 1}, 7: {Pop: 1, Trim: 1}, 10: {Drop: 2}, 11: {Drop: 2},
	} {
		change, res := l.RefundLog(g, units, t0+100*millisecond)
		if change != want || res.Remaining != min(units, 10) {
			t.Errorf("%d units back: %+v, %+v", units, change, res)
		}
	}
	if change, res := l.RefundLog(g, 2, t0+second); change != (LogChange{Drop: 1, Trim: 2}) || res != (Result{1, 10, 6, 0, 100, 0}) {
		t.Errorf("units back after the oldest left: %+v, %+v", change, res)
	}

	// Another period: what has left under either is gone for good.
	half, double := WindowLimit{10, second / 2}, WindowLimit{10, 2 * second}
	for _, c := range []struct {
		l    WindowLimit
		ms   int64
		drop int
	}{
		{half, 499, 0}, {half, 500, 1}, {half, 600, 2},
		{double, 999, 0}, {double, 1000, 1}, {double, 1100, 2},
	} {
		now := t0 + c.ms*millisecond
		change := c.l.ConvertLog(g, l, now)
		if change != (LogChange{Drop: c.drop}) {
			t.Errorf("converted to %+v after %d ms: %+v", c.l, c.ms, change)
		}
		// A look that does not store the conversion sees it all the same.
		_, res, _ := c.l.DecideLogFrom(g, change.Drop, 1, Peek, now)
		if want := []int64{0, 4, 10}[c.drop]; res.Remaining != want {
			t.Errorf("a look under %+v after %d ms: %+v", c.l, c.ms, res)
		}
	}
}
