package limit

import (
	"encoding/binary"
	"fmt"
)

// ValueFormat is the format that AppendValue writes. It is the high half of a
// value's first byte; the low half is the kind.
//
// Format 0, all numbers unsigned varints (encoding/binary):
//
//	bucket, leak  A, B, C, FullAt, Rem
//	fixed         A, C, Start/C, Count
//	sliding       A, C, Start/C, Prev, Cur
//	log           A, C, number of entries, then for each: the time since the
//	              entry before (the first: unix ns), cost
const ValueFormat = 0

// AppendValue appends the value, which must be Valid, in a form that
// DecodeValue reads: 12 to 30 bytes mostly, and about 5 more for each entry
// of a sliding log.
func AppendValue(dst []byte, v *Value) []byte {
	dst = append(dst, ValueFormat<<4|byte(v.Kind))
	dst = appendInt(dst, v.Limit.A)
	switch v.Kind {
	case KindBucket, KindLeak:
		dst = appendInt(dst, v.Limit.B)
		dst = appendInt(dst, v.Limit.C)
		dst = appendInt(dst, v.W[0])
		dst = appendInt(dst, v.W[1])
	case KindFixed:
		dst = appendInt(dst, v.Limit.C)
		dst = appendInt(dst, v.W[0]/v.Limit.C)
		dst = appendInt(dst, v.W[1])
	case KindSliding:
		dst = appendInt(dst, v.Limit.C)
		dst = appendInt(dst, v.W[0]/v.Limit.C)
		dst = appendInt(dst, v.W[1])
		dst = appendInt(dst, v.W[2])
	case KindLog:
		dst = appendInt(dst, v.Limit.C)
		n := v.Log.Len()
		dst = appendInt(dst, int64(n))
		before := int64(0)
		for i := range n {
			at, cost := v.Log.At(i)
			dst = appendInt(dst, at-before)
			dst = appendInt(dst, cost)
			before = at
		}
	}
	return dst
}

func appendInt(dst []byte, x int64) []byte { return binary.AppendUvarint(dst, uint64(x)) }

// DecodeValue reads a value that AppendValue wrote and returns the bytes after
// it. It accepts nothing that is not Valid, so that no decision on it can
// fail: errors wrap ErrDamaged or ErrVersion. Only a sliding log allocates,
// and at most eight bytes for each byte of its encoding.
func DecodeValue(b []byte) (v Value, rest []byte, err error) {
	if len(b) == 0 {
		return Value{}, nil, fmt.Errorf("%w: it is empty", ErrDamaged)
	}
	if format := b[0] >> 4; format != ValueFormat {
		return Value{}, nil, fmt.Errorf("%w: %d, known is %d", ErrVersion, format, ValueFormat)
	}
	v.Kind = Kind(b[0] & 15)
	d := decoder{b: b[1:]}
	v.Limit.A = d.int()
	switch v.Kind {
	case KindBucket, KindLeak:
		v.Limit.B, v.Limit.C = d.int(), d.int()
		v.W[0], v.W[1] = d.int(), d.int()
	case KindFixed:
		v.Limit.C = d.int()
		v.W[0] = d.times(v.Limit.C)
		v.W[1] = d.int()
	case KindSliding:
		v.Limit.C = d.int()
		v.W[0] = d.times(v.Limit.C)
		v.W[1], v.W[2] = d.int(), d.int()
	case KindLog:
		v.Limit.C = d.int()
		v.Log = d.log()
	}
	if d.bad {
		return Value{}, nil, fmt.Errorf("%w: it is cut short, or a number is too large", ErrDamaged)
	}
	if err := v.Valid(); err != nil {
		return Value{}, nil, err
	}
	return v, d.b, nil
}

// decoder reads numbers off b; bad says that one was not there.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) int() int64 {
	x, n := binary.Uvarint(d.b)
	if n <= 0 || x > 1<<63-1 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return int64(x)
}

// times reads a multiple of unit.
func (d *decoder) times(unit int64) int64 {
	p := mul(d.int(), unit)
	if p.hi != 0 || p.lo > 1<<63-1 {
		d.bad = true
		return 0
	}
	return int64(p.lo)
}

func (d *decoder) log() *Log {
	n := d.int()
	// An entry takes two bytes at least, so that a few bytes cannot ask for
	// much memory.
	if n > MaxLogEntries || n > int64(len(d.b)/2) {
		d.bad = true
		return nil
	}
	g := &Log{ring: make([]LogEntry, max(int(n), minEntries)), n: int(n)}
	at, sum := int64(0), uint64(0)
	for i := range g.n {
		step, cost := d.int(), d.int()
		if d.bad || step > MaxTime-at {
			d.bad = true
			return nil
		}
		at += step
		sum += uint64(cost)
		g.ring[i] = LogEntry{At: at, Sum: sum}
	}
	return g
}
