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
			if kindOf(rec) == limit.None {
				continue
			}
			used++
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
	for i, c := range t.limits.chunks {
		for j := range c {
			if c[j].users != users[uint32(i*limitChunk+j)] {
				return fmt.Errorf("limit %d has %d users, it says %d", i*limitChunk+j, users[uint32(i*limitChunk+j)], c[j].users)
			}
		}
		bytes += limitChunkBytes
	}
	if len(users) != t.limits.used {
		return fmt.Errorf("%d limits in use, counted %d", len(users), t.limits.used)
	}
	if t.limits.index != nil {
		in, err := t.limits.index.check()
		if err != nil || len(in) != t.limits.used {
			return fmt.Errorf("index of limits: %d of %d, %w", len(in), t.limits.used, err)
		}
		bytes += t.limits.index.bytes()
	}
	if logs != len(t.logs)-len(t.freeLogs) {
		return fmt.Errorf("%d logs, %d rings in use", logs, len(t.logs)-len(t.freeLogs))
	}
	bytes += (cap(t.limits.chunks) + cap(t.logs)) * pointerBytes
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
	for _, l := range []*recordLog{&t.dirt.dead, &t.dirt.pending.dead, &t.dirt.pending.saved} {
		for c := l.head; c != nil; c = c.next {
			bytes += cap(c.data) + logChunkBytes - logChunkRoom
		}
	}
	if int64(bytes) != t.acct.bytes {
		return fmt.Errorf("%d bytes in use, %d reserved", bytes, t.acct.bytes)
	}
	return nil
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
