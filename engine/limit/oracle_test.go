package limit

import "math/big"

// oracle is one key's state in exact rationals, built from the definitions and
// sharing no arithmetic with the code under test. It knows no formula for a
// wait: it searches for the least number of milliseconds after which the
// request passes.
type oracle struct {
	kind  Kind
	limit Params
	used  *big.Rat // bucket, leak: units used at time at
	at    int64
	start int64 // fixed, sliding: the window that cur counts in
	prev  int64
	cur   int64
	log   []oracleEntry
}

type oracleEntry struct{ at, cost int64 }

func rat(x int64) *big.Rat              { return new(big.Rat).SetInt64(x) }
func ratio(a, b int64) *big.Rat         { return big.NewRat(a, b) }
func times(a, b *big.Rat) *big.Rat      { return new(big.Rat).Mul(a, b) }
func sum(a, b *big.Rat) *big.Rat        { return new(big.Rat).Add(a, b) }
func difference(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }

func floor(a *big.Rat) *big.Int {
	return new(big.Int).Div(a.Num(), a.Denom()) // Euclidean; denominators are above 0
}

func ceiling(a *big.Rat) *big.Int {
	return new(big.Int).Neg(floor(new(big.Rat).Neg(a)))
}

// roundUp is a rounded up to a multiple of 1/n.
func roundUp(a *big.Rat, n int64) *big.Rat {
	up := new(big.Rat).SetInt(ceiling(times(a, rat(n))))
	return up.Quo(up, rat(n))
}

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) <= 0 {
		return a
	}
	return b
}

func (o *oracle) isBucket() bool { return o.kind == KindBucket || o.kind == KindLeak }

// usage is what counts against the limit at the instant now, which is given as
// a big number, for the searches go past every legal time.
func (o *oracle) usage(now *big.Int) *big.Rat {
	p := big.NewInt(o.limit.C)
	since := func(t int64) *big.Int { return new(big.Int).Sub(now, big.NewInt(t)) }
	switch {
	case o.isBucket():
		flow := new(big.Rat).SetFrac(new(big.Int).Mul(since(o.at), big.NewInt(o.limit.B)), p)
		if u := difference(o.used, flow); u.Sign() > 0 {
			return u
		}
		return new(big.Rat)
	case o.kind == KindFixed:
		if since(o.start).Cmp(p) >= 0 {
			return new(big.Rat)
		}
		return rat(o.cur)
	case o.kind == KindSliding:
		e, prev, cur := since(o.start), o.prev, o.cur
		for range 2 {
			if e.Cmp(p) >= 0 {
				prev, cur = cur, 0
				e.Sub(e, p)
			}
		}
		if e.Cmp(p) >= 0 {
			return new(big.Rat)
		}
		share := new(big.Rat).SetFrac(new(big.Int).Sub(p, e), p)
		return sum(times(rat(prev), share), rat(cur))
	}
	total := new(big.Rat)
	for _, e := range o.log {
		if since(e.at).Cmp(p) < 0 {
			total.Add(total, rat(e.cost))
		}
	}
	return total
}

// move carries the state on to now, without changing what counts.
func (o *oracle) move(now int64) {
	switch {
	case o.isBucket():
		o.used, o.at = o.usage(big.NewInt(now)), now
	case o.kind == KindFixed, o.kind == KindSliding:
		start := now / o.limit.C * o.limit.C
		if o.start != start {
			if o.kind == KindSliding && o.start+o.limit.C == start {
				o.prev = o.cur
			} else {
				o.prev = 0
			}
			o.cur, o.start = 0, start
		}
	default:
		var live []oracleEntry
		for _, e := range o.log {
			if now-e.at < o.limit.C {
				live = append(live, e)
			}
		}
		o.log = live
	}
}

// convert is the change of a limit.
func (o *oracle) convert(limit Params, now int64) {
	o.move(now)
	old := o.limit
	o.limit = limit
	switch {
	case o.isBucket():
		if limit.A != old.A {
			o.used = roundUp(times(o.used, ratio(limit.A, old.A)), old.C)
		}
		if limit.B != old.B || limit.C != old.C {
			o.used = roundUp(o.used, limit.C)
		}
		o.used = least(o.used, o.bound())
	case limit.C == old.C:
	case o.kind == KindFixed:
		o.start = now / limit.C * limit.C
	case o.kind == KindSliding:
		o.limit = old
		estimate := ceiling(o.usage(big.NewInt(now)))
		o.limit = limit
		o.start, o.prev = now/limit.C*limit.C, 0
		o.cur = ceiling(least(new(big.Rat).SetInt(estimate), o.bound())).Int64()
	default:
		o.move(now)
	}
}

// bound is what FORCE may reach.
func (o *oracle) bound() *big.Rat {
	b := sum(rat(o.limit.A), rat(1<<53-1))
	if o.isBucket() {
		fill := times(new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), 62)), ratio(o.limit.B, o.limit.C))
		b = least(b, fill)
	}
	return b
}

