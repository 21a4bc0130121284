package limit

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// around draws from lo to hi, and often one of the edges or a small number.
func around(lo, hi int64, edges ...int64) *rapid.Generator[int64] {
	edges = append(edges, lo, min(lo+1, hi), max(hi-1, lo), hi)
	return rapid.OneOf(
		rapid.SampledFrom(edges),
		rapid.Int64Range(lo, min(hi, max(lo, 1)*20)),
		rapid.Int64Range(lo, hi),
	)
}

func drawBucketLimit(t *rapid.T) Params {
	l := BucketLimit{
		Capacity: around(1, MaxUnits, 3, 10, 1000, 1<<32).Draw(t, "capacity"),
		Rate: Rate{
			Count:  around(1, MaxUnits, 3, 7, 1000, 1<<32).Draw(t, "count"),
			Period: around(1, 1<<63-1, second, minute, 10*second, 250*millisecond, 1<<61, 1<<62).Draw(t, "period"),
		},
	}
	if l.Check() != nil {
		// The largest capacity that still fills in time, which is an edge too.
		most := new(big.Int).Lsh(big.NewInt(l.Rate.Count), 62)
		most.Div(most, big.NewInt(l.Rate.Period))
		l.Capacity = 1
		if most.Sign() > 0 {
			l.Capacity = most.Int64()
		} else {
			l.Rate.Count = MaxUnits
		}
	}
	if err := l.Check(); err != nil {
		t.Fatalf("generator: %+v: %v", l, err)
	}
	return l.Params()
}

func drawWindowLimit(t *rapid.T, kind Kind) Params {
	most := int64(MaxUnits)
	if kind == KindLog {
		most = MaxLogLimit
	}
	return Params{
		A: around(1, most, 10, 100).Draw(t, "limit"),
		C: around(MinPeriod, MaxPeriod, second, 7*second, minute, hour).Draw(t, "period"),
	}
}

// script draws requests on one key under few limits, at times that like to
// come just when something changes.
type script struct {
	kind   Kind
	limits []Params
	now    int64
	res    Result // the last reply
}

func drawScript(t *rapid.T, kind Kind) *script {
	s := &script{kind: kind}
	n := rapid.IntRange(1, 3).Draw(t, "limits")
	for range n {
		if kind == KindBucket || kind == KindLeak {
			s.limits = append(s.limits, drawBucketLimit(t))
			// Neighbours in one number only are what a careless comparison of
			// limits takes for equal.
			if l := s.limits[0]; rapid.IntRange(0, 2).Draw(t, "near") == 0 {
				switch rapid.IntRange(0, 2).Draw(t, "which") {
				case 0:
					l.A = around(1, l.A).Draw(t, "capacity")
				case 1:
					l.B, l.C = l.B*2, l.C*2
				case 2:
					l.C = around(1, l.C).Draw(t, "period")
				}
				if BucketLimitOf(l).Check() == nil {
					s.limits[len(s.limits)-1] = l
				}
			}
		} else {
			s.limits = append(s.limits, drawWindowLimit(t, kind))
			if rapid.Bool().Draw(t, "same period") {
				s.limits[len(s.limits)-1].C = s.limits[0].C
			}
		}
	}
	s.now = around(0, MaxTime, 1_764_500_000_123_456_789, 1<<61).Draw(t, "start")
	return s
}

func (s *script) next(t *rapid.T) (request, int64) {
	r := request{kind: s.kind, limit: rapid.SampledFrom(s.limits).Draw(t, "limit")}
	modes := []Mode{Consume, Consume, Consume, Peek}
	switch s.kind {
	case KindBucket:
		modes = append(modes, Force, AtMost, AtMost)
	case KindFixed, KindSliding, KindLog:
		modes = append(modes, Force)
	}
	r.mode = rapid.SampledFrom(modes).Draw(t, "mode")
	r.refund = rapid.IntRange(0, 9).Draw(t, "refund") == 0
	left := min(max(s.res.Remaining, 0), MaxUnits)
	r.cost = around(0, MaxUnits, 1, 1, 1, left, min(left+1, MaxUnits), max(left-1, 0), left/2,
		r.limit.A, min(r.limit.A+1, MaxUnits), max(1, r.limit.A/3), max(1, r.limit.A/5)).Draw(t, "cost")
	period := r.limit.C
	wait := min(max(s.res.WaitMs, 0), MaxPeriod/millisecond) * millisecond
	reset := min(s.res.ResetMs, MaxPeriod/millisecond) * millisecond
	step := rapid.SampledFrom([]int64{
		0, 0, 0, 1, millisecond, wait, wait - 1, wait - millisecond, wait + 1,
		reset, reset - 1, reset - millisecond, reset / 2, reset + 1,
		period / 2, period / 7, period, period - 1, min(period, MaxPeriod) * 2,
		period - s.now%period, period - s.now%period - 1, -1, -second, -MaxTime,
	}).Draw(t, "step")
	if step > MaxTime-s.now {
		step = MaxTime - s.now
	}
	at := max(0, s.now+step)
	s.now = max(s.now, at)
	return r, at
}

// TestDecisionsEqualRationals fails when any number of any reply, or what is
// forgotten, differs from arithmetic in exact rationals.
func TestDecisionsEqualRationals(t *testing.T) {
	for _, kind := range []Kind{KindBucket, KindLeak, KindFixed, KindSliding, KindLog} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				script := drawScript(t, kind)
				s := newSpace()
				s.latest = script.now
				var o *oracle
				for range rapid.IntRange(1, 30).Draw(t, "steps") {
					r, at := script.next(t)
					if o != nil && o.gone(script.now) {
						o = nil
					}
					got, _ := s.do("k", r, at)
					var want Result
					o, want = o.do(r, script.now)
					if got != want {
						t.Fatalf("%+v at %d:\n got %+v\nwant %+v", r, script.now, got, want)
					}
					if v := s.get("k", at); (v == nil) != (o == nil || o.gone(script.now)) {
						t.Fatalf("%+v at %d: value %+v, but of the exact state it is %v that it is as new", r, script.now, v, v != nil)
					}
					script.res = got
				}
			})
		})
	}
}

