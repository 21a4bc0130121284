package engine

import (
	"github.com/stint-dev/stint/engine/internal/table"
	"github.com/stint-dev/stint/engine/limit"
)

// Reads of this file use the transaction's time but do not count as decisions:
// they do not advance the latest time seen.

// Kind tells what key holds, limit.None if nothing.
func (tx *Tx) Kind(key []byte) limit.Kind {
	tx.b.find(tx, key, false)
	return tx.v.Kind
}

// Expiry is the first instant, unix ns, from which on the key is as new if
// nothing else is taken. It returns false if it is now.
func (tx *Tx) Expiry(key []byte) (at int64, ok bool) {
	tx.b.find(tx, key, false)
	return tx.v.Expiry(), tx.v.Kind != limit.None
}

// Info is what Inspect tells of a key.
type Info struct {
	Kind      limit.Kind
	Limit     limit.Params // of the last decision that consumed
	Used      int64        // units, rounded up
	Remaining int64        // units, rounded down; Used and Remaining add up to the limit
	ResetMs   int64        // until the key is as new, rounded up
	Entries   int          // of a sliding log: those that count
}

// Inspect shows what key holds, under the limit it remembers, and false if it
// holds nothing.
func (tx *Tx) Inspect(key []byte) (Info, bool) {
	tx.b.find(tx, key, false)
	v := &tx.v
	if v.Kind == limit.None {
		return Info{}, false
	}
	r := v.Look(tx.now)
	i := Info{
		Kind: v.Kind, Limit: v.Limit,
		Used: r.Limit - r.Remaining, Remaining: r.Remaining, ResetMs: r.ResetMs,
	}
	if v.Kind == limit.KindLog {
		i.Entries = limit.WindowLimitOf(v.Limit).LiveLog(v.Log, tx.now)
	}
	return i, true
}

// Delete forgets key, which is as new afterwards, and reports whether it held
// anything.
func (tx *Tx) Delete(key []byte) bool {
	tx.b.find(tx, key, false)
	if tx.v.Kind == limit.None {
		return false
	}
	tx.b.remove(tx, key)
	return true
}

// FlushDB forgets every key of the selected database.
func (tx *Tx) FlushDB() { tx.flush(int(tx.db), int(tx.db)) }

// FlushAll forgets every key of every database.
func (tx *Tx) FlushAll() { tx.flush(0, Databases-1) }

// flush swaps the tables of the databases from first to last at one instant.
func (tx *Tx) flush(first, last int) {
	if o, held := tx.b.(*Overlay); held {
		o.flush(first, last)
		return
	}
	tx.End()
	tx.ks.lockAll()
	defer tx.ks.unlockAll()
	tx.ks.flush(first, last)
}

// Count is the number of keys of the selected database that are not full. Each
// shard is counted in turn: with others writing, the sum is not one instant's.
func (tx *Tx) Count() int64 {
	tx.End()
	n := int64(0)
	tx.each(func(t *table.Table) { n += int64(t.CountLive(tx.now)) })
	return n
}

// each visits the tables of the selected database, each under its lock.
func (tx *Tx) each(f func(*table.Table)) {
	for i := range tx.ks.shards {
		sh := &tx.ks.shards[i]
		sh.mu.Lock()
		if t := sh.tables[tx.db]; t != nil {
			f(t)
		}
		sh.mu.Unlock()
	}
}

// A cursor of Scan is the shard above these bits and the place in its table
// within them.
const cursorBits = 40

// scanStep bounds how many places of a table are looked at under one lock,
// scanPlaces how many a step of a walk looks at to find a few keys: a fraction
// of a millisecond.
const (
	scanStep   = 256
	scanPlaces = 16384
)

// Scan walks the selected database in steps: begin with cursor 0, go on with
// what it returns until that is 0. A step gives about count keys that are not
// full to f, or fewer if they lie far apart; f must not keep key and must not
// use tx. A key that is there throughout is given at least once; one that
// comes or goes meanwhile may be or not. A cursor that Scan did not return
// walks from somewhere or ends.
func (tx *Tx) Scan(cursor uint64, count int, f func(key []byte, kind limit.Kind)) (next uint64) {
	tx.End()
	left := max(count, 1)
	visit := func(key []byte, v *limit.Value) {
		if v.Expiry() > tx.now {
			f(key, v.Kind)
			left--
		}
	}
	// Places looked at, so that a walk past empty ones ends as well.
	places := max(scanPlaces, 4*left)
	i, at := cursor>>cursorBits, cursor&(1<<cursorBits-1)
	for ; i < uint64(len(tx.ks.shards)); i, at = i+1, 0 {
		for done := false; !done; {
			if left <= 0 || places <= 0 {
				return i<<cursorBits | at
			}
			steps := min(left, scanStep)
			places -= steps
			at, done = tx.scanShard(int(i), at, steps, visit)
		}
	}
	return 0
}

// scanShard looks at a few places of one shard's table.
func (tx *Tx) scanShard(i int, at uint64, steps int, visit func([]byte, *limit.Value)) (next uint64, done bool) {
	sh := &tx.ks.shards[i]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if t := sh.tables[tx.db]; t != nil {
		return t.Scan(at, steps, visit)
	}
	return 0, true
}
