package command

import (
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestTimeBucketsAreAnEighthWide(t *testing.T) {
	for b := range timeBuckets - 1 {
		end := bucketEnd(b)
		if timeBucket(end) != b || timeBucket(end+1) != b+1 {
			t.Fatalf("bucket %d ends at %d: %d is in %d, the next in %d", b, end, end, timeBucket(end), timeBucket(end+1))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Int64Range(0, bucketEnd(timeBuckets-1)).Draw(t, "ns")
		end := bucketEnd(timeBucket(ns))
		if end < ns || end-ns > ns/timeSub {
			t.Fatalf("%d is said to be %d", ns, end)
		}
	})
	if timeBucket(1<<62) != timeBuckets-1 || timeBucket(-1) != 0 {
		t.Error("what is out of range is not in the outer buckets")
	}
	if end := bucketEnd(timeBuckets - 2); end < 120e9 {
		t.Errorf("the last bucket begins at %d ns, want two minutes or more", end+1)
	}
}

func TestHistogramIsCumulative(t *testing.T) {
	var u usages
	sh := u.shard(1)
	for _, c := range []struct{ n, ns int64 }{{3, 0}, {2, 1023}, {1, 1024}, {4, 2047}, {1, 2048}, {5, 100_000}, {1, 1 << 62}} {
		sh.add(0, c.n, c.ns)
	}
	sums := u.of(0)
	if got, want := fmt.Sprint(sums.histogram()), "[{1 5} {2 10} {4 11} {128 16} {134217728 17}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if sums.calls != 17 {
		t.Errorf("%d calls, want 17", sums.calls)
	}
	empty := used{}
	if empty.histogram() != nil || empty.quantile(0.5) != 0 {
		t.Error("of no calls there is something")
	}
}

func TestQuantileIsNeverBelowTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.Int64Range(0, 1e10), 1, 200).Draw(t, "times")
		q := rapid.SampledFrom([]float64{0.5, 0.99, 0.999}).Draw(t, "q")
		var u usages
		for _, ns := range times {
			u.shard(0).add(0, 1, ns)
		}
		sums := u.of(0)
		got := sums.quantile(q)
		within := 0
		for _, ns := range times {
			if ns <= got {
				within++
			}
		}
		if float64(within) < q*float64(len(times)) {
			t.Fatalf("%v of %v is said to be %d, only %d are within", q, times, got, within)
		}
	})
}

func TestCountsOfManyConnectionsAddUp(t *testing.T) {
	s := &Server{}
	var wg sync.WaitGroup
	for id := range uint64(100) {
		wg.Go(func() {
			conn := NewConn(s, id, "", "")
			r := requests(t, "EXISTS a", "EXISTS b")
			for range 100 {
				s.Observe(&conn, r, 0, 2000)
				_ = s.usage.of(r[0].Cmd)
			}
		})
	}
	wg.Wait()
	if got := s.usage.of(requests(t, "EXISTS a")[0].Cmd); got.calls != 20_000 || got.ns != 20_000_000 {
		t.Errorf("%d calls in %d ns", got.calls, got.ns)
	}
}
