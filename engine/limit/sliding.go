package limit

// Sliding is the state of a sliding window of two counters: Cur units in the
// window that began at Start (unix ns) and Prev in the one before it. The zero
// Sliding is as new, and one that is as new is always given back as zero.
type Sliding struct{ Start, Prev, Cur int64 }

// Expiry is the first instant (unix ns) from which on the window, under its
// limit l, is as new; 0 for the zero Sliding.
func (s Sliding) Expiry(l WindowLimit) int64 {
	switch {
	case s.Cur > 0:
		// At most 2^62−1 + 2·2^61, which is the largest int64.
		return s.Start + 2*l.Period
	case s.Prev > 0:
		return s.Start + l.Period
	}
	return 0
}

// slidingAt is the state as of now: moved on to the window that now is in.
func (l WindowLimit) slidingAt(s Sliding, now int64) Sliding {
	if s.Cur|s.Prev == 0 {
		return Sliding{}
	}
	since := now - s.Start
	if since < l.Period {
		return s
	}
	if since-l.Period >= l.Period || s.Cur == 0 {
		return Sliding{}
	}
	return Sliding{Start: s.Start + l.Period, Prev: s.Cur}
}

// fading is ⌈Prev·(Period − e)/Period⌉, what still counts of the window before
// the current one, for a state as of now.
func (l WindowLimit) fading(s Sliding, now int64) int64 {
	if s.Prev == 0 {
		return 0
	}
	return mul(s.Prev, s.Start+l.Period-now).ceil(l.Period)
}

// DecideSliding decides one request of cost units in a sliding window at time
// now. The count of the last Period is approximated from two counters, as if
// the requests of the window before had been spread evenly over it:
//
//	estimate = Prev·(Period − e)/Period + Cur     e = now − Start
//
// (the sliding window counter, in the form Cloudflare made known in 2017). It
// is allowed when estimate + cost ≤ limit. As cost is whole, that is the same
// as cost ≤ ⌊limit − estimate⌋, the reply's remaining.
//
// The wait of a refused one is the time until the estimate has fallen to
// limit − cost: in this window, while Cur leaves room for it,
//
//	(Period − e) − ⌊(limit − Cur − cost)·Period/Prev⌋
//
// else in the next, where Cur fades,
//
//	2·Period − e − ⌊(limit − cost)·Period/Cur⌋
//
// The estimate is continuous at both ends, so the first formula holds also
// where rounding to milliseconds leads past the end of the window. Modes are
// Consume, Peek and Force. The state must be one under l's period: see
// ConvertSliding.
func (l WindowLimit) DecideSliding(s Sliding, cost int64, m Mode, now int64) (Sliding, Result) {
	s = l.slidingAt(s, now)
	fading := l.fading(s, now)
	remaining := l.Limit - s.Cur - fading
	res := Result{Limit: l.Limit}
	switch {
	case m == Force || cost <= remaining:
		res.Allowed = 1
		if m != Peek && cost > 0 {
			if s.Prev|s.Cur == 0 {
				s.Start = now - now%l.Period
			}
			s.Cur, res.Forgotten = l.force(s.Cur, cost)
			remaining = l.Limit - s.Cur - fading
		}
	case cost > l.Limit:
		res.WaitMs = -1
	case s.Cur+cost <= l.Limit:
		gone, _ := mul(l.Limit-s.Cur-cost, l.Period).quo(s.Prev)
		res.WaitMs = millis(s.Start + l.Period - now - gone)
	default:
		gone, _ := mul(l.Limit-cost, l.Period).quo(s.Cur)
		res.WaitMs = millis(s.Start + 2*l.Period - now - gone)
	}
	res.Remaining = remaining
	if end := s.Expiry(l); end > 0 {
		res.ResetMs = millis(end - now)
	}
	return s, res
}

// ConvertSliding makes a state under the limit old into one under l at time
// now. Another limit simply applies. With another period the estimate, rounded
// up and cut to what Force may reach at most, becomes the count of the current
// window; forgotten is the units cut off.
func (l WindowLimit) ConvertSliding(s Sliding, old WindowLimit, now int64) (_ Sliding, forgotten int64) {
	s = old.slidingAt(s, now)
	if l.Period == old.Period || s.Prev|s.Cur == 0 {
		return s, 0
	}
	estimate := s.Cur + old.fading(s, now)
	count := min(estimate, l.bound())
	return Sliding{Start: now - now%l.Period, Cur: count}, estimate - count
}

// RefundSliding takes units off the current count, then off the one before,
// never below 0. The reply is LookSliding's.
func (l WindowLimit) RefundSliding(s Sliding, units, now int64) (Sliding, Result) {
	s = l.slidingAt(s, now)
	rest := max(units-s.Cur, 0)
	s.Cur = max(s.Cur-units, 0)
	s.Prev = max(s.Prev-rest, 0)
	if s.Cur|s.Prev == 0 {
		s = Sliding{}
	}
	return s, l.LookSliding(s, now)
}

// LookSliding is the window as it is at now: allowed 1, the limit, what
// remains and the time until it is as new; wait is 0.
func (l WindowLimit) LookSliding(s Sliding, now int64) Result {
	_, res := l.DecideSliding(s, 0, Force, now)
	return res
}
