package limit

// WindowLimit is the limit of a window: Limit units per Period (ns).
//
// Fixed and sliding windows begin at multiples of the period since the unix
// epoch, so that all keys and nodes agree on them and nothing has to be stored
// to find them (windows of a week begin on Thursdays, UTC).
type WindowLimit struct{ Limit, Period int64 }

// Check says whether the limit is within the bounds for which decisions of
// that kind are exact: ErrLimit, ErrLogLimit or ErrPeriod.
func (l WindowLimit) Check(k Kind) error {
	switch {
	case k == KindLog && (l.Limit < 1 || l.Limit > MaxLogLimit):
		return ErrLogLimit
	case l.Limit < 1 || l.Limit > MaxUnits:
		return ErrLimit
	case l.Period < MinPeriod || l.Period > MaxPeriod:
		return ErrPeriod
	}
	return nil
}

// Params is the limit in stored form.
func (l WindowLimit) Params() Params { return Params{A: l.Limit, C: l.Period} }

// WindowLimitOf is the limit that Params stored.
func WindowLimitOf(p Params) WindowLimit { return WindowLimit{Limit: p.A, Period: p.C} }

// bound is the most Force may raise a count to.
func (l WindowLimit) bound() int64 { return l.Limit + MaxUnits }

// force is count + cost as Force has it: not above the bound, and not lowered
// where a limit that was larger let it get there. lost is what is not counted.
func (l WindowLimit) force(count, cost int64) (sum, lost int64) {
	sum = max(count, min(count+cost, l.bound()))
	return sum, count + cost - sum
}
