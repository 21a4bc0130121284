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
// They belong to the slot and outlive the record, so that mostly a key that
// comes and goes is listed once; but they go with the page, when that was its
// last record. So a set flag means that the ref is in the list; the opposite
// need not hold, and a ref may be there twice: a drain skips what it finds
// unflagged. Pruning keeps such refs from piling up.
//
// A third flag says that the record was drained or loaded, so that something
// outside knows it; only then does a deletion need a tombstone.
const (
	flagListed    = 1 << 0 // for parity 0; parity 1 is the next bit
	flagPersisted = 1 << 2
	flagRound     = 1 << 3 // of a slot in the current list: see prune
	flagFrozen    = 1 << 4 // see freeze.go
)

// The current list is pruned when it is longer than twice the records and
// pruneSlack: pruneSteps refs for each slot that is freed. Only that makes a
// ref useless, one at a time, and at least half of such a list is; so it is
// shortened faster than it can grow, and no call takes long.
const (
	pruneSlack = 64
	pruneSteps = 4
)

// dirt is the tracking state of a table.
type dirt struct {
	track   bool
	acct    *account
	cur     uint8 // the current parity's flag
	old     uint8 // the pending parity's flag
	refs    refList
	round   uint8     // flagRound as it is behind the refs to prune: of all slots in the list, if there are none
	prune   int       // refs at the list's front that are to be pruned in this round
	dead    recordLog // tombstones: keys
	pending struct {
		refs  refList
		dead  recordLog
		saved recordLog // pre-images: keys and values
		page  uint32    // where the drain goes on before it takes the next ref; 0: nowhere
		slot  int       // … bytes
	}
	buf []byte // encodes a pre-image
}

func (d *dirt) init(a *account, track bool) {
	*d = dirt{acct: a, track: track, cur: flagListed, old: flagListed << 1}
}

// touch must be called before a record is changed in any way.
func (t *Table) touch(ref Ref, rec []byte) {
	d := &t.dirt
	if t.frozen.on && rec[offFlags]&flagFrozen != t.frozen.seen {
		t.keep(rec)
	}
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
		rec[offFlags] = flags&^flagRound | d.cur | d.round
		d.refs.push(d.acct, ref)
	}
}

// prune takes a few refs off the front of the current list, if that is too
// long, and puts back those that count at its end: a round of that, in many
// calls, visits the list once. flagRound of a slot tells on which side of the
// round's end its ref stands, so that of two equal ones the first is dropped.
// A free slot loses the flag with its ref.
func (t *Table) prune() {
	d := &t.dirt
	if d.prune == 0 {
		if d.refs.n <= 2*t.n+pruneSlack {
			return
		}
		d.prune = d.refs.n
		d.round ^= flagRound
	}
	for range min(d.prune, pruneSteps) {
		d.prune--
		ref := d.refs.pop(d.acct)
		rec, ok := t.slab.record(ref)
		switch {
		case !ok || rec[offFlags]&d.cur == 0 || rec[offFlags]&flagRound == d.round:
			// Its page was given back, or the ref stands in the list once more.
		case kindOf(rec) == limit.None:
			rec[offFlags] &^= d.cur
		default:
			rec[offFlags] ^= flagRound
			d.refs.push(d.acct, ref)
		}
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
	if t.frozen.on && rec[offFlags]&flagFrozen != t.frozen.seen {
		t.keep(rec)
	}
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
func (t *Table) fresh(flags uint8) uint8 { return flags&(t.dirt.cur|flagRound) | t.frozen.seen }

// Cut makes everything that changed since the last Cut pending: the drain that
// follows shows it as it is now. It takes the same short time however much
// there is. The last drain must have ended.
func (t *Table) Cut() {
	d := &t.dirt
	if d.pendingLen() > 0 {
		panic("table: Cut before the last one was drained")
	}
	d.pending.refs, d.refs, d.prune = d.refs, refList{}, 0
	d.pending.dead, d.dead = d.dead, recordLog{}
	d.pending.page = 0
	d.cur, d.old = d.old, d.cur
}

// Dirty is how many changes stand listed since the last Cut: about the number
// of changed and deleted keys, 0 only if there are none. Keys that came and
// went meanwhile may count, but hardly more of them than there are records.
func (t *Table) Dirty() int { return t.dirt.refs.n + t.dirt.dead.n }

// Pending is how many visits DrainSome still has to make.
func (t *Table) Pending() int { return t.dirt.pendingLen() }

func (d *dirt) pendingLen() int {
	return d.pending.refs.n + d.pending.dead.n + d.pending.saved.n
}

// DrainSome visits up to n pending changes and reports whether there are more:
// first the keys that were deleted, then the records, as they were at the Cut.
// A record that was written since is shown to saved, with its value as
// limit.AppendValue wrote it then: to decode a sliding log of 30 MB only to
// encode it again would take long under the caller's lock. Any other is shown
// to put.
//
// A key may be shown to del and then to one of the others, which says that it
// came back; to those two it is shown at most once. Keys and values are valid
// only during the call, and the table must not be used from within it.
func (t *Table) DrainSome(n int, put func(key []byte, v *limit.Value), saved func(key, value []byte), del func(key []byte)) (more bool) {
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
			saved(p.saved.peek())
			p.saved.drop(d.acct)
		case p.refs.n > 0:
			rec := t.nextPending()
			if rec == nil {
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

// drainGap is how many slots that are not pending a drain passes over before it
// takes the next ref instead.
const drainGap = 8

// nextPending is the next pending slot, or nil if the ref it took off the list
// leads to none. It goes on from one slot to those after it in the page: when
// many records have changed, that reads memory in order, where the list, in
// order of time, would miss the cache for each. The refs of those are met later
// and lead to none; so when the list is empty nothing is pending.
func (t *Table) nextPending() []byte {
	d := &t.dirt
	p := &d.pending
	if p.page != 0 {
		// The page may have been given back and taken for another size since.
		page := &t.slab.pages[p.page]
		size := page.size()
		at := (p.slot + size - 1) / size * size
		for end := min(int(page.carved)*size, at+drainGap*size); at < end; at += size {
			if page.data[at+offFlags]&d.old != 0 {
				p.slot = at + size
				return page.data[at:]
			}
		}
		p.page = 0
	}
	ref := p.refs.pop(d.acct)
	rec, ok := t.slab.record(ref)
	if !ok || rec[offFlags]&d.old == 0 {
		return nil
	}
	p.page = uint32(ref >> refBits)
	p.slot = int(ref&offsetMask)*slotUnit + t.slab.pages[p.page].size()
	return rec
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
