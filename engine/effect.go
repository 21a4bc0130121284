package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/stint-dev/stint/engine/limit"
)

// Effects are what a batch of decisions has changed, as bytes: for each key that
// was written its new value, once, however often it was decided on. Applied in
// the same order to the same state they make the same state, everywhere.
//
//	effect:  head (1 byte), [database (1 byte)], then for all but flush:
//	         length of the key, key, and what the operation needs
//	head:    operation (low 4 bits); headDB: a database follows, else it is the
//	         one of the effect before (0 at first); headLimit: the limit follows
//	         and gets the next number, else a number follows; headAnew: what is
//	         stored is forgotten first
//	limit:   A, B, C (see limit.Params)
//	bucket, leak:  FullAt − now (signed), Rem
//	fixed:   number of the window − that of now (signed), Count
//	sliding: the same, Prev, Cur
//	log:     oldest entries to drop, newest to drop, how many follow, and for
//	         each: time − now (signed), cost
//
// Numbers are varints, unsigned but where said. now is the time of the decisions,
// which is not part of the bytes. A bucket's effect takes some 10 bytes beyond its
// key, and 9 more where its limit is the first of its kind in the batch.
//
// The bytes have no version of their own: whoever keeps them says which it is.
const (
	effectDelete = 0
	effectFlush  = 1
	effectLog    = 2
	effectPut    = 8 // + kind

	headOp    = 0x0f
	headDB    = 0x10
	headLimit = 0x20
	headAnew  = 0x40
	headNone  = 0x80 // not in use
)

// effectWriter encodes effects.
type effectWriter struct {
	dst    []byte
	now    int64
	db     uint8
	limits map[limit.Params]uint64
}

func (w *effectWriter) head(op, flags, db uint8, key []byte) {
	if db != w.db {
		flags |= headDB
	}
	w.dst = append(w.dst, op|flags)
	if db != w.db {
		w.dst = append(w.dst, db)
		w.db = db
	}
	if op != effectFlush {
		w.dst = binary.AppendUvarint(w.dst, uint64(len(key)))
		w.dst = append(w.dst, key...)
	}
}

// known is the number of a limit, or false if it has none yet, and now has.
func (w *effectWriter) known(p limit.Params) (uint64, bool) {
	i, ok := w.limits[p]
	if !ok {
		w.limits[p] = uint64(len(w.limits))
	}
	return i, ok
}

func (w *effectWriter) value(db uint8, key []byte, h *held) {
	v := &h.v
	op, flags := effectPut+uint8(v.Kind), uint8(0)
	if v.Kind == limit.KindLog {
		op = effectLog
		if h.anew {
			flags = headAnew
		}
	}
	i, ok := w.known(v.Limit)
	if !ok {
		flags |= headLimit
	}
	w.head(op, flags, db, key)
	if ok {
		w.uint(int64(i))
	} else {
		w.uint(v.Limit.A)
		w.uint(v.Limit.B)
		w.uint(v.Limit.C)
	}
	switch v.Kind {
	case limit.KindBucket, limit.KindLeak:
		w.int(v.W[0] - w.now)
		w.uint(v.W[1])
	case limit.KindFixed:
		w.int(v.W[0]/v.Limit.C - w.now/v.Limit.C)
		w.uint(v.W[1])
	case limit.KindSliding:
		w.int(v.W[0]/v.Limit.C - w.now/v.Limit.C)
		w.uint(v.W[1])
		w.uint(v.W[2])
	case limit.KindLog:
		drop, pop, kept := v.Log.Changed()
		w.uint(int64(drop))
		w.uint(int64(pop))
		w.uint(int64(v.Log.Len() - kept))
		for i := kept; i < v.Log.Len(); i++ {
			at, cost := v.Log.At(i)
			w.int(at - w.now)
			w.uint(cost)
		}
	}
}

func (w *effectWriter) uint(x int64) { w.dst = binary.AppendUvarint(w.dst, uint64(x)) }
func (w *effectWriter) int(x int64)  { w.dst = binary.AppendVarint(w.dst, x) }

// effect is one decoded effect.
type effect struct {
	op   uint8
	db   uint8
	key  []byte
	anew bool
	v    limit.Value // of a put; of a log its limit only

	drop, pop int
	entries   []byte // of a log, not decoded
	count     int
}

// effectReader decodes effects; bad says that something was not there.
type effectReader struct {
	b      []byte
	now    int64
	db     uint8
	limits []limit.Params
	bad    bool
}

func (r *effectReader) byte() uint8 {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *effectReader) uint() int64 {
	x, n := binary.Uvarint(r.b)
	if n <= 0 || x > 1<<63-1 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return int64(x)
}

