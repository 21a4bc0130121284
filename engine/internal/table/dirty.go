package table

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"github.com/stint-dev/stint/engine/limit"
)

// What has changed since the last cut is kept as a list of refs and a list of
// the keys that were deleted (tombstones). Cut makes both the pending ones and
// begins new ones; the pending ones are then drained in steps, while writes go
// on. A drain shows every record as it was at the cut: who first writes to one
// that is still pending saves a copy (its pre-image) for the drain.
//
// Two flags of a slot say in which lists its ref stands: the current one or
// the pending one, by the parity of the cut, so that a cut touches no record.
// They belong to the slot: they outlive the record, so that a key that comes
// and goes is not listed each time. That the flag is set means the ref is in
// the list; the opposite need not hold, because pages are given back, and a
// drain skips what it finds unflagged.
//
// A third flag says that the record was drained or loaded, so that something
// outside knows it; only then does a deletion need a tombstone.
const (
	flagListed    = 1 << 0 // for parity 0; parity 1 is the next bit
	flagPersisted = 1 << 2
)

// dirt is the tracking state of a table.
type dirt struct {
	acct    *account
	track   bool
	cur     uint8 // the current parity's flag
	old     uint8 // the pending parity's flag
	refs    refList
	dead    recordLog // tombstones: keys
	pending struct {
		refs  refList
		dead  recordLog
		saved recordLog // pre-images: keys and values
	}
	buf []byte // encodes a pre-image
}

func (d *dirt) init(a *account, track bool) {
	*d = dirt{acct: a, track: track, cur: flagListed, old: flagListed << 1}
}

// touch must be called before a record is changed in any way.
func (t *Table) touch(ref Ref, rec []byte) {
	d := &t.dirt
	flags := rec[offFlags]
	switch {
	case !d.track:
		return
	case t.loading:
		rec[offFlags] = flags | flagPersisted
		return
	case flags&d.old != 0:
		t.save(rec)
		flags = rec[offFlags]
	}
	if flags&d.cur == 0 {
		rec[offFlags] = flags | d.cur
		d.refs.push(d.acct, ref)
	}
}

// save keeps a pending record for the drain, as it is now.
func (t *Table) save(rec []byte) {
	d := &t.dirt
	var v limit.Value
	t.read(rec, &v)
	d.buf = limit.AppendValue(d.buf[:0], &v)
	d.pending.saved.push(d.acct, keyOf(rec), d.buf)
	if cap(d.buf) > 64<<10 {
		d.buf = nil // a sliding log's, up to 30 MB
	}
	rec[offFlags] = rec[offFlags]&^d.old | flagPersisted
}

// bury must be called before a record is freed. With tombstone, whoever holds
// the drained records is to hear of it.
func (t *Table) bury(rec []byte, tombstone bool) {
	d := &t.dirt
	if !d.track {
		return
	}
	if rec[offFlags]&d.old != 0 {
		t.save(rec)
	}
	if tombstone && rec[offFlags]&flagPersisted != 0 {
		d.dead.push(d.acct, keyOf(rec), nil)
	}
}

// fresh are the flags of a slot that a new record takes.
func (t *Table) fresh(flags uint8) uint8 { return flags & t.dirt.cur }

// Cut makes everything that changed since the last Cut pending: the drain that
// follows shows it as it is now. It takes the same short time however much
// there is. The last drain must have ended.
func (t *Table) Cut() {
	d := &t.dirt
	if d.pendingLen() > 0 {
		panic("table: Cut before the last one was drained")
	}
	d.pending.refs, d.refs = d.refs, refList{}
	d.pending.dead, d.dead = d.dead, recordLog{}
	d.cur, d.old = d.old, d.cur
}

// Dirty is how many changes stand listed since the last Cut: about the number
// of changed and deleted keys, 0 only if there are none.
func (t *Table) Dirty() int { return t.dirt.refs.n + t.dirt.dead.n }

// Pending is how many visits DrainSome still has to make.
func (t *Table) Pending() int { return t.dirt.pendingLen() }

func (d *dirt) pendingLen() int {
	return d.pending.refs.n + d.pending.dead.n + d.pending.saved.n
}

