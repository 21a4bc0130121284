package engine

import "unsafe"

// MaxAhead is how many keys Ahead takes at most. More would not be fetched
// faster: a processor waits for about ten cache lines at a time.
const MaxAhead = 8

// ahead is what Ahead was told.
type ahead struct {
	keys   [MaxAhead][]byte
	hashes [MaxAhead]uint64
	of     [MaxAhead]*shard // whose lock each needs; all are held
	n      int              // keys announced
	next   int              // the first not yet asked for

	locked [MaxAhead]*shard
	held   int // locks, in locked; above 0 while n is

	sink uint64 // what was touched, so that it is not optimised away
}

// Ahead announces keys of the selected database that the next calls will be
// about, in this order, one call each; some may be left out. It returns how many
// of them it has taken, at least one and at most MaxAhead.
//
// A decision on a key that is in no processor's cache is mostly waiting for
// memory, three times, one after the other. Of keys that are known together the
// waits overlap: first their locks are taken, then the first lines of all are
// fetched, then the second ones, and when the decisions come all is there.
//
// The locks are held until the calls for all these keys, or End. They are taken
// in no order, and so without waiting but for the first: a key whose lock is
// taken by another ends the group.
func (tx *Tx) Ahead(keys [][]byte) int {
	if tx.b != backing(&tx.direct) {
		return len(keys) // other backings have no use for it
	}
	d := &tx.direct
	d.release()
	a := &d.ahead
	keys = keys[:min(len(keys), MaxAhead)]
	for i, key := range keys {
		hash := d.ks.hash(key)
		sh := d.ks.shardOf(hash)
		if !a.has(sh) {
			if i == 0 {
				sh.mu.Lock()
			} else if !sh.mu.TryLock() {
				break
			}
			a.locked[a.held] = sh
			a.held++
		}
		a.keys[i], a.hashes[i], a.of[i] = key, hash, sh
		a.n = i + 1
	}
	for i := range a.n {
		if t := a.of[i].tables[tx.db]; t != nil {
			a.sink += t.TouchLine(a.hashes[i])
		}
	}
	for i := range a.n {
		if t := a.of[i].tables[tx.db]; t != nil {
			a.sink += t.TouchRecord(a.hashes[i])
		}
	}
	return a.n
}

func (a *ahead) has(sh *shard) bool {
	for _, l := range a.locked[:a.held] {
		if l == sh {
			return true
		}
	}
	return false
}

// announced finds a key among those announced and sets d.sh, locked, and
// d.hash. Without it no lock of theirs is held any more.
func (d *direct) announced(key []byte) bool {
	a := &d.ahead
	if a.held == 0 {
		return false
	}
	for a.next < a.n {
		i := a.next
		a.next++
		// The same bytes in the same place: the caller's own slice.
		if k := a.keys[i]; len(k) == len(key) && unsafe.SliceData(k) == unsafe.SliceData(key) {
			d.hash, d.sh = a.hashes[i], a.of[i]
			return true
		}
	}
	d.drop()
	return false
}

// drop lets go of all locks.
func (d *direct) drop() {
	a := &d.ahead
	for _, sh := range a.locked[:a.held] {
		sh.mu.Unlock()
	}
	clear(a.keys[:a.n]) // they are the caller's memory
	a.n, a.next, a.held = 0, 0, 0
	d.sh = nil
}