// add counts cost at now; o is moved to now.
func (o *oracle) add(cost *big.Rat, now int64) {
	whole := cost.Num().Int64()
	switch {
	case o.isBucket():
		o.used = sum(o.used, cost)
	case o.kind == KindLog:
		if n := len(o.log); n > 0 && o.log[n-1].at == now {
			o.log[n-1].cost += whole
		} else {
			o.log = append(o.log, oracleEntry{now, whole})
		}
	default:
		o.cur += whole
	}
}

// boundedCount is what FORCE's bound is compared with: the count it raises.
func (o *oracle) boundedCount(now int64) *big.Rat {
	if o.kind == KindSliding {
		return rat(o.cur)
	}
	return o.usage(big.NewInt(now))
}

func (o *oracle) clone() *oracle {
	c := *o
	c.log = append([]oracleEntry(nil), o.log...)
	return &c
}

// after is the least number of milliseconds after which ok holds; ok must stay
// true once it is. It is searched for, up to far beyond every legal wait.
func after(now int64, ok func(t *big.Int) bool) int64 {
	lo, hi := int64(0), int64(1)<<44
	for lo < hi {
		mid := lo + (hi-lo)/2
		t := new(big.Int).Mul(big.NewInt(mid), big.NewInt(1_000_000))
		if ok(t.Add(t, big.NewInt(now))) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// do decides r; o is nil for a key that has no state. It returns the state
// after it.
func (o *oracle) do(r request, now int64) (*oracle, Result) {
	if r.refund {
		return o.refund(r.cost, now)
	}
	if o == nil {
		o = &oracle{kind: r.kind, limit: r.limit, used: new(big.Rat), at: now}
	}
	before := o.clone()
	o.convert(r.limit, now)
	res := Result{Limit: r.limit.A}
	capacity, cost := rat(r.limit.A), rat(r.cost)
	usage := o.usage(big.NewInt(now))
	fits := func(cost *big.Rat) func(*big.Int) bool {
		return func(t *big.Int) bool { return sum(o.usage(t), cost).Cmp(capacity) <= 0 }
	}
	empty := func(t *big.Int) bool { return o.usage(t).Sign() == 0 }
	waitFor := func(cost *big.Rat) int64 {
		if cost.Cmp(capacity) > 0 {
			return -1
		}
		return after(now, fits(cost))
	}
	queued := after(now, empty)
	take := new(big.Rat)
	switch {
	case r.mode == Force:
		res.Allowed = 1
		if r.cost > 0 {
			// Up to the bound, but what is there is never lowered.
			if room := difference(o.bound(), o.boundedCount(now)); room.Sign() > 0 {
				take = least(cost, room)
			}
			lost := ceiling(difference(cost, take))
			res.Forgotten = lost.Int64()
		}
	case r.mode == AtMost && r.cost > 0:
		if room := floor(difference(capacity, usage)); room.Sign() > 0 {
			take = least(cost, new(big.Rat).SetInt(room))
			res.Allowed = take.Num().Int64()
		} else {
			res.WaitMs = waitFor(rat(1))
		}
	case fits(cost)(big.NewInt(now)):
		if r.mode != AtMost {
			res.Allowed = 1
		}
		if r.kind == KindLeak {
			res.WaitMs = queued
		}
		if r.mode != Peek {
			take = cost
		}
	default:
		res.WaitMs = waitFor(cost)
	}
	if take.Sign() > 0 {
		o.add(take, now)
	}
	res.Remaining = floor(difference(capacity, o.usage(big.NewInt(now)))).Int64()
	res.ResetMs = after(now, empty)
	if r.cost == 0 || r.mode == Peek {
		return before, res
	}
	return o, res
}

func (o *oracle) refund(units, now int64) (*oracle, Result) {
	if o == nil {
		return nil, Result{Allowed: 1}
	}
	o.move(now)
	switch {
	case o.isBucket():
		if o.used = difference(o.used, rat(units)); o.used.Sign() < 0 {
			o.used = new(big.Rat)
		}
	case o.kind == KindLog:
		for len(o.log) > 0 && units > 0 {
			last := &o.log[len(o.log)-1]
			cut := min(last.cost, units)
			units -= cut
			if last.cost -= cut; last.cost == 0 {
				o.log = o.log[:len(o.log)-1]
			}
		}
	default:
		cut := min(o.cur, units)
		o.cur -= cut
		o.prev -= min(o.prev, units-cut)
	}
	return o, Result{
		Allowed:   1,
		Limit:     o.limit.A,
		Remaining: floor(difference(rat(o.limit.A), o.usage(big.NewInt(now)))).Int64(),
		ResetMs:   after(now, func(t *big.Int) bool { return o.usage(t).Sign() == 0 }),
	}
}

// gone says whether the state is as new at now, so that it may be forgotten.
func (o *oracle) gone(now int64) bool {
	if o.kind == KindSliding {
		c := o.clone()
		c.move(now)
		return c.prev == 0 && c.cur == 0
	}
	return o.usage(big.NewInt(now)).Sign() == 0
}
