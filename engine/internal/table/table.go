// Package table is one hash table of limiter state: one database of one shard
// of a keyspace. It is built for many small records:
//
//   - Records lie in slabs: pages of up to 16 KiB of slots of one size, with no
//     pointers inside. Ten million records cost the garbage collector no more
//     than the 25,000 pages they lie in, and one does not move while it lives.
//   - The index is extendible hashing in blocks of 1 KiB. Nothing ever doubles:
//     the longest step of growth places some 800 words anew, and the load stays
//     at 65 to 81 % at every count.
//   - Limits are interned: a record holds a number of 4 bytes for its limit.
//   - Changes are tracked, on request, for drains that show one instant.
//
// A token bucket under a key of 14 bytes takes 40 bytes in a page and 10 to 12
// in the index. Sliding logs are the exception: a record holds the number of
// its ring, which is a Go object of 16 bytes an entry.
//
// A Table is not safe for concurrent use, not even for reading: the caller
// holds a lock. Only the Budget is shared. Nothing here reads a clock or
// judges whether a record is still of use, but for SweepPage and CountLive.
package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/stint-dev/stint/engine/limit"
)

// MaxKey is the longest key, bytes; the shortest has one.
const MaxKey = 4096

// Errors of Put, PutLog and Load.
var (
	// ErrFull: the budget refused the memory, after what had expired in this
	// table was freed. Nothing was changed.
	ErrFull = errors.New("the memory limit is reached")
	// ErrKey: the key is empty or too long.
	ErrKey = fmt.Errorf("a key has 1 to %d bytes", MaxKey)
)

// Options of a Table.
type Options struct {
	// Budget is where memory is taken from; nil means one without a bound.
	Budget *Budget
	// Track keeps what Cut and DrainSome need.
	Track bool
	// Hash is the function that makes the hashes given to the table's
	// methods. The table uses the low 32 bits: the top ones of them pick a
	// segment of the index, all together a position there. Whoever spreads
	// keys over tables must use bits above those, the top ones.
	Hash func([]byte) uint64
}

// Table is a hash table of records. Make one with New.
type Table struct {
	// What every decision reads comes first in each of these: a table is one
	// of many, and their cache lines are not to push out the records'.
	index   index
	limits  limits
	watched bool // touch has something to do: changes are tracked, or a view is open
	dirt    dirt
	slab    slab
	frozen  frozen

	acct    account
	hash    func([]byte) uint64
	n       int
	now     int64
	swept   int64
	loading bool

	logs     []*limit.Log // rings of sliding logs, by number
	freeLogs []uint32

	value limit.Value // handed to callbacks; on a stack it would be allocated
}

// New makes an empty table, which takes about 2 KiB.
func New(o Options) *Table {
	if o.Budget == nil {
		o.Budget = NewBudget(0)
	}
	t := &Table{acct: account{budget: o.Budget}, hash: o.Hash}
	t.acct.must(int(unsafe.Sizeof(*t)))
	t.slab.init(&t.acct)
	t.index.init(&t.acct)
	t.limits.acct, t.limits.hash = &t.acct, o.Hash
	t.dirt.init(&t.acct, o.Track)
	t.watched = o.Track
	return t
}

// Close gives all memory back to the budget. A drain that is pending may go
// on; its memory is not counted any more.
func (t *Table) Close() { t.acct.close() }

// Len is how many records there are, expired ones too.
func (t *Table) Len() int { return t.n }

// SetNow tells the table the latest time, unix ns: what has expired by then
// may be freed when a Put meets the budget's bound.
func (t *Table) SetNow(now int64) { t.now = now }

// Force has what follows take its memory whatever the budget says, until it is
// called with false: the decision to take it was made elsewhere.
func (t *Table) Force(on bool) { t.acct.force = on }

