package limit

import "testing"

// TestDecisionsDoNotAllocate pins what the hot path promises.
func TestDecisionsDoNotAllocate(t *testing.T) {
	const now = int64(1_764_500_000_123_456_789)
	l := BucketLimit{10, Rate{20, second}}
	wide := BucketLimit{MaxUnits, Rate{MaxUnits, 1 << 62}}
	w := WindowLimit{100, minute}
	var b, big Bucket
	var f Fixed
	var s Sliding
	g := new(Log)
	step, at := int64(0), now
	out := make([]byte, 0, 128)
	rate, period, units := []byte("0.25/90s"), []byte("250ms"), []byte("9007199254740991")
	stored := AppendValue(nil, &Value{Kind: KindBucket, Limit: l.Params(), W: [3]int64{now, 3}})
	admit := func() {
		at += minute / 50
		c, _, _ := w.DecideLog(g, 1, Force, at)
		g.Apply(c)
	}
	for range 200 {
		admit() // to its steady size
	}
	for name, f := range map[string]func(){
		"bucket":         func() { b, _ = l.Decide(b, 1, Consume, now+step) },
		"bucket, refund": func() { b, _ = l.Refund(b, 1, now+step) },
		"bucket, convert": func() {
			big, _ = wide.Decide(big, 1<<52, Force, now+step)
			b, _ = l.Convert(big, wide, now+step)
		},
		"leak":    func() { b, _ = l.DecideLeak(b, 1, Consume, now+step) },
		"fixed":   func() { f, _ = w.DecideFixed(f, 1, Consume, now+step) },
		"sliding": func() { s, _ = w.DecideSliding(s, 1, Consume, now+step) },
		"log":     admit,
		"log, refused": func() {
			if _, res, _ := w.DecideLog(g, 80, Consume, at); res.Allowed == 1 {
				t.Fatal("allowed")
			}
		},
		"log, refund": func() { w.RefundLog(g, 3, at) },
		"rate":        func() { ParseRate(rate) },
		"period":      func() { ParsePeriod(period) },
		"units":       func() { ParseUnits(units) },
		"encode": func() {
			out = AppendValue(out[:0], &Value{Kind: KindBucket, Limit: l.Params(), W: [3]int64{b.FullAt, b.Rem}})
		},
		"decode": func() {
			if _, _, err := DecodeValue(stored); err != nil {
				t.Fatal(err)
			}
		},
	} {
		if n := testing.AllocsPerRun(1000, func() { step++; f() }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkBucket(b *testing.B) {
	l := BucketLimit{10, Rate{20, second}}
	var s Bucket
	now := int64(1_764_500_000_123_456_789)
	for b.Loop() {
		s, _ = l.Decide(s, 1, Consume, now)
		now += 40 * millisecond // refused now and then
	}
}

func BenchmarkBucketWide(b *testing.B) {
	l := BucketLimit{MaxUnits - 3, Rate{MaxUnits - 7, 1<<62 - 5}}
	var s Bucket
	now := int64(1_764_500_000_123_456_789)
	for b.Loop() {
		s, _ = l.Decide(s, 1<<40, Consume, now)
		now += 40 * millisecond
	}
}

func BenchmarkSliding(b *testing.B) {
	l := WindowLimit{1000, minute}
	var s Sliding
	now := int64(1_764_500_000_123_456_789)
	for b.Loop() {
		s, _ = l.DecideSliding(s, 1, Consume, now)
		now += 40 * millisecond
	}
}

func BenchmarkLog(b *testing.B) {
	l := WindowLimit{1000, minute}
	g := new(Log)
	now := int64(1_764_500_000_123_456_789)
	for b.Loop() {
		c, _, _ := l.DecideLog(g, 1, Consume, now)
		g.Apply(c)
		now += 40 * millisecond
	}
}
