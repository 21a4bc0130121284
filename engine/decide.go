package engine

import (
	"github.com/stint-dev/stint/engine/internal/table"
	"github.com/stint-dev/stint/engine/limit"
)

// Throttle decides on a token bucket: cost units of the bucket under key, that
// holds l.Capacity and refills at l.Rate. The limit must have passed Check,
// and cost be within 0 … limit.MaxUnits.
//
// A bucket remembers the limit of its last decision; under another one the
// share that is used is kept, and stored even if the request is refused.
//
// Errors: ErrWrongType, ErrOOM, ErrKey; with each of them, nothing was changed.
func (tx *Tx) Throttle(key []byte, l limit.BucketLimit, cost int64, m limit.Mode) (limit.Result, error) {
	return tx.bucket(limit.KindBucket, key, l, cost, m)
}

// Leak decides on a leaky bucket as a queue: Throttle's arithmetic, but the
// WaitMs of an allowed request is how long to hold it back. Modes: Consume and
// Peek.
func (tx *Tx) Leak(key []byte, l limit.BucketLimit, cost int64, m limit.Mode) (limit.Result, error) {
	return tx.bucket(limit.KindLeak, key, l, cost, m)
}

// bucket decides on a token or leaky bucket: in place if it is there under this
// limit already, which nearly all are, and else in full. In place means without
// a Value: two words are read and written where they lie.
func (tx *Tx) bucket(kind limit.Kind, key []byte, l limit.BucketLimit, cost int64, m limit.Mode) (limit.Result, error) {
	d, ok := tx.b.(*direct)
	if !ok {
		tx.b.find(tx, key, true)
		return tx.bucketOrRelieve(kind, key, &l, cost, m)
	}
	t := d.locate(tx, key, true)
	if d.ref == table.NoRef {
		tx.v = limit.Value{}
		return tx.bucketOrRelieve(kind, key, &l, cost, m)
	}
	p := l.Params()
	was, ok := t.Bucket(d.ref, kind, &p)
	if !ok {
		d.read(tx, t)
		return tx.bucketOrRelieve(kind, key, &l, cost, m)
	}
	if was.Expiry() <= tx.now {
		was = limit.Bucket{} // full: as if there were none
	}
	var b limit.Bucket
	var r limit.Result
	if kind == limit.KindLeak {
		b, r = l.DecideLeak(was, cost, m, tx.now)
	} else {
		b, r = l.Decide(was, cost, m, tx.now)
	}
	if cost == 0 || m == limit.Peek {
		return r, nil
	}
	if b != was {
		// A cost above 0 was consumed, so the bucket is not full.
		t.PutBucket(d.ref, b)
	}
	d.count(r.Allowed > 0)
	if r.Forgotten != 0 {
		tx.ks.forgotten.Add(r.Forgotten)
	}
	return r, nil
}

// bucketOrRelieve is bucketInFull, and once more if memory was all that it
// lacked and keys that are full gave some back.
func (tx *Tx) bucketOrRelieve(kind limit.Kind, key []byte, l *limit.BucketLimit, cost int64, m limit.Mode) (limit.Result, error) {
	r, err := tx.bucketInFull(kind, key, l, cost, m)
	if err == ErrOOM && tx.b.relieve(tx) {
		tx.b.find(tx, key, true)
		r, err = tx.bucketInFull(kind, key, l, cost, m)
	}
	return r, err
}

// bucketInFull decides on what was found: also on a new bucket, one under
// another limit, and what is none.
func (tx *Tx) bucketInFull(kind limit.Kind, key []byte, l *limit.BucketLimit, cost int64, m limit.Mode) (limit.Result, error) {
	v := &tx.v
	if v.Kind != kind && v.Kind != limit.None {
		return limit.Result{}, ErrWrongType
	}
	was := v.Bucket()
	b, converted, forgotten := was, false, int64(0)
	if p := l.Params(); v.Limit != p {
		if v.Kind != limit.None {
			b, forgotten = l.Convert(b, limit.BucketLimitOf(v.Limit), tx.now)
			converted = true
		}
		v.Limit = p
	}
	var r limit.Result
	if kind == limit.KindLeak {
		b, r = l.DecideLeak(b, cost, m, tx.now)
	} else {
		b, r = l.Decide(b, cost, m, tx.now)
	}
	if cost == 0 || m == limit.Peek {
		return r, nil
	}
	if b == was && !converted {
		tx.count(r)
		return r, nil
	}
	v.Kind = kind
	v.SetBucket(b)
	if err := tx.store(key); err != nil {
		return limit.Result{}, err
	}
	r.Forgotten += forgotten
	tx.count(r)
	return r, nil
}

// Window decides on a window of the kind given, KindFixed, KindSliding or
// KindLog: cost units against l.Limit for each l.Period. The limit must have
// passed Check, and cost be within 0 … limit.MaxUnits. Modes: Consume, Peek
// and Force.
//
// Errors: ErrWrongType, ErrOOM, ErrKey, ErrKind, limit.ErrLogFull; with each of
// them, nothing was changed.
func (tx *Tx) Window(kind limit.Kind, key []byte, l limit.WindowLimit, cost int64, m limit.Mode) (limit.Result, error) {
	r, err := tx.window(kind, key, l, cost, m)
	if err == ErrOOM && tx.b.relieve(tx) {
		r, err = tx.window(kind, key, l, cost, m)
	}
	return r, err
}

