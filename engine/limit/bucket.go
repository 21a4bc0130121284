package limit

import "math/bits"

// BucketLimit is the limit of a token or leaky bucket: it holds Capacity units
// and Rate of them flow per time.
type BucketLimit struct {
	Capacity int64
	Rate     Rate
}

// Check says whether the limit is within the bounds for which decisions are
// exact: ErrCapacity, ErrRate or ErrFill.
func (l BucketLimit) Check() error {
	switch {
	case l.Capacity < 1 || l.Capacity > MaxUnits:
		return ErrCapacity
	case l.Rate.Count < 1 || l.Rate.Count > MaxUnits || l.Rate.Period < 1:
		return ErrRate
	case mul(l.Capacity, l.Rate.Period).more(mul(MaxFill, l.Rate.Count)):
		return ErrFill
	}
	return nil
}

// Params is the limit in stored form.
func (l BucketLimit) Params() Params {
	return Params{A: l.Capacity, B: l.Rate.Count, C: l.Rate.Period}
}

// BucketLimitOf is the limit that Params stored.
func BucketLimitOf(p Params) BucketLimit {
	return BucketLimit{Capacity: p.A, Rate: Rate{Count: p.B, Period: p.C}}
}

// Bucket is the state of a token or leaky bucket under one limit. How much is
// used follows from the time:
//
//	used·Period = (FullAt − now)·Count + Rem     while that is above 0, else 0
//
// with 0 ≤ Rem < Count. This is the virtual scheduling form of the generic
// cell rate algorithm (ITU-T I.371), whose "theoretical arrival time" is
// FullAt; Rem is the part of a nanosecond that it leaves out, which makes it
// exact for every pair of count and period. Nothing has to be written while
// units flow back. FullAt is unix ns, at most 2^63−1.
//
// The zero Bucket is full, and a bucket that is full is always given back as
// the zero Bucket.
type Bucket struct{ FullAt, Rem int64 }

// Expiry is the first instant (unix ns) from which on the bucket is full, that
// is, equal to no bucket; 0 for the zero Bucket.
func (b Bucket) Expiry() int64 {
	if b.Rem > 0 && b.FullAt < 1<<63-1 {
		return b.FullAt + 1
	}
	return b.FullAt
}

// at is the bucket as of now, zero if full, with used·Period.
func (l BucketLimit) at(b Bucket, now int64) (Bucket, wide) {
	left := b.FullAt - now
	if left < 0 || left|b.Rem == 0 {
		return Bucket{}, wide{}
	}
	x := mul(left, l.Rate.Count)
	return b, x.plus(wide{0, uint64(b.Rem)})
}

// set is the bucket that has x = used·Period at now.
func (l BucketLimit) set(x wide, now int64) Bucket {
	if x.zero() {
		return Bucket{}
	}
	q, r := x.quo(l.Rate.Count)
	return Bucket{FullAt: now + min(q, 1<<63-1-now), Rem: r}
}

// resetNs is how long a bucket takes to be full, ns:
// ⌈used·Period/Count⌉, which is FullAt − now and one more for any Rem.
func resetNs(b Bucket, now int64) int64 {
	ns := b.FullAt - now
	if ns < 0 {
		return 0
	}
	if b.Rem > 0 {
		ns++
	}
	return ns
}

// bound is the most used·Period may be: Capacity + MaxUnits units, and not
// more than refills in MaxFill. Both keep every product of this file within
// 118 bits and FullAt within an int64.
func (l BucketLimit) bound() wide {
	units := mul(l.Capacity+MaxUnits, l.Rate.Period)
	fill := mul(MaxFill, l.Rate.Count)
	if units.more(fill) {
		return fill
	}
	return units
}

// Decide decides one request of cost units on a token bucket under l at time
// now.
//
// used falls by Count per Period, never below 0. The request is allowed when
// used + cost ≤ Capacity, and then used grows by cost. As cost is whole, that
// is the same as cost ≤ ⌊Capacity − used⌋, so the reply's remaining decides
// and no rounding can. The wait of a refused one is how long used takes to
// fall to Capacity − cost:
//
//	⌈(used − (Capacity − cost))·Period / Count⌉ ns
//
// The bucket must be one under l: see Convert. It is given back canonical
// (zero when full) also where nothing was consumed.
func (l BucketLimit) Decide(b Bucket, cost int64, m Mode, now int64) (Bucket, Result) {
	b, x := l.at(b, now)
	remaining := l.Capacity - x.ceil(l.Rate.Period)
	res := Result{Limit: l.Capacity}
	take := cost
	switch {
	case m == Force:
		res.Allowed = 1
		if cost > remaining {
			return l.force(x, cost, now)
		}
	case m == AtMost && cost > 0:
		take = min(cost, max(remaining, 0))
		res.Allowed = take
		if take == 0 {
			res.WaitMs = l.waitMs(x, 1)
		}
	case cost <= remaining:
		if m != AtMost {
			res.Allowed = 1
		}
		if m == Peek {
			take = 0
		}
	default:
		take = 0
		res.WaitMs = l.waitMs(x, cost)
	}
	if take > 0 {
		// used + cost is at most Capacity here, which fills within MaxFill.
		q, r := mul(take, l.Rate.Period).plus(wide{0, uint64(b.Rem)}).quo(l.Rate.Count)
		b = Bucket{FullAt: max(b.FullAt, now) + q, Rem: r}
		remaining -= take
	}
	res.Remaining = remaining
	res.ResetMs = millis(resetNs(b, now))
	return b, res
}

