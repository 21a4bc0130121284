package engine

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"

	"github.com/stint-dev/stint/engine/limit"
)

// ErrFrozen: there is an open view already.
var ErrFrozen = errors.New("engine: the keyspace is frozen already")

// One hold of a lock looks at frozenStep places of a table, and at no more of them
// once frozenBytes were encoded: some 5 µs. What takes longer is one large value, a
// sliding log.
const (
	frozenStep  = 128
	frozenBytes = 16 << 10
)

// Frozen is a view of all keys as they were at one instant, while decisions go on:
// a key that is changed first saves its older value for the view. It belongs to
// one goroutine, which must Close it or walk to its end: there is no other view
// before, and what is saved for it is kept until then.
type Frozen struct {
	ks     *Keyspace
	latest int64
	parts  []part
	at     int // parts before this are done
	keys   int
	closed bool
}

// Freeze opens a view. It holds every shard's lock for some microseconds. There is
// one view at a time, whatever else goes on; otherwise the error is ErrFrozen. Of
// an Apply that is running the view may have a part: whoever wants all or nothing
// of it keeps the two apart.
func (ks *Keyspace) Freeze() (*Frozen, error) {
	if !ks.viewing.CompareAndSwap(false, true) {
		return nil, ErrFrozen
	}
	f := &Frozen{ks: ks, parts: make([]part, 0, len(ks.shards))}
	ks.lockAll()
	defer ks.unlockAll()
	f.latest = ks.Latest()
	for i := range ks.shards {
		sh := &ks.shards[i]
		for db, t := range sh.tables {
			if t != nil && t.Len() > 0 {
				t.Freeze(f.latest)
				f.parts = append(f.parts, part{sh, t, uint8(db)})
			}
		}
	}
	return f, nil
}

// Latest is the latest time of any decision at the instant of the view, unix ns.
// Keys that were full then are not in it.
func (f *Frozen) Latest() int64 { return f.latest }

// Keys is how many keys were shown so far.
func (f *Frozen) Keys() int { return f.keys }

// Append encodes keys of the view onto dst, as a Dump does, until it is max bytes
// long (one large value may exceed that). It returns false at the end, when the
// view is closed.
func (f *Frozen) Append(dst []byte, max int) (out []byte, more bool) {
	more = f.walk(max,
		func() int { return len(dst) },
		func(db uint8, key []byte, v *limit.Value) { dst = appendPut(dst, db, key, v) },
		func(db uint8, key, value []byte) { dst = append(appendHead(dst, OpPut, db, key), value...) },
	)
	return dst, more
}

// walk shows keys until they make up max bytes, of which there are size, and
// reports whether there are more.
func (f *Frozen) walk(max int, size func() int, put func(db uint8, key []byte, v *limit.Value), saved func(db uint8, key, value []byte)) (more bool) {
	for f.at < len(f.parts) {
		if size() >= max {
			return true
		}
		p := &f.parts[f.at]
		showPut := func(key []byte, v *limit.Value) { f.keys++; put(p.db, key, v) }
		showSaved := func(key, value []byte) { f.keys++; saved(p.db, key, value) }
		p.sh.mu.Lock()
		end := min(max, size()+frozenBytes)
		more := true
		for i := 0; i < frozenStep && more && size() < end; i++ {
			more = p.t.FrozenSome(1, showPut, showSaved)
		}
		p.sh.mu.Unlock()
		if !more {
			f.parts[f.at] = part{} // a flushed table is garbage now
			f.at++
		}
	}
	f.Close()
	return false
}

// Close ends the view, early or late; the Frozen is of no more use then. When it
// is early it goes through what is left, without showing it: a step takes a lock for
// some microseconds. It may be called again.
func (f *Frozen) Close() {
	if f.closed {
		return
	}
	f.closed = true
	// The flags of each table must be alike before the next view.
	for ; f.at < len(f.parts); f.at++ {
		p := &f.parts[f.at]
		for more := true; more; {
			p.sh.mu.Lock()
			more = p.t.FrozenSome(frozenStep, nil, nil)
			p.sh.mu.Unlock()
		}
		f.parts[f.at] = part{}
	}
	f.ks.viewing.Store(false)
}

// Hash walks what is left of the view and returns a hash of the keys and values
// in it and of Latest. It is the same on every machine for the same state,
// however that came about: it depends on no order, no table and no seed. It is to
// tell replicas apart that differ by a fault, not by an attack.
func (f *Frozen) Hash() uint64 {
	sum, hashed, buf := uint64(0), 0, []byte(nil)
	take := func(db uint8, key, value []byte) {
		sum += hashOf(db, key, value)
		hashed += len(key) + len(value)
	}
	f.walk(math.MaxInt,
		func() int { return hashed },
		func(db uint8, key []byte, v *limit.Value) {
			buf = limit.AppendValue(buf[:0], v)
			take(db, key, buf)
		},
		take,
	)
	return mix(sum ^ mix(uint64(f.latest)) ^ uint64(f.keys))
}

// hashOf hashes a key and its value; the sum of the hashes of all keys is that of
// the state.
func hashOf(db uint8, key, value []byte) uint64 {
	h := mix(uint64(db)<<32 | uint64(len(key)))
	return mix(hashBytes(hashBytes(h, key), value))
}

// hashBytes takes in bytes, eight at a time.
func hashBytes(h uint64, b []byte) uint64 {
	for ; len(b) >= 8; b = b[8:] {
		h = step(h, binary.LittleEndian.Uint64(b))
	}
	last := uint64(len(b)) << 56
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	return step(h, last)
}

// step multiplies to 128 bits and folds them: every bit of both reaches all.
func step(h, x uint64) uint64 {
	hi, lo := bits.Mul64(h^0x9e3779b97f4a7c15, x^0xd6e8feb86659fd93)
	return hi ^ lo ^ bits.RotateLeft64(h, 29) + x
}

// mix spreads the bits of a number over all of it (the finalizer of splitmix64,
// by Steele, Lea and Flood).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
