package table

import (
	"math"

	"github.com/stint-dev/stint/engine/limit"
)

// staleChecks bounds how many pages one SweepPage reads through. It does so in
// vain where records were written again since and expire later than their
// page's minimum says.
const staleChecks = 4

// SweepPage frees the expired records of one page and returns how many there
// were: those whose Expiry is at or before now (unix ns). To find the page it
// may read through a few others in vain, staleChecks pages in all; when none
// of them had any it returns 0, and a later call goes on after them. It also
// returns 0 when no page can have any, which mostly takes one comparison and
// at worst a look at every page's minimum.
//
// Nothing that a drain must know is lost: see forget.
func (t *Table) SweepPage(now int64) (freed int) {
	for range staleChecks {
		n := t.due(now)
		if n == 0 {
			return 0
		}
		if freed = t.sweep(n, now, NoRef); freed > 0 {
			return freed
		}
	}
	return 0
}

// DropSpares gives back the emptied pages that are kept for the next records.
func (t *Table) DropSpares() { t.slab.dropSpares(0) }

// relieve frees memory at the budget's bound, and reports whether it is worth
// trying again. The record keep stays.
//
// Emptied pages that are kept go only if they make up for what was lacking: a
// refusal that nothing can help must not take from the next records what they
// would have to allocate again.
func (t *Table) relieve(keep Ref) bool {
	short := t.acct.short
	t.acct.short = 0
	// Each page once: that of keep may stay due.
	for range t.slab.pages {
		n := t.due(t.now)
		if n == 0 {
			break
		}
		if t.sweep(n, t.now, keep) > 0 {
			return true
		}
	}
	return short > 0 && t.slab.dropSpares(short)
}

// due is the next page in turn with a record that may have expired, or 0.
func (t *Table) due(now int64) uint32 {
	s := &t.slab
	if now < s.least {
		return 0
	}
	least := int64(math.MaxInt64)
	for range len(s.pages) {
		if s.hand++; s.hand >= len(s.pages) {
			s.hand = 0
		}
		if p := &s.pages[s.hand]; p.data != nil {
			if p.least <= now {
				return uint32(s.hand)
			}
			least = min(least, p.least)
		}
	}
	s.least = least
	return 0
}

// sweep frees the expired records of a page, except keep.
func (t *Table) sweep(n uint32, now int64, keep Ref) (freed int) {
	p := &t.slab.pages[n]
	size, end := p.size(), int(p.carved)*p.size()
	least := int64(math.MaxInt64)
	for at := 0; at < end; at += size {
		rec := p.data[at:]
		if kindOf(rec) == limit.None {
			continue
		}
		t.read(rec, &t.value)
		ref := Ref(n<<refBits | uint32(at/slotUnit))
		if expiry := t.value.Expiry(); expiry > now || ref == keep {
			least = min(least, expiry)
			continue
		}
		t.forget(ref, rec)
		freed++
		if p.data == nil {
			break // that was the page's last record
		}
	}
	p.least = least
	t.value = limit.Value{}
	t.swept += int64(freed)
	return freed
}

// Swept is how many expired records were freed since the table was made.
func (t *Table) Swept() int64 { return t.swept }

// forget removes an expired record. Whoever holds the drained records drops
// the expired ones by itself, so it needs no tombstone, unless it was shown an
// older value than the last: that one may expire later.
func (t *Table) forget(ref Ref, rec []byte) {
	hash := t.hash(keyOf(rec))
	t.Delete(hash, ref, rec[offFlags]&t.dirt.cur != 0)
}

// CountLive is how many records expire after now (unix ns). It reads only the
// pages that may have one that does not, and makes their minima exact, so that
// the next count need not read them.
func (t *Table) CountLive(now int64) (live int) {
	for i := range t.slab.pages {
		p := &t.slab.pages[i]
		if p.least > now {
			live += int(p.used)
			continue
		}
		least := int64(math.MaxInt64)
		for at := 0; at < int(p.carved)*p.size(); at += p.size() {
			if rec := p.data[at:]; kindOf(rec) != limit.None {
				t.read(rec, &t.value)
				expiry := t.value.Expiry()
				least = min(least, expiry)
				if expiry > now {
					live++
				}
			}
		}
		p.least = least // never less than it was: the slab's stays a lower bound
	}
	t.value = limit.Value{}
	return live
}

// Scan shows records in the order of their place in memory, beginning at a
// cursor: 0, or what the call before returned. It ends after looking at the
// given number of slots, with done when it is past the last one. Every record
// that is there from the first call to the last is shown, whatever else
// happens in between; one that comes or goes, or changes its kind, may be
// missed or shown twice. Cursors are below 2^32. Keys and values are valid
// only during the call, and f must not use the table.
func (t *Table) Scan(cursor uint64, slots int, f func(key []byte, v *limit.Value)) (next uint64, done bool) {
	return t.walk(cursor, slots, 0, f)
}

// Dump is Scan for someone outside who keeps what it is shown: a record that
// is deleted later needs a tombstone, even if no drain has shown it yet.
func (t *Table) Dump(cursor uint64, slots int, f func(key []byte, v *limit.Value)) (next uint64, done bool) {
	return t.walk(cursor, slots, flagPersisted, f)
}

// walk is Scan, and sets flags on each record that it shows.
func (t *Table) walk(cursor uint64, slots int, flags uint8, f func(key []byte, v *limit.Value)) (next uint64, done bool) {
	n := max(int(cursor>>refBits), 1)
	offset := int(cursor&offsetMask) * slotUnit
	slots = max(slots, 1)
	for ; n < len(t.slab.pages); n, offset = n+1, 0 {
		p := &t.slab.pages[n]
		if slots <= 0 {
			t.value = limit.Value{}
			return uint64(n)<<refBits | uint64(offset/slotUnit), false
		}
		slots-- // a page costs something too, when it is empty
		if p.data == nil {
			continue
		}
		size := p.size()
		// The page may have been given back and taken for another size since.
		for at := (offset + size - 1) / size * size; at < int(p.carved)*size; at += size {
			if slots < 0 {
				t.value = limit.Value{}
				return uint64(n)<<refBits | uint64(at/slotUnit), false
			}
			slots--
			if rec := p.data[at:]; kindOf(rec) != limit.None {
				rec[offFlags] |= flags
				t.read(rec, &t.value)
				f(keyOf(rec), &t.value)
			}
		}
	}
	t.value = limit.Value{}
	return 0, true
}
