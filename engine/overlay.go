package engine

import (
	"github.com/stint-dev/stint/engine/limit"
)

// Overlay runs transactions whose writes do not count yet: they are held back, and
// what is read is what was written in the overlay or else what is committed. What
// it holds can be encoded as effects, which Apply makes count, here and on other
// keyspaces in the same state.
//
// An Overlay belongs to one goroutine. Nobody may apply effects to the keyspace,
// or change it otherwise than by Sweep, from Begin to the last use of what it
// holds; views and reads of committed state may go on.
type Overlay struct {
	ks *Keyspace
	tx Tx

	held  []held
	index []int32 // open addressing by hash: position in held + 1, 0 is empty
	keys  []byte

	// Of the key of the last find: its position in held, below 0 if it is not
	// there; its hash; whether it has a value, here or committed.
	at    int32
	hash  uint64
	found bool

	flushed [Databases]bool
	writes  uint64
	size    int   // bytes that Append writes at most
	grow    int64 // bytes that Apply will take, about

	limits map[limit.Params]uint64 // Append's, kept for their memory
	views  []*limit.Log            // likewise; the first shown of them are in held
	shown  int
}

// held is one key that was written.
type held struct {
	hash     uint64
	key, end int         // in Overlay.keys
	v        limit.Value // kind None: deleted. A log is a view of the committed one
	db       uint8
	anew     bool // of a log, else without meaning: what is committed does not count
	lost     bool // flushed since, and not written again: no effect
}

// What a key and its record, and its place in the index, take at most in memory,
// besides the bytes of the key; and what an effect takes besides those, of a log
// too: an overlay has one time, so what is new in a log is an entry of that time,
// and before it at most the newest of the old ones with a part taken off.
const (
	recordBytes = 64
	effectBytes = 64
)

// NewOverlay makes an empty overlay.
func (ks *Keyspace) NewOverlay() *Overlay {
	return &Overlay{ks: ks, index: make([]int32, 64), limits: make(map[limit.Params]uint64)}
}

// Begin empties the overlay and starts its transaction, at time now, unix ns, or
// the latest seen if that is later: all that it does, however long it takes, is at
// this time. It does not advance the latest seen; Apply does. Scan and Count of
// the transaction look at what is committed only.
func (o *Overlay) Begin(now int64) *Tx {
	o.empty()
	o.tx = Tx{b: o, ks: o.ks, now: min(max(now, o.ks.Latest(), 0), limit.MaxTime)}
	return &o.tx
}

// Now is the time of the transaction, unix ns.
func (o *Overlay) Now() int64 { return o.tx.now }

// Writes counts what was held back since Begin: it rises with every write.
func (o *Overlay) Writes() uint64 { return o.writes }

// Size is how many bytes Append writes at most.
func (o *Overlay) Size() int { return o.size }

// keptHeld is how many keys, and keptFew how many limits and sliding logs, the
// memory of an overlay is kept for.
const (
	keptHeld = 1 << 16
	keptFew  = 1 << 10
)

func (o *Overlay) empty() {
	if cap(o.held) > keptHeld || cap(o.keys) > keptHeld*64 {
		o.held, o.keys, o.index = nil, nil, make([]int32, 64)
	} else {
		clear(o.index)
	}
	if len(o.limits) > keptFew {
		o.limits = make(map[limit.Params]uint64)
	}
	if len(o.views) > keptFew {
		o.views, o.shown = nil, 0
		clear(o.held)
	}
	for ; o.shown > 0; o.shown-- {
		// Committed logs must not be kept in memory by views of them.
		(*limit.Log)(nil).View(o.views[o.shown-1])
	}
	o.held, o.keys = o.held[:0], o.keys[:0]
	o.flushed = [Databases]bool{}
	o.writes, o.size, o.grow, o.at = 0, 0, 0, -1
}

// Append encodes the effects of all that was held back, in the order in which the
// keys were first written. It writes nothing if there are none.
func (o *Overlay) Append(dst []byte) []byte {
	clear(o.limits)
	w := effectWriter{dst: dst, now: o.tx.now, limits: o.limits}
	for db, f := range o.flushed {
		if f {
			w.head(effectFlush, 0, uint8(db), nil)
		}
	}
	for i := range o.held {
		h := &o.held[i]
		switch key := o.keys[h.key:h.end]; {
		case h.lost:
		case h.v.Kind == limit.None:
			w.head(effectDelete, 0, h.db, key)
		default:
			w.value(h.db, key, h)
		}
	}
	return w.dst
}

// lookup finds a key among those held, -1 if it is not there.
func (o *Overlay) lookup(hash uint64, db uint8, key []byte) int32 {
	mask := uint64(len(o.index) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		at := o.index[i] - 1
		if at < 0 {
			return -1
		}
		h := &o.held[at]
		if h.hash == hash && h.db == db && string(o.keys[h.key:h.end]) == string(key) {
			return at
		}
	}
}