// DrainSome visits up to n pending changes and reports whether there are more:
// first the keys that were deleted, then the records, as they were at the Cut.
// A key may be shown to del and then to put, which says that it came back; to
// put it is shown at most once. Keys and values are valid only during the
// call, and the table must not be used from within it.
func (t *Table) DrainSome(n int, put func(key []byte, v *limit.Value), del func(key []byte)) (more bool) {
	d := &t.dirt
	p := &d.pending
	v := &t.value
	for ; n > 0; n-- {
		switch {
		case p.dead.n > 0:
			key, _ := p.dead.peek()
			del(key)
			p.dead.drop(d.acct)
		case p.saved.n > 0:
			key, enc := p.saved.peek()
			var err error
			if *v, _, err = limit.DecodeValue(enc); err != nil {
				panic("table: a saved record cannot be read: " + err.Error())
			}
			put(key, v)
			p.saved.drop(d.acct)
		case p.refs.n > 0:
			rec, ok := t.slab.record(p.refs.pop(d.acct))
			if !ok || rec[offFlags]&d.old == 0 {
				continue
			}
			rec[offFlags] &^= d.old
			if kindOf(rec) == limit.None {
				continue
			}
			rec[offFlags] |= flagPersisted
			t.read(rec, v)
			put(keyOf(rec), v)
		default:
			*v = limit.Value{}
			return false
		}
	}
	*v = limit.Value{}
	return d.pendingLen() > 0
}

// refList is a first-in first-out list of refs in chunks, so that it grows
// without copying; the chunks are shared by all tables.
type refList struct {
	n          int
	head, tail *refChunk
}

type refChunk struct {
	next      *refChunk
	from, end uint32
	refs      [250]Ref
}

const refChunkBytes = 1024 // as the allocator has it

var refChunks = sync.Pool{New: func() any { return new(refChunk) }}

func (l *refList) push(a *account, r Ref) {
	c := l.tail
	if c == nil || int(c.end) == len(c.refs) {
		c = refChunks.Get().(*refChunk)
		c.next, c.from, c.end = nil, 0, 0
		a.must(refChunkBytes)
		if l.tail == nil {
			l.head = c
		} else {
			l.tail.next = c
		}
		l.tail = c
	}
	c.refs[c.end] = r
	c.end++
	l.n++
}

func (l *refList) pop(a *account) Ref {
	c := l.head
	r := c.refs[c.from]
	c.from++
	l.n--
	if c.from == c.end {
		if l.head = c.next; l.head == nil {
			l.tail = nil
		}
		refChunks.Put(c)
		a.give(refChunkBytes)
	}
	return r
}

// recordLog is a first-in first-out list of keys with a value each, encoded
// in chunks: length of the key, key, length of the value, value.
type recordLog struct {
	n          int
	head, tail *logChunk
}

type logChunk struct {
	next *logChunk
	from int
	data []byte
}

const (
	logChunkRoom  = 4 << 10
	logChunkBytes = logChunkRoom + int(unsafe.Sizeof(logChunk{}))
)

var logChunks = sync.Pool{New: func() any { return &logChunk{data: make([]byte, 0, logChunkRoom)} }}

func (l *recordLog) push(a *account, key, value []byte) {
	need := len(key) + len(value) + 2*binary.MaxVarintLen32
	c := l.tail
	if c == nil || len(c.data)+need > cap(c.data) {
		if need <= logChunkRoom {
			c = logChunks.Get().(*logChunk)
			c.next, c.from, c.data = nil, 0, c.data[:0]
		} else {
			c = &logChunk{data: make([]byte, 0, need)}
		}
		a.must(cap(c.data) + logChunkBytes - logChunkRoom)
		if l.tail == nil {
			l.head = c
		} else {
			l.tail.next = c
		}
		l.tail = c
	}
	c.data = binary.AppendUvarint(c.data, uint64(len(key)))
	c.data = append(c.data, key...)
	c.data = binary.AppendUvarint(c.data, uint64(len(value)))
	c.data = append(c.data, value...)
	l.n++
}

// peek is the oldest entry, until drop.
func (l *recordLog) peek() (key, value []byte) {
	key, at := l.head.field(l.head.from)
	value, _ = l.head.field(at)
	return key, value
}

// drop removes the oldest entry.
func (l *recordLog) drop(a *account) {
	c := l.head
	_, c.from = c.field(c.from)
	_, c.from = c.field(c.from)
	l.n--
	if c.from == len(c.data) {
		if l.head = c.next; l.head == nil {
			l.tail = nil
		}
		a.give(cap(c.data) + logChunkBytes - logChunkRoom)
		if cap(c.data) == logChunkRoom {
			logChunks.Put(c)
		}
	}
}

// field is the bytes that stand at an offset, and where they end.
func (c *logChunk) field(at int) (b []byte, end int) {
	n, w := binary.Uvarint(c.data[at:])
	end = at + w + int(n)
	return c.data[at+w : end], end
}