// Find is where the record under a key is, NoRef if there is none. The Ref is
// valid until the next write.
func (t *Table) Find(hash uint64, key []byte) Ref {
	f := uint32(hash)
	for s := t.index.first(f); s != nil; s = s.next {
		for l := s.home(f); ; l = s.following(l) {
			line := s.line(l)
			for m := line.match(f); m != 0; m &= m - 1 {
				ref := Ref(line[bits.TrailingZeros32(m)%lineWords])
				if ref == NoRef {
					continue
				}
				if rec := t.slab.slot(ref); string(keyOf(rec)) == string(key) {
					return ref
				}
			}
			if !line.full() {
				break
			}
		}
	}
	return NoRef
}

// TouchLine reads the line of the index where the search for a hash begins, and
// TouchRecord the first record of that line with the hash. What they return
// means nothing: a Find that follows finds in the processor's cache what
// several calls in a row, for several hashes, have fetched at the same time.
func (t *Table) TouchLine(hash uint64) uint64 {
	f := uint32(hash)
	s := t.index.first(f)
	return s.line(s.home(f))[0]
}

// TouchRecord: see TouchLine.
func (t *Table) TouchRecord(hash uint64) uint64 {
	f := uint32(hash)
	s := t.index.first(f)
	line := s.line(s.home(f))
	if m := line.match(f); m != 0 {
		if ref := Ref(line[bits.TrailingZeros32(m)%lineWords]); ref != NoRef {
			return uint64(t.slab.slot(ref)[offKind])
		}
	}
	return 0
}

// Read fills v with the value of what Find found, with the zero Value for
// NoRef. A sliding log in v is the table's own: it is read only, and valid
// until the next write.
func (t *Table) Read(ref Ref, v *limit.Value) {
	if ref == NoRef {
		*v = limit.Value{}
		return
	}
	t.read(t.slab.slot(ref), v)
}

// Get is Find and Read: it fills v with the value under a key and returns where
// it is, for the write that may follow.
func (t *Table) Get(hash uint64, key []byte, v *limit.Value) Ref {
	ref := t.Find(hash, key)
	t.Read(ref, v)
	return ref
}

// Bucket is the state of the token or leaky bucket that Find found, if that is
// of this kind and under this limit. Nearly all decisions are on one that is,
// and need no more of a Value than two words.
func (t *Table) Bucket(ref Ref, k limit.Kind, p *limit.Params) (b limit.Bucket, ok bool) {
	rec := t.slab.slot(ref)
	if kindOf(rec) != k || *t.limits.at(limitOf(rec)) != *p {
		return limit.Bucket{}, false
	}
	return limit.Bucket{FullAt: word(rec, 0), Rem: word(rec, 1)}, true
}

// PutBucket stores what became of a state that Bucket gave: a bucket of which
// more is used, so that it expires no earlier, and its page's minimum stays
// right without being read. It needs no memory.
func (t *Table) PutBucket(ref Ref, b limit.Bucket) {
	rec := t.slab.slot(ref)
	if t.watched {
		t.touch(ref, rec)
	}
	setWord(rec, 0, b.FullAt)
	setWord(rec, 1, b.Rem)
}

// Put stores a value under a key: ref is what Get returned for the key, with
// no write in between. A sliding log in v becomes the table's own; its changes
// go through PutLog. A record of another kind may move. ErrFull or ErrKey
// leave everything as it was; a record that stays one of its kind is always
// stored, unless it is a log.
func (t *Table) Put(hash uint64, key []byte, ref Ref, v *limit.Value) error {
	if ref == NoRef {
		return t.insert(hash, key, v, limit.LogChange{})
	}
	rec := t.slab.slot(ref)
	if kindOf(rec) != v.Kind || v.Kind == limit.KindLog {
		return t.change(hash, key, ref, v, limit.LogChange{})
	}
	t.touch(ref, rec)
	t.relimit(rec, v.Limit)
	write(rec, v)
	t.slab.lower(ref, v.Expiry())
	return nil
}

