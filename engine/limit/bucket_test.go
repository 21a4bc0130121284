package limit

import "testing"

// TestBucketByHand works a bucket of 10 units at 20 per second through by hand.
func TestBucketByHand(t *testing.T) {
	l := BucketLimit{10, Rate{20, second}}
	const t0 = int64(1_764_500_000_000_000_000)
	var b Bucket
	for i, c := range []struct {
		ms   int64
		cost int64
		mode Mode
		want Result
	}{
		{0, 1, Peek, Result{1, 10, 10, 0, 0, 0}},
		{0, 4, Consume, Result{1, 10, 6, 0, 200, 0}},
		{0, 7, Consume, Result{0, 10, 6, 50, 200, 0}},
		{0, 11, Consume, Result{0, 10, 6, -1, 200, 0}},
		{49, 7, Consume, Result{0, 10, 6, 1, 151, 0}},
		{49, 7, Peek, Result{0, 10, 6, 1, 151, 0}},
		{50, 7, Peek, Result{1, 10, 7, 0, 150, 0}},
		{50, 7, Consume, Result{1, 10, 0, 0, 500, 0}},
		{50, 1, AtMost, Result{0, 10, 0, 50, 500, 0}},
		{150, 9, AtMost, Result{2, 10, 0, 0, 500, 0}},
		{150, 0, AtMost, Result{0, 10, 0, 0, 500, 0}},
		{150, 0, Consume, Result{1, 10, 0, 0, 500, 0}},
		{150, 5, Force, Result{1, 10, -5, 0, 750, 0}},
		{150, 0, Consume, Result{0, 10, -5, 250, 750, 0}},
		{150, 0, AtMost, Result{0, 10, -5, 250, 750, 0}},
		{150, 0, Force, Result{1, 10, -5, 0, 750, 0}},
		{150, 3, AtMost, Result{0, 10, -5, 300, 750, 0}},
		{900, 0, Consume, Result{1, 10, 10, 0, 0, 0}},
		{900, 20, Force, Result{1, 10, -10, 0, 1000, 0}},
	} {
		var got Result
		before := b
		b, got = l.Decide(b, c.cost, c.mode, t0+c.ms*millisecond)
		if got != c.want {
			t.Errorf("step %d, %+v at %d ms: %+v, want %+v", i, before, c.ms, got, c.want)
		}
	}
}

// TestForceIsBoundByUnits fails when FORCE lets more be used than the capacity
// and MaxUnits, or when what it did not record is not told.
func TestForceIsBoundByUnits(t *testing.T) {
	l := BucketLimit{10, Rate{1_000_000_000, second}} // a unit per ns
	b, _ := l.Decide(Bucket{}, 20, Force, 5)
	for _, c := range []struct{ cost, remaining, resetMs, forgotten int64 }{
		{MaxUnits - 11, 10 - 20 - (MaxUnits - 11), 9_007_199_255, 0},
		{2, -MaxUnits, 9_007_199_255, 1},
		{1, -MaxUnits, 9_007_199_255, 1},
		{MaxUnits, -MaxUnits, 9_007_199_255, MaxUnits},
	} {
		var got Result
		b, got = l.Decide(b, c.cost, Force, 5)
		want := Result{Allowed: 1, Limit: 10, Remaining: c.remaining, ResetMs: c.resetMs, Forgotten: c.forgotten}
		if got != want {
			t.Errorf("%d: %+v, want %+v", c.cost, got, want)
		}
	}
}

// TestForceIsBoundByTimeToo fails when FORCE lets a bucket need more than
// 2^62 ns to fill.
func TestForceIsBoundByTimeToo(t *testing.T) {
	l := BucketLimit{1, Rate{1, second}}
	// 2^62 ns refill 4611686018.427387904 units.
	b, got := l.Decide(Bucket{}, MaxUnits, Force, MaxTime)
	want := Result{Allowed: 1, Limit: 1, Remaining: 1 - 4611686019, ResetMs: 4611686018428, Forgotten: MaxUnits - 4611686018}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if b != (Bucket{FullAt: 1<<63 - 1}) || b.Expiry() != 1<<63-1 {
		t.Errorf("bucket %+v, expires at %d", b, b.Expiry())
	}
}

