package table

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/stint-dev/stint/engine/limit"
)

// check looks at everything that must hold between two calls.
func (t *Table) check() error {
	indexed, err := t.index.check()
	if err != nil {
		return err
	}
	bytes := int(unsafe.Sizeof(*t)) + t.index.bytes()
	n, users, logs := 0, map[uint32]uint32{}, 0
	unused := map[uint32]bool{}
	for _, i := range t.slab.unused {
		unused[i] = true
	}
	var count [maxClasses]uint32
	flagged := map[uint8]int{}
	unlisted, all := map[uint8]map[Ref]bool{}, refs(&t.dirt.refs)
	unlisted[t.dirt.cur], unlisted[t.dirt.old] = set(all), set(refs(&t.dirt.pending.refs))
	if len(all) < t.dirt.prune {
		return fmt.Errorf("%d refs to prune of %d", t.dirt.prune, len(all))
	}
	ahead, behind := set(all[:t.dirt.prune]), set(all[t.dirt.prune:])
	for i := 1; i < len(t.slab.pages); i++ {
		p := &t.slab.pages[i]
		if (p.data == nil) != unused[uint32(i)] {
			return fmt.Errorf("page %d: in use and listed as unused disagree", i)
		}
		if p.data == nil {
			continue
		}
		bytes += len(p.data)
		count[p.class]++
		if t.slab.least > p.least {
			return fmt.Errorf("page %d: least %d below the table's %d", i, p.least, t.slab.least)
		}
		used := 0
		for at := 0; at < int(p.carved)*p.size(); at += p.size() {
			rec, ref := p.data[at:], Ref(i<<refBits|at/slotUnit)
			flagged[rec[offFlags]&3]++
			for flag, listed := range unlisted {
				if rec[offFlags]&flag != 0 && !listed[ref] {
					return fmt.Errorf("%x is flagged %d and not listed", ref, flag)
				}
			}
			if d := &t.dirt; rec[offFlags]&d.cur != 0 {
				if done := rec[offFlags]&flagRound == d.round; done && !behind[ref] || !done && (behind[ref] || !ahead[ref]) {
					return fmt.Errorf("%x stands on the wrong side of the round's end", ref)
				}
			}
			if kindOf(rec) == limit.None {
				continue
			}
			used++
			if f := &t.frozen; rec[offFlags]&flagFrozen != f.seen && (!f.on || i < f.page || i == f.page && at < f.slot) {
				return fmt.Errorf("%x is not seen, and no walk will come to it", ref)
			}
			users[limitOf(rec)]++
			var v limit.Value
			t.read(rec, &v)
			if v.Kind == limit.KindLog {
				logs++
				bytes += v.Log.Bytes()
			}
			if v.Expiry() < p.least {
				return fmt.Errorf("page %d: a record expires at %d, before least %d", i, v.Expiry(), p.least)
			}
			f := uint32(t.hash(keyOf(rec)))
			if !indexed[entry(f, ref)] {
				return fmt.Errorf("record %x, key %q is not in the index", ref, keyOf(rec))
			}
		}
		n += used
		if used != int(p.used) || used == 0 {
			return fmt.Errorf("page %d: %d records, it says %d", i, used, p.used)
		}
	}
	if n != t.n || n != len(indexed) {
		return fmt.Errorf("%d records in pages, %d in the index, %d counted", n, len(indexed), t.n)
	}
	if count != t.slab.count {
		return fmt.Errorf("pages by class: %v, counted %v", count, t.slab.count)
	}
	for c := range t.slab.room {
		prev, linked := uint32(0), 0
		for i := t.slab.room[c]; i != 0; i = t.slab.pages[i].next {
			p := &t.slab.pages[i]
			if int(p.class) != c || !p.hasRoom() || (prev != 0 && p.prev != prev) {
				return fmt.Errorf("page %d is wrongly in the list of class %d", i, c)
			}
			prev = i
			linked++
		}
		for i := range t.slab.pages {
			if p := &t.slab.pages[i]; p.data != nil && int(p.class) == c && p.hasRoom() {
				linked--
			}
		}
		if linked != 0 {
			return fmt.Errorf("class %d: the list of pages with room is off by %d", c, linked)
		}
	}
	b, err := t.limits.check(users)
	if err != nil {
		return err
	}
	bytes += b
	if logs != len(t.logs)-len(t.freeLogs) {
		return fmt.Errorf("%d logs, %d rings in use", logs, len(t.logs)-len(t.freeLogs))
	}
	bytes += cap(t.logs) * pointerBytes
	bytes += (cap(t.freeLogs) + cap(t.slab.unused)) * 4
	bytes += cap(t.slab.pages) * int(unsafe.Sizeof(page{}))
	for _, s := range t.slab.spare {
		bytes += len(s)
	}
	listed := map[uint8]int{}
	for flag, l := range map[uint8]*refList{t.dirt.cur: &t.dirt.refs, t.dirt.old: &t.dirt.pending.refs} {
		for c := l.head; c != nil; c = c.next {
			bytes += refChunkBytes
			listed[flag] += int(c.end - c.from)
		}
		if listed[flag] != l.n {
			return fmt.Errorf("%d refs listed, counted %d", listed[flag], l.n)
		}
		if f := flagged[flag] + flagged[3]; f > l.n {
			return fmt.Errorf("%d slots flagged %d, but %d refs listed", f, flag, l.n)
		}
	}
	for _, l := range []*recordLog{&t.dirt.dead, &t.dirt.pending.dead, &t.dirt.pending.saved, &t.frozen.saved} {
		for c := l.head; c != nil; c = c.next {
			bytes += cap(c.data) + logChunkBytes - logChunkRoom
		}
	}
	if int64(bytes) != t.acct.bytes {
		return fmt.Errorf("%d bytes in use, %d reserved", bytes, t.acct.bytes)
	}
	return nil
}

