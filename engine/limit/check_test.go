package limit

import (
	"errors"
	"testing"
)

func TestBucketLimitBounds(t *testing.T) {
	for _, c := range []struct {
		capacity, count, period int64
		want                    error
	}{
		{1, 1, 1, nil},
		{MaxUnits, MaxUnits, 1, nil},
		{0, 1, 1, ErrCapacity},
		{-1, 1, 1, ErrCapacity},
		{MaxUnits + 1, MaxUnits, 1, ErrCapacity},
		{1, 0, 1, ErrRate},
		{1, -1, 1, ErrRate},
		{1, MaxUnits + 1, 1, ErrRate},
		{1, 1, 0, ErrRate},
		{1, 1, -1, ErrRate},
		// Time to fill: capacity·period/count at most 2^62 ns, compared exactly.
		{1, 1, 1 << 62, nil},
		{1, 1, 1<<62 + 1, ErrFill},
		{1, 2, 1<<63 - 1, nil},
		{1 << 52, 1, 1 << 10, nil},
		{1 << 52, 1, 1<<10 + 1, ErrFill},
		{3, 3, 1 << 62, nil},
		{3, 2, 1 << 62, ErrFill},
		{MaxUnits, MaxUnits, 1 << 62, nil},
		{MaxUnits, MaxUnits - 1, 1 << 62, ErrFill},
	} {
		l := BucketLimit{c.capacity, Rate{c.count, c.period}}
		if got := l.Check(); got != c.want {
			t.Errorf("%+v: %v, want %v", l, got, c.want)
		}
		if got := BucketLimitOf(l.Params()); got != l {
			t.Errorf("%+v came back from Params as %+v", l, got)
		}
	}
}

func TestWindowLimitBounds(t *testing.T) {
	for _, c := range []struct {
		kind          Kind
		limit, period int64
		want          error
	}{
		{KindFixed, 1, MinPeriod, nil},
		{KindSliding, MaxUnits, MaxPeriod, nil},
		{KindFixed, 0, second, ErrLimit},
		{KindSliding, MaxUnits + 1, second, ErrLimit},
		{KindFixed, 1, MinPeriod - 1, ErrPeriod},
		{KindSliding, 1, MaxPeriod + 1, ErrPeriod},
		{KindLog, 0, second, ErrLogLimit},
		{KindLog, MaxLogLimit, MinPeriod, nil},
		{KindLog, MaxLogLimit + 1, second, ErrLogLimit},
		{KindFixed, MaxLogLimit + 1, second, nil},
		{KindLog, 1, MaxPeriod + 1, ErrPeriod},
	} {
		l := WindowLimit{c.limit, c.period}
		if got := l.Check(c.kind); !errors.Is(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s %+v: %v, want %v", c.kind, l, got, c.want)
		}
		if got := WindowLimitOf(l.Params()); got != l {
			t.Errorf("%+v came back from Params as %+v", l, got)
		}
	}
}

// TestKindNames pins what the command TYPE replies.
func TestKindNames(t *testing.T) {
	want := map[Kind]string{
		None: "none", KindBucket: "bucket", KindLeak: "leak", KindFixed: "fixed",
		KindSliding: "sliding", KindLog: "log", 14: "unknown",
	}
	for k, name := range want {
		if k.String() != name {
			t.Errorf("kind %d is %q, want %q", k, k, name)
		}
	}
}