// PutLog applies a change to the sliding log under a key, made if there is
// none, and stores its limit. For ref and errors see Put.
func (t *Table) PutLog(hash uint64, key []byte, ref Ref, p limit.Params, c limit.LogChange) error {
	v := limit.Value{Kind: limit.KindLog, Limit: p}
	if ref == NoRef {
		return t.insert(hash, key, &v, c)
	}
	if kindOf(t.slab.slot(ref)) != limit.KindLog {
		return t.change(hash, key, ref, &v, c)
	}
	rec := t.slab.slot(ref)
	v.Log = t.logs[word(rec, 0)]
	grow := v.Log.GrowBytes(c)
	for !t.acct.take(grow) {
		if !t.relieve(ref) {
			return ErrFull
		}
	}
	before := v.Log.Bytes()
	t.touch(ref, rec)
	t.relimit(rec, p)
	v.Log.Apply(c)
	t.acct.give(before + grow - v.Log.Bytes())
	t.slab.lower(ref, v.Expiry())
	return nil
}

// relimit gives a record another limit. It must not fail: a record that is
// there already can be written at the budget's bound too.
func (t *Table) relimit(rec []byte, p limit.Params) {
	i := limitOf(rec)
	if *t.limits.at(i) == p {
		return
	}
	force := t.acct.force
	t.acct.force = true
	is, _ := t.limits.intern(p)
	t.acct.force = force
	t.limits.release(i)
	setLimit(rec, is)
}

// insert stores a value under a new key. Here and below, a sliding log without
// a ring is given one, to which the change is applied.
func (t *Table) insert(hash uint64, key []byte, v *limit.Value, c limit.LogChange) error {
	if len(key) < 1 || len(key) > MaxKey {
		return ErrKey
	}
	f := uint32(hash)
	for {
		if t.index.reserve(f) {
			if ref, ok := t.place(key, v, c); ok {
				t.index.insert(f, ref)
				rec := t.slab.slot(ref)
				rec[offFlags] = t.fresh(rec[offFlags])
				t.n++
				t.touch(ref, rec)
				return nil
			}
		}
		if !t.relieve(NoRef) {
			return ErrFull
		}
	}
}

// change stores a value in place of one of another kind or of another log. The
// decisions of the engine refuse a key that is of another kind, so through
// them it comes only to records that have expired and were not swept yet; and
// through Load to logs.
func (t *Table) change(hash uint64, key []byte, ref Ref, v *limit.Value, c limit.LogChange) error {
	if t.slab.pages[ref>>refBits].class < classFor(recordSize(v.Kind, len(key))) {
		return t.move(hash, key, ref, v, c)
	}
	// The slot is large enough.
	for !t.acct.take(ringBytes(v, c)) {
		if !t.relieve(ref) {
			return ErrFull
		}
	}
	log := t.addLog(v, c)
	rec := t.slab.slot(ref)
	t.touch(ref, rec)
	t.relimit(rec, v.Limit)
	t.dropLog(rec)
	t.fill(rec, limitOf(rec), log, key, v)
	t.slab.lower(ref, v.Expiry())
	return nil
}

// move stores a value of another kind in another slot.
func (t *Table) move(hash uint64, key []byte, ref Ref, v *limit.Value, c limit.LogChange) error {
	is, ok := t.place(key, v, c)
	for ; !ok; is, ok = t.place(key, v, c) {
		if !t.relieve(ref) {
			return ErrFull
		}
	}
	old := t.slab.slot(ref)
	t.bury(old, false)
	rec := t.slab.slot(is)
	rec[offFlags] = t.fresh(rec[offFlags]) | old[offFlags]&flagPersisted
	t.touch(is, rec)
	t.index.replace(uint32(hash), ref, is)
	t.free(ref)
	return nil
}