func refs(l *refList) (all []Ref) {
	for c := l.head; c != nil; c = c.next {
		all = append(all, c.refs[c.from:c.end]...)
	}
	return all
}

func set(refs []Ref) map[Ref]bool {
	s := map[Ref]bool{}
	for _, r := range refs {
		s[r] = true
	}
	return s
}

// check compares with the users that the records make, and returns the bytes.
func (l *limits) check(users map[uint32]uint32) (bytes int, err error) {
	gaps := map[uint32]bool{}
	for _, n := range l.gaps {
		gaps[n] = true
	}
	if len(gaps) != len(l.gaps) {
		return 0, fmt.Errorf("a chunk's number is free twice: %v", l.gaps)
	}
	room := map[uint32]bool{}
	for n, prev := l.room, uint32(0); n != 0; prev, n = n, l.chunks[n-1].next {
		if room[n] || l.chunks[n-1].prev != prev {
			return 0, fmt.Errorf("chunk %d is wrongly in the list", n-1)
		}
		room[n] = true
	}
	for i, c := range l.chunks {
		if gaps[uint32(i)] != (c == nil) {
			return 0, fmt.Errorf("chunk %d: there and listed as given back disagree", i)
		}
		if c == nil {
			continue
		}
		bytes += chunkBytes
		free, used := map[int]bool{}, 0
		for j := int(c.free); j != 0; j = int(c.after[j-1]) {
			if free[j-1] {
				return 0, fmt.Errorf("chunk %d: its free places are a ring", i)
			}
			free[j-1] = true
		}
		for j, n := range c.users {
			k := uint32(i*limitChunk + j)
			if n != users[k] {
				return 0, fmt.Errorf("limit %d has %d users, it says %d", k, users[k], n)
			}
			if n > 0 {
				used++
			}
			if free[j] != (n == 0) {
				return 0, fmt.Errorf("limit %d: free and listed as free disagree", k)
			}
		}
		n := uint32(i) + 1
		if used != int(c.used) || (used == 0) != (l.empty == n) || room[n] != (used > 0 && used < limitChunk) {
			return 0, fmt.Errorf("chunk %d: %d used, it says %d; empty %d, in the list: %v", i, used, c.used, l.empty, room[n])
		}
	}
	if len(users) != l.used {
		return 0, fmt.Errorf("%d limits in use, counted %d", len(users), l.used)
	}
	if l.used > 0 && l.chunks[l.last/limitChunk] == nil {
		return 0, fmt.Errorf("the limit used last, %d, is not there", l.last)
	}
	if l.index != nil {
		in, err := l.index.check()
		if err != nil || len(in) != l.used {
			return 0, fmt.Errorf("index of limits: %d of %d, %w", len(in), l.used, err)
		}
		bytes += l.index.bytes()
	} else if len(l.chunks) > 1 {
		return 0, fmt.Errorf("%d chunks without an index", len(l.chunks))
	}
	return bytes + cap(l.chunks)*pointerBytes + cap(l.gaps)*4, nil
}

// check returns all entries.
func (x *index) check() (map[uint64]bool, error) {
	all := map[uint64]bool{}
	if len(x.dir) != 1<<(32-x.shift) {
		return nil, fmt.Errorf("directory of %d at shift %d", len(x.dir), x.shift)
	}
	segments, deep := 0, 0
	for i := 0; i < len(x.dir); {
		s := x.dir[i]
		width := len(x.dir) >> s.depth
		if width == 0 || i%width != 0 {
			return nil, fmt.Errorf("segment of depth %d at %d of %d", s.depth, i, len(x.dir))
		}
		for j := range width {
			if x.dir[i+j] != s {
				return nil, fmt.Errorf("directory entries %d and %d differ", i, i+j)
			}
		}
		segments++
		if width == 1 {
			deep++
		}
		for c := s; c != nil; c = c.next {
			count := uint32(0)
			for b := range c.blocks {
				if (c.blocks[b] != nil) != (b < c.numBlocks()) {
					return nil, fmt.Errorf("block %d of %d", b, c.numBlocks())
				}
			}
			for l := range c.lines {
				ended := false
				for i, e := range c.line(l) {
					if e == 0 {
						ended = true
						continue
					}
					count++
					at, place, ok := c.find(e)
					if ended || !ok || at != l || place != i || all[e] || x.first(uint32(e>>32)) != s {
						return nil, fmt.Errorf("entry %x is lost", e)
					}
					all[e] = true
				}
			}
			if count != c.count || count > c.lines/blockLines*blockFull {
				return nil, fmt.Errorf("segment of %d entries, %d counted, %d lines", count, c.count, c.lines)
			}
		}
		i += width
	}
	if segments != x.segments || deep != x.deep {
		return nil, fmt.Errorf("%d segments, %d deep; counted %d, %d", segments, deep, x.segments, x.deep)
	}
	return all, nil
}

func (x *index) bytes() (n int) {
	n = len(x.dir) * pointerBytes
	seen := map[*segment]bool{}
	for _, s := range x.dir {
		for ; s != nil && !seen[s]; s = s.next {
			seen[s] = true
			n += segmentBytes + s.numBlocks()*blockBytes
		}
	}
	return n
}

func mustCheck(tb testing.TB, t *Table) {
	tb.Helper()
	if err := t.check(); err != nil {
		tb.Fatal(err)
	}
}
