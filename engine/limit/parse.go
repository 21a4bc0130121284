package limit

import "math/bits"

// Lengths of the units a rate or period may be given in, ns.
const (
	millisecond = 1_000_000
	second      = 1_000 * millisecond
	minute      = 60 * second
	hour        = 60 * minute
	day         = 24 * hour
	week        = 7 * day
)

// Rate is Count units per Period nanoseconds. It is a pair, not a ratio:
// 2 per 2 s and 1 per 1 s are different rates, because state is kept in parts
// of 1/Period and a change of the pair rounds it.
//
// Count is 1 to MaxUnits, Period 1 to 2^63−1.
type Rate struct{ Count, Period int64 }

// ParseRate reads a rate: `N`, units per second, or `N/P`, units per period,
// like 100/m, 100/60s or 7/250ms. N may have up to nine decimals; each makes
// the period ten times longer, so 0.1 is 1 per 10 s and nothing is rounded.
// It does not allocate. It is false for anything else, and for a pair out of
// bounds.
func ParseRate(b []byte) (Rate, bool) {
	count, n := digits(b, MaxUnits)
	if n <= 0 {
		return Rate{}, false
	}
	b = b[n:]
	scale := uint64(1)
	if len(b) > 0 && b[0] == '.' {
		b = b[1:]
		f := 0
		for ; f < len(b) && isDigit(b[f]); f++ {
			if f == 9 {
				return Rate{}, false
			}
			// count is below 2^53, so ten times it fits easily.
			count = count*10 + uint64(b[f]-'0')
			if count > MaxUnits {
				return Rate{}, false
			}
			scale *= 10
		}
		if f == 0 {
			return Rate{}, false
		}
		b = b[f:]
	}
	period := uint64(second)
	if len(b) > 0 {
		if b[0] != '/' {
			return Rate{}, false
		}
		var ok bool
		if period, ok = span(b[1:], 0); !ok {
			return Rate{}, false
		}
	}
	hi, period := bits.Mul64(period, scale)
	if count == 0 || hi != 0 || period > 1<<63-1 {
		return Rate{}, false
	}
	return Rate{int64(count), int64(period)}, true
}

// ParsePeriod reads a period or time to live: `60` is seconds, otherwise with
// a unit, 250ms, 30s, 1h, 1d, 1w; a unit alone is one of it. It returns ns
// from MinPeriod to MaxPeriod, and false for anything else. It does not
// allocate.
func ParsePeriod(b []byte) (int64, bool) {
	ns, ok := span(b, second)
	if !ok || ns < MinPeriod || ns > MaxPeriod {
		return 0, false
	}
	return int64(ns), true
}

// ParseUnits reads a cost, capacity or limit: decimal digits only, 0 to
// MaxUnits. It does not allocate.
func ParseUnits(b []byte) (int64, bool) {
	v, n := digits(b, MaxUnits)
	if n <= 0 || n != len(b) {
		return 0, false
	}
	return int64(v), true
}

func isDigit(c byte) bool { return c-'0' <= 9 }

// digits reads the decimal digits that b begins with. n is how many there
// were, or -1 when their number is above max.
func digits(b []byte, max uint64) (v uint64, n int) {
	for n < len(b) && isDigit(b[n]) {
		d := uint64(b[n] - '0')
		if v > (max-d)/10 {
			return 0, -1
		}
		v = v*10 + d
		n++
	}
	return v, n
}

// span reads [0-9]*(ms|s|m|h|d|w) and returns ns, above 0 and below 2^63.
// Without a unit the number counts in bare ns; bare 0 says that a unit must be
// there. Without a number it is 1.
func span(b []byte, bare uint64) (uint64, bool) {
	v, n := digits(b, 1<<63-1)
	if n < 0 {
		return 0, false
	}
	unit := bare
	switch string(b[n:]) {
	case "":
		if n == 0 {
			return 0, false
		}
	case "ms":
		unit = millisecond
	case "s":
		unit = second
	case "m":
		unit = minute
	case "h":
		unit = hour
	case "d":
		unit = day
	case "w":
		unit = week
	default:
		return 0, false
	}
	if n == 0 {
		v = 1
	}
	hi, ns := bits.Mul64(v, unit)
	if ns == 0 || hi != 0 || ns > 1<<63-1 {
		return 0, false
	}
	return ns, true
}
