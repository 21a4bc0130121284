package table

import (
	"math"

	"github.com/stint-dev/stint/engine/limit"
)

// A frozen view shows every record as it was when Freeze was called, while writes
// go on. Who first changes or frees a record that the walk has not come to saves
// a copy of it, as a drain does. Copies are of records, not of pages: a thousand
// random keys lie in a thousand pages.
//
// A flag of each slot says whether its record was seen: saved, shown, or made
// since. Which value of it means that changes with every Freeze, so that nothing
// has to be reset; between two views all records have the same.
type frozen struct {
	on     bool
	seen   uint8 // value of flagFrozen
	latest int64 // unix ns: what had expired by then is not shown
	saved  recordLog
	page   int // where the walk goes on
	slot   int // … bytes
	buf    []byte
}

// Freeze opens a view of the table as it is now; what has expired at latest (unix
// ns) is not in it. It takes the same short time however much there is. The walk
// with FrozenSome must come to its end before the next.
func (t *Table) Freeze(latest int64) {
	f := &t.frozen
	if f.on {
		panic("table: Freeze while a view is open")
	}
	*f = frozen{on: true, seen: f.seen ^ flagFrozen, latest: latest, page: 1}
	t.watched = true
}

// keep saves a record that is about to change or go, as it is now.
func (t *Table) keep(rec []byte) {
	f := &t.frozen
	rec[offFlags] = rec[offFlags]&^flagFrozen | f.seen
	var v limit.Value
	t.read(rec, &v)
	if v.Expiry() <= f.latest {
		return
	}
	f.buf = limit.AppendValue(f.buf[:0], &v)
	f.saved.push(&t.acct, keyOf(rec), f.buf)
	if cap(f.buf) > 64<<10 {
		f.buf = nil // a sliding log's
	}
}

// FrozenSome shows records of the open view, looking at up to n places, and
// reports whether there are more; at its end the view is closed. A record that
// has changed since is shown to saved, with its value as limit.AppendValue wrote
// it, any other to put. Each is shown once. Nil for both gives the view up: all that
// is left to do is to come to the end. Keys and values are valid only during the
// call, and the table must not be used within.
func (t *Table) FrozenSome(n int, put func(key []byte, v *limit.Value), saved func(key, value []byte)) (more bool) {
	f := &t.frozen
	if !f.on {
		return false
	}
	if put == nil {
		f.latest = math.MaxInt64 // nothing more is saved
	}
	for ; n > 0; n-- {
		if f.saved.n > 0 {
			if saved != nil {
				saved(f.saved.peek())
			}
			f.saved.drop(&t.acct)
			continue
		}
		rec := t.nextFrozen()
		switch {
		case rec == nil:
			t.thawed()
			return false
		case kindOf(rec) == limit.None || rec[offFlags]&flagFrozen == f.seen:
			continue
		}
		rec[offFlags] = rec[offFlags]&^flagFrozen | f.seen
		if put == nil {
			continue
		}
		t.read(rec, &t.value)
		if t.value.Expiry() > f.latest {
			put(keyOf(rec), &t.value)
		}
	}
	t.value = limit.Value{}
	return true
}

// nextFrozen is the next slot of the walk, whatever is in it, or nil at its end.
func (t *Table) nextFrozen() []byte {
	f := &t.frozen
	for ; f.page < len(t.slab.pages); f.page, f.slot = f.page+1, 0 {
		p := &t.slab.pages[f.page]
		if p.data == nil {
			continue
		}
		// The page may have been given back and taken for another size since:
		// then all that is in it was made since too.
		size := p.size()
		at := (f.slot + size - 1) / size * size
		if at < int(p.carved)*size {
			f.slot = at + size
			return p.data[at:]
		}
	}
	return nil
}

// thawed ends the view; every record was seen.
func (t *Table) thawed() {
	f := &t.frozen
	*f = frozen{seen: f.seen}
	t.watched = t.dirt.track
	t.value = limit.Value{}
}
