package limit

import (
	"testing"

	"pgregory.net/rapid"
)

// TestTheSharesTogetherAreNoMoreThanTheLimit holds what nodes may admit when each
// decides by itself.
func TestTheSharesTogetherAreNoMoreThanTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := BucketLimit{Capacity: rapid.Int64Range(1, MaxUnits).Draw(t, "capacity")}
		l.Rate = Rate{Count: rapid.Int64Range(1, MaxUnits).Draw(t, "count"), Period: rapid.Int64Range(1, 1<<50).Draw(t, "period")}
		if l.Check() != nil {
			return
		}
		n := rapid.Int64Range(1, 9).Draw(t, "nodes")
		s := l.Share(n)
		if err := s.Check(); err != nil {
			t.Fatalf("the share %+v of %+v: %v", s, l, err)
		}
		if s.Capacity > max(1, l.Capacity/n) || s.Capacity*n > max(l.Capacity, n) {
			t.Fatalf("%d shares of %d are %d each", n, l.Capacity, s.Capacity)
		}
		if s.Rate.Count != l.Rate.Count || s.Rate.Period != l.Rate.Period*n && s.Rate != l.Rate {
			t.Fatalf("the rate %+v becomes %+v", l.Rate, s.Rate)
		}
		w := WindowLimit{Limit: l.Capacity, Period: 1e9}.Share(n)
		if w.Limit != s.Capacity || w.Period != 1e9 {
			t.Fatalf("the window's share is %+v", w)
		}
	})
}
