package engine

import (
	"github.com/stint-dev/stint/engine/internal/table"
	"github.com/stint-dev/stint/engine/limit"
)

// drainStep is how many records are encoded under one hold of a shard's lock:
// some 20 µs, about what a client cannot tell from the network.
const drainStep = 128

// dumpStep is how many places a Dump looks at under one hold of a lock: few,
// because each may be a sliding log of 30 MB, which is encoded before the size
// of the chunk is looked at.
const dumpStep = 4

// part is one table of a Cut or Dump, with the lock that guards it.
type part struct {
	sh *shard
	t  *table.Table
	db uint8
}

// Cut is a drain of the keys that changed since the last one, as they were at
// one instant for all of them: a key that is written while the cut is being
// drained first saves its older value for it.
type Cut struct {
	ks      *Keyspace
	latest  int64
	flushed [Databases]bool
	parts   []part
	at      int // parts before this are drained
	begun   bool
	done    bool
	keys    int
}

// Cut begins a drain. It holds every shard's lock for some microseconds. The
// keyspace must have been made with Options.Track, and the cut before must
// have been drained to its end; otherwise Cut panics.
func (ks *Keyspace) Cut() *Cut {
	if !ks.track {
		panic("engine: Cut of a keyspace that does not track changes")
	}
	if !ks.cutting.CompareAndSwap(false, true) {
		panic("engine: Cut before the last one was drained")
	}
	c := &Cut{ks: ks, parts: make([]part, 0, len(ks.shards))}
	ks.lockAll()
	defer ks.unlockAll()
	c.latest = ks.Latest()
	c.flushed = ks.flushed
	ks.flushed = [Databases]bool{}
	for i := range ks.shards {
		sh := &ks.shards[i]
		for db, t := range sh.tables {
			if t != nil && t.Dirty() > 0 {
				t.Cut()
				c.parts = append(c.parts, part{sh, t, uint8(db)})
			}
		}
	}
	return c
}

// Latest is the latest time of any decision at the instant of the cut, unix ns.
func (c *Cut) Latest() int64 { return c.latest }

// Keys is how many changes were appended so far.
func (c *Cut) Keys() int { return c.keys }

// Append encodes changes onto dst until it is max bytes long (one large change
// may exceed that). It returns false when the cut is drained; then the next
// may begin.
func (c *Cut) Append(dst []byte, max int) (out []byte, more bool) {
	if !c.begun {
		// What a flush emptied comes first: everything else of this cut was
		// written after it.
		for db, f := range c.flushed {
			if f {
				dst = appendHead(dst, OpFlushDB, uint8(db), nil)
				c.keys++
			}
		}
		c.begun = true
	}
	for c.at < len(c.parts) {
		if len(dst) >= max {
			return dst, true
		}
		dst = c.step(dst, max)
	}
	if !c.done {
		c.done = true
		c.ks.cutting.Store(false)
	}
	return dst, false
}

// step drains a few records of the part at hand.
func (c *Cut) step(dst []byte, max int) []byte {
	p := &c.parts[c.at]
	put := func(key []byte, v *limit.Value) {
		dst = appendPut(dst, p.db, key, v)
		c.keys++
	}
	saved := func(key, value []byte) {
		dst = append(appendHead(dst, OpPut, p.db, key), value...)
		c.keys++
	}
	del := func(key []byte) {
		dst = appendHead(dst, OpDelete, p.db, key)
		c.keys++
	}
	p.sh.mu.Lock()
	defer p.sh.mu.Unlock()
	// One by one, because a sliding log can be 30 MB.
	for range drainStep {
		if !p.t.DrainSome(1, put, saved, del) {
			c.parts[c.at] = part{} // a flushed table is garbage now
			c.at++
			break
		}
		if len(dst) >= max {
			break
		}
	}
	return dst
}

// Dump is a walk of everything, to begin a file anew. It is not one instant's:
// each key is shown as it is when the walk comes to it. Together with all the
// cuts from one that began after Dump was called to one that began after the
// dump was done, it is: that last cut's instant.
type Dump struct {
	ks    *Keyspace
	shard int
	db    int
	at    uint64
	keys  int
}

// Dump begins a walk. Several may go on at once, beside decisions and cuts.
func (ks *Keyspace) Dump() *Dump { return &Dump{ks: ks} }

// Keys is how many keys were appended so far.
func (d *Dump) Keys() int { return d.keys }

// Append encodes keys onto dst until it is max bytes long (some large values
// may exceed that). It returns false when it has been everywhere.
func (d *Dump) Append(dst []byte, max int) (out []byte, more bool) {
	latest := d.ks.Latest()
	put := func(key []byte, v *limit.Value) {
		if v.Expiry() > latest {
			dst = appendPut(dst, uint8(d.db), key, v)
			d.keys++
		}
	}
	for d.shard < len(d.ks.shards) {
		if len(dst) >= max {
			return dst, true
		}
		done := true
		sh := &d.ks.shards[d.shard]
		sh.mu.Lock()
		if t := sh.tables[d.db]; t != nil {
			d.at, done = t.Dump(d.at, dumpStep, put)
		}
		sh.mu.Unlock()
		if done {
			d.at = 0
			if d.db++; d.db == Databases {
				d.db = 0
				d.shard++
			}
		}
	}
	return dst, false
}