// place puts a value and its key into a slot of its own. It reports false,
// with nothing changed, if the budget refuses.
func (t *Table) place(key []byte, v *limit.Value, c limit.LogChange) (Ref, bool) {
	i, ok := t.limits.intern(v.Limit)
	if !ok {
		return NoRef, false
	}
	if ring := ringBytes(v, c); t.acct.take(ring) {
		if ref, ok := t.slab.alloc(classFor(recordSize(v.Kind, len(key)))); ok {
			t.fill(t.slab.slot(ref), i, t.addLog(v, c), key, v)
			t.slab.lower(ref, v.Expiry())
			return ref, true
		}
		t.acct.give(ring)
	}
	t.limits.release(i)
	return NoRef, false
}

// fill writes a record, all but its flags.
func (t *Table) fill(rec []byte, lim, log uint32, key []byte, v *limit.Value) {
	binary.LittleEndian.PutUint16(rec, uint16(len(key)))
	rec[offKind] = uint8(v.Kind)
	setLimit(rec, lim)
	if v.Kind == limit.KindLog {
		setWord(rec, 0, int64(log))
	} else {
		write(rec, v)
	}
	copy(rec[keyAt(v.Kind):], key)
}

// ringBytes is what addLog needs to be taken before.
func ringBytes(v *limit.Value, c limit.LogChange) int {
	switch {
	case v.Kind != limit.KindLog:
		return 0
	case v.Log != nil:
		return v.Log.Bytes()
	}
	var g limit.Log
	return g.Bytes() + g.GrowBytes(c)
}

// addLog gives the ring of a sliding log a number; of another kind it does
// nothing. A new ring is only made here, when its memory and slot are there:
// what is refused must not make garbage.
func (t *Table) addLog(v *limit.Value, c limit.LogChange) uint32 {
	if v.Kind != limit.KindLog {
		return 0
	}
	if v.Log == nil {
		v.Log = new(limit.Log)
		v.Log.Apply(c)
	}
	if k := len(t.freeLogs); k > 0 {
		i := t.freeLogs[k-1]
		t.freeLogs = t.freeLogs[:k-1]
		t.logs[i] = v.Log
		return i
	}
	was := cap(t.logs)
	t.logs = append(t.logs, v.Log)
	t.acct.must((cap(t.logs) - was) * pointerBytes)
	return uint32(len(t.logs) - 1)
}

// dropLog lets go of a record's ring if it is a sliding log.
func (t *Table) dropLog(rec []byte) {
	if kindOf(rec) != limit.KindLog {
		return
	}
	i := uint32(word(rec, 0))
	t.acct.give(t.logs[i].Bytes())
	t.logs[i] = nil
	was := cap(t.freeLogs)
	t.freeLogs = append(t.freeLogs, i)
	t.acct.must((cap(t.freeLogs) - was) * 4)
}

// Delete removes a record. With tombstone, a drain tells of it if an earlier
// one, or Load, made the key known outside. That is right for every deletion
// but those that come from outside themselves.
func (t *Table) Delete(hash uint64, ref Ref, tombstone bool) {
	t.bury(t.slab.slot(ref), tombstone)
	t.index.remove(uint32(hash), ref)
	t.n--
	t.free(ref)
}

// free gives back what a record holds. It must be out of the index.
func (t *Table) free(ref Ref) {
	rec := t.slab.slot(ref)
	t.dropLog(rec)
	t.limits.release(limitOf(rec))
	t.slab.release(ref)
	t.prune()
}

// Load stores a value that was drained before, in this process or an earlier
// one: as known outside and not changed since, whatever the budget says. A
// sliding log in v becomes the table's own. The only error is ErrKey.
func (t *Table) Load(hash uint64, key []byte, v *limit.Value) error {
	t.loading, t.acct.force = true, true
	ref := t.Get(hash, key, &t.value)
	t.value = limit.Value{}
	err := t.Put(hash, key, ref, v)
	t.loading, t.acct.force = false, false
	return err
}