// TestFullBucketIsNone fails when a full bucket is not the zero Bucket, or one
// that is not quite full is.
func TestFullBucketIsNone(t *testing.T) {
	l := BucketLimit{5, Rate{3, second}}
	b, _ := l.Decide(Bucket{}, 1, Consume, 1000) // full after 333,333,333⅓ ns
	if want := (Bucket{FullAt: 333_334_333, Rem: 1}); b != want {
		t.Fatalf("%+v, want %+v", b, want)
	}
	if b.Expiry() != 333_334_334 {
		t.Errorf("expires at %d", b.Expiry())
	}
	for _, c := range []struct {
		now  int64
		want Bucket
		res  Result
	}{
		{333_334_333, b, Result{Allowed: 1, Limit: 5, Remaining: 4, ResetMs: 1}},
		{333_334_334, Bucket{}, Result{Allowed: 1, Limit: 5, Remaining: 5}},
		{333_334_335, Bucket{}, Result{Allowed: 1, Limit: 5, Remaining: 5}},
	} {
		got, res := l.Decide(b, 0, Consume, c.now)
		if got != c.want || res != c.res {
			t.Errorf("at %d: %+v, %+v", c.now, got, res)
		}
		if got, _ = l.Convert(b, l, c.now); got != c.want {
			t.Errorf("converted at %d: %+v", c.now, got)
		}
	}
	// Full to the nanosecond, without a remainder.
	even, _ := l.Decide(Bucket{}, 3, Consume, 1000)
	if got, _ := l.Decide(even, 0, Consume, 1000+second); even != (Bucket{FullAt: 1000 + second}) || got != (Bucket{}) {
		t.Errorf("%+v when full is %+v", even, got)
	}
	if got, res := l.Refund(b, 1, 1000); got != (Bucket{}) || res.Remaining != 5 || res.ResetMs != 0 {
		t.Errorf("refunded all: %+v, %+v", got, res)
	}
}

// TestLeakHolds works a leaky bucket of 3 units at 10 per second through.
func TestLeakHolds(t *testing.T) {
	l := BucketLimit{3, Rate{10, second}}
	var b Bucket
	for i, want := range []Result{
		{1, 3, 2, 0, 100, 0},
		{1, 3, 1, 100, 200, 0},
		{1, 3, 0, 200, 300, 0},
		{0, 3, 0, 100, 300, 0},
	} {
		var got Result
		if b, got = l.DecideLeak(b, 1, Consume, 7); got != want {
			t.Errorf("request %d: %+v, want %+v", i, got, want)
		}
	}
	if _, got := l.DecideLeak(b, 1, Peek, 7+100*millisecond); got != (Result{1, 3, 1, 200, 200, 0}) {
		t.Errorf("peek: %+v", got)
	}
}

// TestConvertKeepsTheShare works conversions through by hand.
func TestConvertKeepsTheShare(t *testing.T) {
	const now = int64(1_764_500_000_000_000_000)
	limit := func(capacity, count, period int64) BucketLimit {
		return BucketLimit{capacity, Rate{count, period}}
	}
	for _, c := range []struct {
		name      string
		old       BucketLimit
		used      int64
		l         BucketLimit
		remaining int64
		resetMs   int64
		forgotten int64
	}{
		{"half stays half", limit(10, 10, second), 5, limit(20, 10, second), 10, 1000, 0},
		{"half of less", limit(10, 10, second), 5, limit(4, 10, second), 2, 200, 0},
		{"the units stay with the capacity", limit(10, 10, second), 5, limit(10, 20, second), 5, 250, 0},
		{"a third, rounded up to 1/1,000 then 1/7", limit(3, 1, 1000), 1, limit(1, 1, 7), 0, 1, 0},
		{"rounded up to 1/old period", limit(3, 1, 1), 1, limit(1, 1, minute), 0, 60_000, 0},
		{"rounded up to 1/new period", limit(10, 10, second), 1, limit(10, 1, 2), 9, 1, 0},
		{"an equal ratio is another rate", limit(3, 2, 2), 1, limit(2, 1, 1), 1, 1, 0},
		{"cut to the bound", limit(1, 1, second), 2, limit(MaxUnits, MaxUnits, second), -MaxUnits, 2000, 0},
		{"cut far above", limit(1, 1, second), 1 << 30, limit(MaxUnits, MaxUnits, second), -MaxUnits, 2000, 1<<54 - 2*MaxUnits},
		// Shares past 2^128: both halves of the product overflow.
		{"far past 128 bits", limit(1, 1<<40, 1<<62), 1 << 34, limit(1<<32, 1<<40, 1<<62), 1<<32 - 1<<40, 4611686018428, 1<<54 - 1<<40},
		{"just past 128 bits", limit(1, 1<<40, 1<<62), 1<<34 - 1, limit(1<<32+1, 1<<40, 1<<62), 1<<32 + 1 - 1<<40, 4611686018428, 1<<54 - 1<<40},
	} {
		b, _ := c.old.Decide(Bucket{}, c.used, Force, now)
		b, forgotten := c.l.Convert(b, c.old, now)
		got := c.l.Look(b, now)
		want := Result{Allowed: 1, Limit: c.l.Capacity, Remaining: c.remaining, ResetMs: c.resetMs}
		if got != want || forgotten != c.forgotten {
			t.Errorf("%s: %+v, forgotten %d, want %+v, %d", c.name, got, forgotten, want, c.forgotten)
		}
	}
}
