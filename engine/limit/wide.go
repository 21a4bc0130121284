package limit

import "math/bits"

// wide is an unsigned number of 128 bits. Buckets are kept as used·period,
// which needs 116 of them for the largest legal parameters.
type wide struct{ hi, lo uint64 }

// mul is the full product of two numbers that are not negative.
func mul(a, b int64) wide {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return wide{hi, lo}
}

// plus is w + v. The widest sums of this package have 118 bits, so nothing is
// lost.
func (w wide) plus(v wide) wide {
	lo, carry := bits.Add64(w.lo, v.lo, 0)
	hi, _ := bits.Add64(w.hi, v.hi, carry)
	return wide{hi, lo}
}

// minus is w − v, and 0 where v is the larger.
func (w wide) minus(v wide) wide {
	lo, borrow := bits.Sub64(w.lo, v.lo, 0)
	hi, borrow := bits.Sub64(w.hi, v.hi, borrow)
	if borrow != 0 {
		return wide{}
	}
	return wide{hi, lo}
}

func (w wide) more(v wide) bool {
	return w.hi > v.hi || w.hi == v.hi && w.lo > v.lo
}

func (w wide) zero() bool { return w.hi|w.lo == 0 }

// div is ⌊w/d⌋ and the rest, for d above 0.
func (w wide) div(d int64) (quo wide, rem int64) {
	u := uint64(d)
	if w.hi == 0 {
		// Most buckets stay below 2^64, where one machine division does.
		q := w.lo / u
		return wide{0, q}, int64(w.lo - q*u)
	}
	// Div64 panics unless hi < u, so the high word is divided first.
	hi := w.hi / u
	lo, r := bits.Div64(w.hi-hi*u, w.lo, u)
	return wide{hi, lo}, int64(r)
}

// quo is ⌊w/d⌋ and the rest where the quotient is known to stay below 2^63
// for legal state; a quotient beyond it, which only damaged state can give,
// becomes most (and rest 0) instead of a panic or a wrapped number.
func (w wide) quo(d int64) (quo, rem int64) {
	q, r := w.div(d)
	if q.hi != 0 || q.lo > most {
		return most, 0
	}
	return int64(q.lo), r
}

// ceil is ⌈w/d⌉, saturating as quo does.
func (w wide) ceil(d int64) int64 {
	q, r := w.quo(d)
	if r > 0 {
		q++
	}
	return q
}

// most is where quotients saturate: far above every legal one, and low enough
// that one more and a difference to any capacity stay within an int64.
const most = 1<<63 - 1<<55

// millis turns nanoseconds into milliseconds, rounded up.
func millis(ns int64) int64 {
	return int64((uint64(ns) + 999_999) / 1_000_000)
}
