package limit

// Fixed is the state of a fixed window: Count units in the window that began
// at Start (unix ns). Its period is that of the limit it was decided under.
// The zero Fixed is as new, and one that is as new is always given back as
// zero.
type Fixed struct{ Start, Count int64 }

// Expiry is the first instant (unix ns) from which on the window, under its
// limit l, is as new; 0 for the zero Fixed.
func (w Fixed) Expiry(l WindowLimit) int64 {
	if w.Count == 0 {
		return 0
	}
	return w.Start + l.Period
}

// fixedAt is the window as of now, zero if it is over.
func (l WindowLimit) fixedAt(w Fixed, now int64) Fixed {
	if w.Count == 0 || now-w.Start >= l.Period {
		return Fixed{}
	}
	return w
}

// DecideFixed decides one request of cost units in a fixed window at time now:
// allowed when what this window has counted, and cost, are at most the limit.
// Twice the limit can pass around the end of a window; that is what a fixed
// window is. Modes are Consume, Peek and Force.
//
// The window must be one under l's period: see ConvertFixed.
func (l WindowLimit) DecideFixed(w Fixed, cost int64, m Mode, now int64) (Fixed, Result) {
	w = l.fixedAt(w, now)
	start := now - now%l.Period
	res := Result{Limit: l.Limit}
	switch {
	case m == Force || cost <= l.Limit-w.Count:
		res.Allowed = 1
		if m != Peek && cost > 0 {
			w.Start = start
			w.Count, res.Forgotten = l.force(w.Count, cost)
		}
	case cost > l.Limit:
		res.WaitMs = -1
	default:
		res.WaitMs = millis(start + l.Period - now)
	}
	res.Remaining = l.Limit - w.Count
	if w.Count > 0 {
		res.ResetMs = millis(start + l.Period - now)
	}
	return w, res
}

// ConvertFixed makes a window under the limit old into one under l at time
// now. Another limit simply applies. With another period the count of the
// window under the old one is kept, in the window that now is in, unless the
// old one is over.
func (l WindowLimit) ConvertFixed(w Fixed, old WindowLimit, now int64) Fixed {
	w = old.fixedAt(w, now)
	if w.Count > 0 && l.Period != old.Period {
		w.Start = now - now%l.Period
	}
	return w
}

// RefundFixed takes units off the count, never below 0. The reply is
// LookFixed's.
func (l WindowLimit) RefundFixed(w Fixed, units, now int64) (Fixed, Result) {
	w = l.fixedAt(w, now)
	if w.Count <= units {
		w = Fixed{}
	} else {
		w.Count -= units
	}
	return w, l.LookFixed(w, now)
}

// LookFixed is the window as it is at now: allowed 1, the limit, what remains
// and the time to the end; wait is 0.
func (l WindowLimit) LookFixed(w Fixed, now int64) Result {
	_, res := l.DecideFixed(w, 0, Force, now)
	return res
}