func (tx *Tx) window(kind limit.Kind, key []byte, l limit.WindowLimit, cost int64, m limit.Mode) (limit.Result, error) {
	tx.b.find(tx, key, true)
	v := &tx.v
	if v.Kind != kind && v.Kind != limit.None {
		return limit.Result{}, ErrWrongType
	}
	old := limit.WindowLimitOf(v.Limit)
	converted := v.Kind != limit.None && old != l
	switch kind {
	case limit.KindFixed, limit.KindSliding:
	case limit.KindLog:
		return tx.log(key, l, old, converted, cost, m)
	default:
		return limit.Result{}, ErrKind
	}
	var r limit.Result
	var forgotten int64
	was := v.W
	if kind == limit.KindFixed {
		w := v.Fixed()
		if converted {
			w = l.ConvertFixed(w, old, tx.now)
		}
		w, r = l.DecideFixed(w, cost, m, tx.now)
		v.SetFixed(w)
	} else {
		s := v.Sliding()
		if converted {
			s, forgotten = l.ConvertSliding(s, old, tx.now)
		}
		s, r = l.DecideSliding(s, cost, m, tx.now)
		v.SetSliding(s)
	}
	if cost == 0 || m == limit.Peek {
		return r, nil
	}
	// A refused sliding window may have rolled on: that is not stored either.
	if !converted && (v.W == was || r.Allowed == 0) {
		tx.count(r)
		return r, nil
	}
	v.Kind, v.Limit = kind, l.Params()
	if err := tx.store(key); err != nil {
		return limit.Result{}, err
	}
	r.Forgotten += forgotten
	tx.count(r)
	return r, nil
}

// log is Window for KindLog: what a decision does to a log is a change to it,
// not another value of it.
func (tx *Tx) log(key []byte, l, old limit.WindowLimit, converted bool, cost int64, m limit.Mode) (limit.Result, error) {
	var conversion limit.LogChange
	if converted {
		conversion = l.ConvertLog(tx.v.Log, old, tx.now)
	}
	c, r, err := l.DecideLogFrom(tx.v.Log, conversion.Drop, cost, m, tx.now)
	if err != nil || cost == 0 || m == limit.Peek {
		return r, err
	}
	if c == (limit.LogChange{}) {
		if !converted {
			tx.count(r)
			return r, nil
		}
		c = conversion
	}
	if err := tx.storeLog(key, l, c); err != nil {
		return limit.Result{}, err
	}
	tx.count(r)
	return r, nil
}

// Refund gives units, 0 … limit.MaxUnits, back to a limiter of any kind, never
// beyond full, under the limit it remembers. A key without one is answered
// allowed 1 and zeros. Refund needs no memory: it does not fail.
func (tx *Tx) Refund(key []byte, units int64) (limit.Result, error) {
	tx.b.find(tx, key, true)
	v := &tx.v
	l := limit.WindowLimitOf(v.Limit)
	was := v.W
	var r limit.Result
	switch v.Kind {
	case limit.KindBucket, limit.KindLeak:
		b, res := limit.BucketLimitOf(v.Limit).Refund(v.Bucket(), units, tx.now)
		v.SetBucket(b)
		r = res
	case limit.KindFixed:
		w, res := l.RefundFixed(v.Fixed(), units, tx.now)
		v.SetFixed(w)
		r = res
	case limit.KindSliding:
		s, res := l.RefundSliding(v.Sliding(), units, tx.now)
		v.SetSliding(s)
		r = res
	case limit.KindLog:
		c, res := l.RefundLog(v.Log, units, tx.now)
		if units == 0 || c == (limit.LogChange{}) {
			return res, nil
		}
		return res, tx.storeLog(key, l, c)
	default:
		return limit.Result{Allowed: 1}, nil
	}
	if units == 0 || v.W == was {
		return r, nil
	}
	return r, tx.store(key)
}

// store writes the transaction's value, or forgets the key if it is full.
func (tx *Tx) store(key []byte) error {
	if tx.v.Expiry() <= tx.now {
		tx.b.remove(tx, key)
		return nil
	}
	return tx.b.put(tx, key)
}

// storeLog applies c to the log under key, or forgets the key if nothing is
// left in it.
func (tx *Tx) storeLog(key []byte, l limit.WindowLimit, c limit.LogChange) error {
	if c.Cost == 0 && tx.v.Log.Len() == c.Drop+c.Pop {
		tx.b.remove(tx, key)
		return nil
	}
	return tx.b.putLog(tx, key, l.Params(), c)
}

// count counts a decision, and the units that FORCE asked for beyond its bound.
func (tx *Tx) count(r limit.Result) {
	tx.b.count(r.Allowed > 0)
	if r.Forgotten != 0 {
		tx.ks.forgotten.Add(r.Forgotten)
	}
}