// force is Decide where Force goes past the capacity.
func (l BucketLimit) force(x wide, cost, now int64) (Bucket, Result) {
	res := Result{Allowed: 1, Limit: l.Capacity}
	x = x.plus(mul(cost, l.Rate.Period))
	if most := l.bound(); x.more(most) {
		res.Forgotten = x.minus(most).ceil(l.Rate.Period)
		x = most
	}
	b := l.set(x, now)
	res.Remaining = l.Capacity - x.ceil(l.Rate.Period)
	res.ResetMs = millis(resetNs(b, now))
	return b, res
}

// waitMs is how long x = used·Period takes to leave room for cost units, or -1
// when there never is.
func (l BucketLimit) waitMs(x wide, cost int64) int64 {
	if cost > l.Capacity {
		return -1
	}
	return millis(x.minus(mul(l.Capacity-cost, l.Rate.Period)).ceil(l.Rate.Count))
}

// DecideLeak decides one request on a leaky bucket as a queue (a leaky bucket
// "as a meter" would be the token bucket seen from below). The arithmetic is
// Decide's. What differs is the wait of an allowed request: the time that what
// was queued before it takes to drain, so that a caller who holds each request
// back that long sends at a constant rate.
func (l BucketLimit) DecideLeak(b Bucket, cost int64, m Mode, now int64) (Bucket, Result) {
	hold := resetNs(b, now)
	b, res := l.Decide(b, cost, m, now)
	if res.Allowed > 0 {
		res.WaitMs = millis(hold)
	}
	return b, res
}

// Convert makes a bucket under the limit old into one under l at time now, so
// that the share used stays as it is: two callers with different limits on one
// key cannot mint units by taking turns.
//
//	used falls at the old rate up to now
//	capacity differs: used·new/old, rounded up to a multiple of 1/old.Period
//	rate differs:     rounded up to a multiple of 1/l.Period
//
// The result is cut to what Force may reach at most; forgotten is the units
// cut off, rounded up. It is an estimate only where a share would have needed
// more than 2^54 units.
func (l BucketLimit) Convert(b Bucket, old BucketLimit, now int64) (_ Bucket, forgotten int64) {
	b, x := old.at(b, now)
	if l == old || x.zero() {
		return b, 0
	}
	if l.Capacity != old.Capacity {
		x = scale(x, l.Capacity, old.Capacity, mul(maxUsed, old.Rate.Period))
	}
	if l.Rate.Period != old.Rate.Period {
		x = scale(x, l.Rate.Period, old.Rate.Period, mul(maxUsed, l.Rate.Period))
	}
	if most := l.bound(); x.more(most) {
		forgotten = x.minus(most).ceil(l.Rate.Period)
		x = most
	}
	return l.set(x, now), forgotten
}

// maxUsed is above the units any bucket may have used (Capacity + MaxUnits), so
// a share that saturates here is cut to the bound all the same.
const maxUsed = 1 << 54

// scale is ⌈x·m/d⌉, at most sat. The product has up to 179 bits, so x is split
// into q·d + r, and ⌈x·m/d⌉ = q·m + ⌈r·m/d⌉; the last term is at most m,
// so below 2^63.
func scale(x wide, m, d int64, sat wide) wide {
	q, r := x.div(d)
	top := mul(int64(q.hi), m) // q.hi is below 2^54
	if top.hi != 0 || top.lo > sat.hi {
		return sat
	}
	hi, lo := bits.Mul64(q.lo, uint64(m)) // hi is below 2^63
	// Both words are below 2^63 here, as sat.hi is below 2^53: no carry is lost.
	rest, r := mul(r, m).div(d)
	if r > 0 {
		rest.lo++
	}
	y := wide{top.lo + hi, lo}.plus(rest)
	if y.more(sat) {
		return sat
	}
	return y
}

// Refund gives units back, never beyond full. The reply is Look's.
func (l BucketLimit) Refund(b Bucket, units, now int64) (Bucket, Result) {
	_, x := l.at(b, now)
	b = l.set(x.minus(mul(units, l.Rate.Period)), now)
	return b, l.Look(b, now)
}

// Look is the bucket as it is at now: allowed 1, the limit, what remains and
// the time to full; wait is 0.
func (l BucketLimit) Look(b Bucket, now int64) Result {
	b, x := l.at(b, now)
	return Result{
		Allowed:   1,
		Limit:     l.Capacity,
		Remaining: l.Capacity - x.ceil(l.Rate.Period),
		ResetMs:   millis(resetNs(b, now)),
	}
}