// TestWaitIsExact fails when waiting wait_ms is not enough or a millisecond
// less already is, and when reset_ms is not the first at which the value is as
// new. It needs no oracle.
func TestWaitIsExact(t *testing.T) {
	for _, kind := range []Kind{KindBucket, KindLeak, KindFixed, KindSliding, KindLog} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				script := drawScript(t, kind)
				s := newSpace()
				s.latest = script.now
				for range rapid.IntRange(1, 30).Draw(t, "steps") {
					r, at := script.next(t)
					got, _ := s.do("k", r, at)
					script.res = got
					now := script.now
					later := func(ms int64) (Result, bool) {
						if ms > (MaxTime-now)/millisecond {
							return Result{}, false
						}
						// A look at what the request would get changes nothing.
						again := r
						if again.cost > 0 && again.mode != AtMost {
							again.mode = Peek
						}
						if r.mode == AtMost {
							again.cost, again.mode = min(r.cost, 1), Peek
						}
						c := space{values: map[string]*Value{}}
						if v := s.values["k"]; v != nil {
							c.values["k"] = v
						}
						res, _ := c.do("k", again, now+ms*millisecond)
						return res, true
					}
					// A PEEK under another limit does not store the conversion its
					// reply is about, so nobody can wait for that.
					v := s.values["k"]
					if v != nil && v.Limit == r.limit && !r.refund && got.Allowed == 0 && got.WaitMs > 0 {
						if res, ok := later(got.WaitMs); ok && res.Allowed == 0 {
							t.Fatalf("%+v at %d replied %+v, but is still refused after its wait: %+v", r, now, got, res)
						}
						if res, ok := later(got.WaitMs - 1); ok && res.Allowed == 1 {
							t.Fatalf("%+v at %d replied %+v, but is allowed a millisecond sooner: %+v", r, now, got, res)
						}
					}
					if v != nil && got.ResetMs > 0 && r.cost > 0 && r.mode != Peek {
						end := v.Expiry()
						if left := end - now; left > got.ResetMs*millisecond || left <= (got.ResetMs-1)*millisecond {
							t.Fatalf("%+v at %d: as new at %d, but reset is %d ms", r, now, end, got.ResetMs)
						}
						for _, at := range []int64{end - 1, end} {
							if at < 0 || at > MaxTime {
								continue
							}
							if used := v.Look(at).ResetMs > 0; used != (at < end) {
								t.Fatalf("%+v expires at %d, but at %d it is %v that something is used", v, end, at, used)
							}
						}
					}
				}
			})
		})
	}
}

// TestAlternatingLimitsMintNothing fails when callers with different limits on
// one bucket get more together than the bucket may give. As the share used is
// kept, the shares admitted (cost/capacity) are at most one full bucket and
// what flows back at the largest rate of shares among the limits.
func TestAlternatingLimitsMintNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		script := drawScript(t, KindBucket)
		s := newSpace()
		s.latest = script.now
		fastest := new(big.Rat)
		for _, l := range script.limits {
			share := new(big.Rat).SetFrac(big.NewInt(l.B), new(big.Int).Mul(big.NewInt(l.C), big.NewInt(l.A)))
			if share.Cmp(fastest) > 0 {
				fastest = share
			}
		}
		start := script.now
		admitted := new(big.Rat)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			r, at := script.next(t)
			if r.refund || r.mode == Force || r.mode == Peek {
				s.latest = script.now
				continue
			}
			got, _ := s.do("k", r, at)
			script.res = got
			units := r.cost
			if r.mode == AtMost || got.Allowed == 0 {
				units = got.Allowed
			}
			admitted.Add(admitted, ratio(units, r.limit.A))
			most := sum(rat(1), times(fastest, rat(script.now-start)))
			if admitted.Cmp(most) > 0 {
				t.Fatalf("%v of a full bucket were admitted, at most %v may be", admitted, most)
			}
		}
	})
}

// TestWindowsAdmitAtMostTheLimit fails when a fixed or sliding window admits
// more than its limit within one window of the clock, or a log within any
// period.
func TestWindowsAdmitAtMostTheLimit(t *testing.T) {
	for _, kind := range []Kind{KindFixed, KindSliding, KindLog} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				script := drawScript(t, kind)
				s := newSpace()
				s.latest = script.now
				most := int64(0)
				for i := range script.limits {
					script.limits[i].C = script.limits[0].C
					most = max(most, script.limits[i].A)
				}
				period := script.limits[0].C
				type admission struct{ at, cost int64 }
				var admitted []admission
				for range rapid.IntRange(1, 60).Draw(t, "steps") {
					r, at := script.next(t)
					if r.refund || r.mode != Consume {
						s.latest = script.now
						continue
					}
					got, _ := s.do("k", r, at)
					script.res = got
					if got.Allowed == 0 {
						continue
					}
					admitted = append(admitted, admission{script.now, r.cost})
					total := int64(0)
					for _, a := range admitted {
						same := a.at/period == script.now/period
						if kind == KindLog {
							same = script.now-a.at < period
						}
						if same {
							total += a.cost
						}
					}
					if total > most {
						t.Fatalf("%d were admitted where %d is the most", total, most)
					}
				}
			})
		})
	}
}
