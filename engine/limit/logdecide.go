package limit

// DecideLog decides one request of cost units in a sliding log at time now. It
// is exact: every admitted (time, cost) counts while now < time + Period. The
// request is allowed when their sum and cost are at most the limit. The wait
// of a refused one is the time until enough of the oldest have left, the reset
// the time until the newest has.
//
// The log is not changed and may be nil; Apply the change that is returned.
// Entries that have left the window are dropped by an admission only. Modes
// are Consume, Peek and Force. The only error is ErrLogFull. It takes
// O(log n).
//
// The log must be one under l's period: see ConvertLog.
func (l WindowLimit) DecideLog(g *Log, cost int64, m Mode, now int64) (LogChange, Result, error) {
	return l.DecideLogFrom(g, 0, cost, m, now)
}

// DecideLogFrom is DecideLog for a log of which the skip oldest entries are to
// be seen as dropped already: the Drop of a ConvertLog that was not applied,
// because the request turns out to change nothing. A change that is returned
// counts from the log as it is, so it drops these entries too.
func (l WindowLimit) DecideLogFrom(g *Log, skip int, cost int64, m Mode, now int64) (LogChange, Result, error) {
	var c LogChange
	first, sum := l.live(g, skip, now)
	res := Result{Limit: l.Limit}
	reset := int64(0)
	if sum > 0 {
		reset = g.entry(g.n-1).At + l.Period - now
	}
	switch {
	case m == Force || cost <= l.Limit-sum:
		res.Allowed = 1
		if m == Peek {
			break
		}
		total, lost := l.force(sum, cost)
		res.Forgotten = lost
		if total == sum {
			break
		}
		c = LogChange{Drop: first, At: now, Cost: total - sum}
		if n := g.Len(); n-first >= MaxLogEntries && g.entry(n-1).At < now {
			return LogChange{}, Result{}, ErrLogFull
		}
		sum, reset = total, l.Period
	case cost > l.Limit:
		res.WaitMs = -1
	default:
		// The first entry whose leaving leaves at most limit − cost.
		newest := g.entry(g.n - 1).Sum
		room := uint64(l.Limit - cost)
		i := g.search(first, func(e *LogEntry) bool { return newest-e.Sum <= room })
		res.WaitMs = millis(g.entry(i).At + l.Period - now)
	}
	res.Remaining = l.Limit - sum
	res.ResetMs = millis(reset)
	return c, res, nil
}

// live is the first entry, not before skip, that still counts at now, and the
// sum of it and those after it.
func (l WindowLimit) live(g *Log, skip int, now int64) (first int, sum int64) {
	n := g.Len()
	if skip >= n {
		return n, 0
	}
	left := now - l.Period
	first = g.search(skip, func(e *LogEntry) bool { return e.At > left })
	if first < n {
		sum = int64(g.entry(n-1).Sum - g.before(first))
	}
	return first, sum
}

// ConvertLog makes a log under the limit old into one under l at time now:
// what has left under the old period is dropped, then what has under the new.
// Another limit simply applies.
func (l WindowLimit) ConvertLog(g *Log, old WindowLimit, now int64) LogChange {
	first, _ := old.live(g, 0, now)
	first, _ = l.live(g, first, now)
	return LogChange{Drop: first}
}

// RefundLog takes units off the newest entries, never below 0. The log is not
// changed and may be nil; Apply the change that is returned. The reply is as
// LookLog will be after it.
func (l WindowLimit) RefundLog(g *Log, units, now int64) (LogChange, Result) {
	first, sum := l.live(g, 0, now)
	c := LogChange{Drop: first}
	res := Result{Allowed: 1, Limit: l.Limit, Remaining: l.Limit}
	if units >= sum {
		c.Drop = g.Len()
		return c, res
	}
	// What is left ends with the first entry that brings the sum to this.
	left := uint64(sum - units)
	base := g.before(first)
	last := g.search(first, func(e *LogEntry) bool { return e.Sum-base >= left })
	e := g.entry(last)
	c.Pop = g.n - 1 - last
	c.Trim = int64(e.Sum - base - left)
	res.Remaining -= int64(left)
	res.ResetMs = millis(e.At + l.Period - now)
	return c, res
}

// LookLog is the log as it is at now: allowed 1, the limit, what remains and
// the time until it is empty; wait is 0.
func (l WindowLimit) LookLog(g *Log, now int64) Result {
	_, res, _ := l.DecideLog(g, 0, Force, now)
	return res
}

// LiveLog is how many entries count at now.
func (l WindowLimit) LiveLog(g *Log, now int64) int {
	first, _ := l.live(g, 0, now)
	return g.Len() - first
}

// ExpiryLog is the first instant (unix ns) from which on a log under l is
// empty; 0 if it is.
func (l WindowLimit) ExpiryLog(g *Log) int64 {
	if g.Len() == 0 {
		return 0
	}
	return g.entry(g.n-1).At + l.Period
}
