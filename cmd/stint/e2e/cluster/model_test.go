//go:build unix

package cluster

import (
	"github.com/anishathalye/porcupine"
)

// The models say what one key under one limit must answer, with arithmetic of
// their own: the numbers are small enough for it to be that of the definitions.
//
// A decided operation is checked at the time at which it says it was decided. What
// was stored has a time that nothing later may be before; a refusal and a read
// have a time too, but the next leader may begin up to a second before that.
//
// An operation of unknown outcome has no time. It may come last, where it does no
// harm: that is as if it had not happened. Else it is carried out at the latest
// stored time. That is what really happened if time makes no difference between
// there and the next operation: for a bucket if it was not full in between, for a
// window if the next operation falls into the same one. Where it does, the state
// is lost, and everything is allowed from there on: a model must never be wrong.

// modelOf is the model of a kind of limit.
func modelOf(k kind) porcupine.Model {
	if k == bucket {
		return bucketModel
	}
	return windowModel
}

// bucketState is a bucket as the product of the time at which it is full again
// and the rate, units·ns since the epoch, so that nothing is ever rounded.
type bucketState struct {
	full  int64 // count × the time at which it is full; at or below count × now: it is
	now   int64 // latest stored time, ns since the epoch
	least int64 // full, before what is unknown since then; −1: nothing is
	lost  bool
}

var bucketModel = porcupine.Model{
	Partition:         byKey,
	Init:              func() any { return bucketState{least: -1} },
	Step:              func(s, in, out any) (bool, any) { return s.(bucketState).step(in.(call), out.(result)) },
	DescribeOperation: describe,
}

func (s bucketState) step(c call, r result) (bool, bucketState) {
	on := c.on
	if s.lost {
		return true, s
	}
	if !r.known {
		return true, s.unknown(c)
	}
	now := r.stamp - on.epoch
	if now < s.now {
		return false, s
	}
	if s.least >= 0 && now > s.now && s.least < now*on.count {
		return true, bucketState{lost: true}
	}
	used := max(0, s.full-now*on.count) // units·ns, as all of these
	size, cost := on.capacity*on.period, c.cost*on.period
	fits := used+cost <= size
	next := s
	switch c.verb {
	case remove:
		if used > 0 {
			next = bucketState{now: now, least: -1}
		}
		return r.n == truth(used > 0), next
	case exists:
		return r.n == truth(used > 0), s
	case take:
		if fits {
			used += cost
			next = bucketState{full: now*on.count + used, now: now, least: -1}
		}
	}
	return r.five == answer(c, fits, (size-used)/on.period, ceil(used+cost-size, on.count), ceil(used, on.count)), next
}

func (s bucketState) unknown(c call) bucketState {
	next := s
	switch c.verb {
	case take:
		// Whether it fits is for its own time to say, which may be later.
		next.full = max(s.full, s.now*c.on.count) + c.cost*c.on.period
	case remove:
		next.full = 0
	default:
		return s
	}
	if next.least < 0 {
		next.least = s.full
	}
	if c.verb == remove {
		next.least = 0
	}
	return next
}

// answer is the reply of a decision; wait and reset are in ns.
func answer(c call, fits bool, remaining, wait, reset int64) [5]int64 {
	switch {
	case fits:
		wait = 0
	case c.cost > c.on.capacity:
		wait = -1
	default:
		wait = ceil(wait, 1e6)
	}
	return [5]int64{truth(fits), c.on.capacity, remaining, wait, ceil(reset, 1e6)}
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// ceil is a ÷ b, rounded up; both at or above 0.
func ceil(a, b int64) int64 { return (a + b - 1) / b }

// windowState is a fixed or sliding window.
type windowState struct {
	start     int64 // of the window, unix ns
	prev, cur int64 // units in the window before and in this one
	now       int64 // latest stored time, unix ns
	fuzzy     bool  // what is unknown was carried out since then
	lost      bool
}

var windowModel = porcupine.Model{
	Partition:         byKey,
	Init:              func() any { return windowState{} },
	Step:              func(s, in, out any) (bool, any) { return s.(windowState).step(in.(call), out.(result)) },
	DescribeOperation: describe,
}

// at is the window of a time.
func (s windowState) at(on *subject, now int64) windowState {
	start := now - now%on.period
	switch start - s.start {
	case 0:
	case on.period:
		s.prev, s.cur = s.cur, 0
	default:
		s.prev, s.cur = 0, 0
	}
	s.start = start
	if on.kind == fixed {
		s.prev = 0
	}
	return s
}

func (s windowState) step(c call, r result) (bool, windowState) {
	on := c.on
	if s.lost {
		return true, s
	}
	if !r.known {
		return true, s.unknown(c)
	}
	now := r.stamp
	if now < s.now {
		return false, s
	}
	w := s.at(on, now)
	if s.fuzzy && w.start != s.start {
		return true, windowState{lost: true}
	}
	p, left := on.period, on.period-(now-w.start)
	counted := func() int64 { return w.prev*left + w.cur*p } // units·ns
	there := w.cur > 0 || w.prev > 0
	fits := counted()+c.cost*p <= on.capacity*p
	next := s
	switch c.verb {
	case remove:
		if there {
			next = windowState{start: w.start, now: now}
		}
		return r.n == truth(there), next
	case exists:
		return r.n == truth(there), s
	case take:
		if fits {
			w.cur += c.cost
			w.now, w.fuzzy = now, false
			next = w
		}
	}
	var wait, reset int64
	switch {
	case fits || c.cost > on.capacity:
	case on.kind == fixed:
		wait = left
	case w.cur+c.cost <= on.capacity:
		wait = left - (on.capacity-w.cur-c.cost)*p/w.prev
	default:
		wait = min(left+p-(on.capacity-c.cost)*p/w.cur, left+p)
	}
	switch {
	case w.cur > 0 && on.kind == sliding:
		reset = left + p
	case w.cur > 0 || w.prev > 0:
		reset = left
	}
	return r.five == answer(c, fits, (on.capacity*p-counted())/p, wait, reset), next
}

func (s windowState) unknown(c call) windowState {
	switch c.verb {
	case take:
		if s.cur+c.cost > c.on.capacity {
			return s
		}
		s.cur += c.cost
	case remove:
		s.prev, s.cur = 0, 0
	default:
		return s
	}
	s.fuzzy = true
	return s
}
