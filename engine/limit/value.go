package limit

import "fmt"

// Kind says which algorithm a value belongs to. The numbers are stored in
// files: never renumber.
type Kind uint8

const (
	None        Kind = 0 // no value: as new
	KindBucket  Kind = 1 // token bucket (THROTTLE, CL.THROTTLE)
	KindLeak    Kind = 2 // leaky bucket (LEAK)
	KindFixed   Kind = 3 // fixed window
	KindSliding Kind = 4 // sliding window of two counters
	KindLog     Kind = 5 // sliding log
)

// String is the kind's name as the command TYPE replies it.
func (k Kind) String() string {
	switch k {
	case None:
		return "none"
	case KindBucket:
		return "bucket"
	case KindLeak:
		return "leak"
	case KindFixed:
		return "fixed"
	case KindSliding:
		return "sliding"
	case KindLog:
		return "log"
	}
	return "unknown"
}

// Params is a limit in stored form, whatever the kind.
//
//	bucket, leak:         A capacity, B rate count, C rate period (ns)
//	fixed, sliding, log:  A limit,    B 0,          C period (ns)
type Params struct{ A, B, C int64 }

// Value is the state under one key, with the limit of its last decision.
// W holds the numbers of the kind:
//
//	bucket, leak:  FullAt, Rem, 0
//	fixed:         Start, Count, 0
//	sliding:       Start, Prev, Cur
//	log:           unused; the entries are in Log
//
// The zero Value is no value. A Value read from an engine shares its Log with
// the engine: it is read only, and valid until the transaction goes on.
type Value struct {
	Kind  Kind
	Limit Params
	W     [3]int64
	Log   *Log
}

// Bucket is the state of a value of KindBucket or KindLeak.
func (v *Value) Bucket() Bucket { return Bucket{FullAt: v.W[0], Rem: v.W[1]} }

// SetBucket stores the state of a bucket.
func (v *Value) SetBucket(b Bucket) { v.W = [3]int64{b.FullAt, b.Rem, 0} }

// Fixed is the state of a value of KindFixed.
func (v *Value) Fixed() Fixed { return Fixed{Start: v.W[0], Count: v.W[1]} }

// SetFixed stores the state of a fixed window.
func (v *Value) SetFixed(w Fixed) { v.W = [3]int64{w.Start, w.Count, 0} }

// Sliding is the state of a value of KindSliding.
func (v *Value) Sliding() Sliding { return Sliding{Start: v.W[0], Prev: v.W[1], Cur: v.W[2]} }

// SetSliding stores the state of a sliding window.
func (v *Value) SetSliding(s Sliding) { v.W = [3]int64{s.Start, s.Prev, s.Cur} }

// Expiry is the first instant (unix ns) from which on the value is as new, so
// equal to no value; 0 if it always was.
func (v *Value) Expiry() int64 {
	switch v.Kind {
	case KindBucket, KindLeak:
		return v.Bucket().Expiry()
	case KindFixed:
		return v.Fixed().Expiry(WindowLimitOf(v.Limit))
	case KindSliding:
		return v.Sliding().Expiry(WindowLimitOf(v.Limit))
	case KindLog:
		return WindowLimitOf(v.Limit).ExpiryLog(v.Log)
	}
	return 0
}

// Look is the value as it is at now, under its own limit: allowed 1, the
// limit, what remains and the time until it is as new; wait is 0. For no
// value it is the zero Result but for Allowed.
func (v *Value) Look(now int64) Result {
	switch v.Kind {
	case KindBucket, KindLeak:
		return BucketLimitOf(v.Limit).Look(v.Bucket(), now)
	case KindFixed:
		return WindowLimitOf(v.Limit).LookFixed(v.Fixed(), now)
	case KindSliding:
		return WindowLimitOf(v.Limit).LookSliding(v.Sliding(), now)
	case KindLog:
		return WindowLimitOf(v.Limit).LookLog(v.Log, now)
	}
	return Result{Allowed: 1}
}

// Valid says whether the value is one that decisions can have made, as far as
// that can be told without the time: its limit and all its numbers are within
// the bounds for which the functions of this package are exact. The errors
// wrap ErrDamaged.
func (v *Value) Valid() error {
	switch v.Kind {
	case KindBucket, KindLeak:
		return v.validBucket()
	case KindFixed, KindSliding, KindLog:
		return v.validWindow()
	}
	return fmt.Errorf("%w: kind %d is none", ErrDamaged, v.Kind)
}

func (v *Value) validBucket() error {
	l, b := BucketLimitOf(v.Limit), v.Bucket()
	if err := l.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	switch {
	case b.FullAt < 0:
		return fmt.Errorf("%w: a bucket is full at %d, before time began", ErrDamaged, b.FullAt)
	case b.Rem < 0 || b.Rem >= l.Rate.Count:
		return fmt.Errorf("%w: a bucket's remainder is %d under a rate count of %d", ErrDamaged, b.Rem, l.Rate.Count)
	case b.FullAt-MaxTime > MaxFill-1 && b.Rem > 0:
		return fmt.Errorf("%w: a bucket is full later than any can be", ErrDamaged)
	case v.W[2] != 0 || v.Log != nil:
		return fmt.Errorf("%w: a bucket with more than a bucket's numbers", ErrDamaged)
	}
	return nil
}

// maxCount is the largest count a window can have: lowering a limit does not
// lower what FORCE counted under the largest.
const maxCount = 2 * MaxUnits

func (v *Value) validWindow() error {
	l := WindowLimitOf(v.Limit)
	if err := l.Check(v.Kind); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	switch {
	case v.Limit.B != 0:
		return fmt.Errorf("%w: a window with a rate", ErrDamaged)
	case v.Kind == KindLog:
		if v.W != [3]int64{} {
			return fmt.Errorf("%w: a sliding log with a window's numbers", ErrDamaged)
		}
		return v.Log.valid()
	case v.Log != nil:
		return fmt.Errorf("%w: a window with a log", ErrDamaged)
	case v.W[0] < 0 || v.W[0] > MaxTime || v.W[0]%l.Period != 0:
		return fmt.Errorf("%w: a window begins at %d, where none of its period of %d ns does", ErrDamaged, v.W[0], l.Period)
	case v.W[1] < 0 || v.W[1] > maxCount || v.W[2] < 0 || v.W[2] > maxCount:
		return fmt.Errorf("%w: a window has counted %d and %d", ErrDamaged, v.W[1], v.W[2])
	case v.Kind == KindFixed && v.W[2] != 0:
		return fmt.Errorf("%w: a fixed window with two counts", ErrDamaged)
	}
	return nil
}

// valid says whether a log's entries are ones that decisions can have made.
func (g *Log) valid() error {
	n := g.Len()
	if n > MaxLogEntries {
		return fmt.Errorf("%w: a sliding log of %d entries", ErrDamaged, n)
	}
	sum, before := int64(0), int64(-1)
	for i := range n {
		at, cost := g.At(i)
		switch {
		case at <= before || at > MaxTime:
			return fmt.Errorf("%w: entry %d of a sliding log is at %d, after one at %d", ErrDamaged, i, at, before)
		case cost < 1 || cost > MaxLogSum-sum:
			return fmt.Errorf("%w: entry %d of a sliding log brings its sum past what it can be", ErrDamaged, i)
		}
		sum += cost
		before = at
	}
	return nil
}

// MaxLogSum is the largest sum of a sliding log that is not all expired: FORCE
// goes to the limit and MaxUnits, and expired entries are dropped before one
// is added.
const MaxLogSum = MaxLogLimit + MaxUnits