// near is a number given by its distance from another, 0 or more.
func (r *effectReader) near(base int64) int64 {
	d, n := binary.Varint(r.b)
	x := base + d
	if n <= 0 || x < 0 { // a sum that is too large is below 0 too
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return x
}

func (r *effectReader) limit(follows bool) limit.Params {
	if !follows {
		if i := r.uint(); i < int64(len(r.limits)) && !r.bad {
			return r.limits[i]
		}
		r.bad = true
		return limit.Params{C: 1}
	}
	p := limit.Params{A: r.uint(), B: r.uint(), C: r.uint()}
	if p.C < 1 {
		r.bad, p.C = true, 1
	}
	r.limits = append(r.limits, p)
	return p
}

// window is the start of a window given by its number.
func (r *effectReader) window(period int64) int64 {
	n := r.near(r.now / period)
	if n > limit.MaxTime/period {
		r.bad = true
		return 0
	}
	return n * period
}

// next decodes the next effect; false at the end. An error wraps ErrDamaged.
func (r *effectReader) next(e *effect) (ok bool, err error) {
	if len(r.b) == 0 {
		return false, nil
	}
	head := r.byte()
	*e = effect{op: head & headOp, anew: head&headAnew != 0}
	if head&headNone != 0 || e.anew && e.op != effectLog {
		return false, fmt.Errorf("%w: unknown flags of operation %d", ErrDamaged, e.op)
	}
	if head&headDB != 0 {
		if r.db = r.byte(); r.db >= Databases {
			return false, fmt.Errorf("%w: database %d", ErrDamaged, r.db)
		}
	}
	e.db = r.db
	if e.op != effectFlush {
		n := r.uint()
		if n < 1 || n > MaxKey || n > int64(len(r.b)) {
			return false, fmt.Errorf("%w: the length of a key", ErrDamaged)
		}
		e.key, r.b = r.b[:n], r.b[n:]
	}
	switch e.op {
	case effectDelete, effectFlush:
		if r.bad {
			return false, errEffect
		}
		return true, nil
	}
	e.v.Limit = r.limit(head&headLimit != 0)
	switch e.op {
	case effectPut + uint8(limit.KindBucket), effectPut + uint8(limit.KindLeak):
		e.v.W[0], e.v.W[1] = r.near(r.now), r.uint()
	case effectPut + uint8(limit.KindFixed):
		e.v.W[0], e.v.W[1] = r.window(e.v.Limit.C), r.uint()
	case effectPut + uint8(limit.KindSliding):
		e.v.W[0], e.v.W[1], e.v.W[2] = r.window(e.v.Limit.C), r.uint(), r.uint()
	case effectLog:
		return r.log(e)
	default:
		return false, fmt.Errorf("%w: unknown operation %d", ErrDamaged, e.op)
	}
	if r.bad {
		return false, errEffect
	}
	e.v.Kind = limit.Kind(e.op - effectPut)
	if err := e.v.Valid(); err != nil {
		return false, fmt.Errorf("%w: the value of a key: %w", ErrDamaged, err)
	}
	return true, nil
}

var errEffect = fmt.Errorf("%w: an effect is cut short, or a number is too large", ErrDamaged)

// log decodes the rest of a sliding log's effect, as far as it can be checked
// without the log.
func (r *effectReader) log(e *effect) (ok bool, err error) {
	drop, pop, count := r.uint(), r.uint(), r.uint()
	if r.bad || drop > limit.MaxLogEntries || pop > limit.MaxLogEntries {
		return false, errEffect
	}
	if err := limit.WindowLimitOf(e.v.Limit).Check(limit.KindLog); err != nil || e.v.Limit.B != 0 {
		return false, fmt.Errorf("%w: the limit of a sliding log", ErrDamaged)
	}
	e.drop, e.pop, e.count = int(drop), int(pop), int(count) // as many follow, or it is damaged
	begin := r.b
	for range count {
		at, cost := r.near(r.now), r.uint()
		if r.bad || at > limit.MaxTime || cost < 1 {
			return false, errEffect
		}
	}
	e.entries = begin[:len(begin)-len(r.b)]
	return true, nil
}

// Effect is one effect as VisitEffects shows it.
type Effect struct {
	// Change says what happens to which key. Of a sliding log the Value has its
	// kind and limit only: what happens to its entries is below.
	Change

	Anew      bool // a log that is stored is forgotten first
	Drop, Pop int  // how many of its oldest and of its newest entries go
	Added     int  // how many entries follow them
}

// VisitEffects decodes the effects that an Overlay at time now, unix ns, has
// encoded and gives them to f in order, until f returns an error, which it
// returns. It is for tools and tests: Apply needs none of it. f must keep neither
// the Effect nor its Key. Damaged bytes give an error that wraps ErrDamaged.
func VisitEffects(now int64, effects []byte, f func(*Effect) error) error {
	if now < 0 || now > limit.MaxTime {
		return errApplied(now)
	}
	r := effectReader{b: effects, now: now}
	var e effect
	for {
		ok, err := r.next(&e)
		if !ok {
			return err
		}
		shown := Effect{Anew: e.anew, Drop: e.drop, Pop: e.pop, Added: e.count}
		shown.Change = Change{Op: OpPut, DB: e.db, Key: e.key, Value: e.v}
		switch e.op {
		case effectFlush:
			shown.Op = OpFlushDB
		case effectDelete:
			shown.Op = OpDelete
		case effectLog:
			shown.Value.Kind = limit.KindLog
		}
		if err := f(&shown); err != nil {
			return err
		}
	}
}