// hold is the held key of the last find, made if it is not there.
func (o *Overlay) hold(tx *Tx, key []byte) *held {
	o.writes++
	if o.at >= 0 {
		h := &o.held[o.at]
		h.lost = false
		return h
	}
	if 2*len(o.held) >= len(o.index) {
		o.rehash()
	}
	begin := len(o.keys)
	o.keys = append(o.keys, key...)
	o.at = int32(len(o.held))
	o.held = append(o.held, held{hash: o.hash, db: tx.db, key: begin, end: len(o.keys)})
	o.enter(o.at)
	o.size += effectBytes + len(key)
	return &o.held[o.at]
}

func (o *Overlay) enter(at int32) {
	mask := uint64(len(o.index) - 1)
	i := o.held[at].hash & mask
	for o.index[i] != 0 {
		i = (i + 1) & mask
	}
	o.index[i] = at + 1
}

func (o *Overlay) rehash() {
	o.index = make([]int32, 4*len(o.index))
	for i := range o.held {
		o.enter(int32(i))
	}
}

// The backing of Tx.

func (o *Overlay) find(tx *Tx, key []byte, _ bool) {
	o.hash = o.ks.hash(key)
	if o.at = o.lookup(o.hash, tx.db, key); o.at >= 0 {
		tx.v = o.held[o.at].v
	} else if o.flushed[tx.db] {
		tx.v = limit.Value{}
	} else {
		sh := o.ks.shardOf(o.hash)
		sh.mu.Lock()
		if t := sh.tables[tx.db]; t != nil {
			t.Get(o.hash, key, &tx.v)
		} else {
			tx.v = limit.Value{}
		}
		sh.mu.Unlock()
	}
	if tx.v.Kind != limit.None && tx.v.Expiry() <= tx.now {
		tx.v = limit.Value{}
	}
	o.found = tx.v.Kind != limit.None
}

func (o *Overlay) put(tx *Tx, key []byte) error {
	if err := o.afford(tx, key, 0); err != nil {
		return err
	}
	v := tx.v
	v.Log = nil
	o.hold(tx, key).v = v
	return nil
}

func (o *Overlay) putLog(tx *Tx, key []byte, p limit.Params, c limit.LogChange) error {
	if err := o.afford(tx, key, tx.v.Log.GrowBytes(c)); err != nil {
		return err
	}
	h := o.hold(tx, key)
	if !o.found || h.v.Kind != limit.KindLog {
		// The first change to it, or to what has run out meanwhile.
		h.anew = !o.found
		h.v = limit.Value{Kind: limit.KindLog, Log: o.view(tx.v.Log)}
	}
	h.v.Limit = p
	h.v.Log.Apply(c)
	return nil
}

// view makes a view of a committed log, nil for none.
func (o *Overlay) view(g *limit.Log) *limit.Log {
	if o.shown == len(o.views) {
		o.views = append(o.views, new(limit.Log))
	}
	v := o.views[o.shown]
	o.shown++
	g.View(v)
	return v
}

// afford takes the memory that a write will need when it is applied, before
// anything is changed.
func (o *Overlay) afford(tx *Tx, key []byte, ring int) error {
	if len(key) < 1 || len(key) > MaxKey {
		return ErrKey
	}
	need := int64(ring)
	// What has a record can always be written, also one that has run out.
	if !o.found && o.at < 0 && !o.stored(tx, key) {
		need += int64(recordBytes + len(key))
	}
	if need == 0 {
		return nil
	}
	if most := o.ks.budget.Max(); most > 0 && o.ks.budget.Used()+o.grow+need > most {
		return ErrOOM
	}
	o.grow += need
	return nil
}

// stored says whether the key of the last find has a record, whatever its state.
func (o *Overlay) stored(tx *Tx, key []byte) bool {
	sh := o.ks.shardOf(o.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := sh.tables[tx.db]
	return t != nil && t.Find(o.hash, key) != 0
}

func (o *Overlay) relieve(*Tx) bool { return o.ks.relieve(o.ks.Latest()) }

func (o *Overlay) remove(tx *Tx, key []byte) {
	o.hold(tx, key).v = limit.Value{}
}

func (o *Overlay) count(allowed bool) {
	sh := o.ks.shardOf(o.hash)
	sh.mu.Lock()
	if allowed {
		sh.allowed++
	} else {
		sh.refused++
	}
	sh.mu.Unlock()
}

func (o *Overlay) release() {}

// flush empties databases: what was written before counts no more.
func (o *Overlay) flush(first, last int) {
	o.writes++
	for db := first; db <= last; db++ {
		o.flushed[db] = true
		o.size += 2
	}
	for i := range o.held {
		if h := &o.held[i]; int(h.db) >= first && int(h.db) <= last {
			h.v, h.lost = limit.Value{}, true
		}
	}
	o.at = -1
}
