package persist

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// chunkBytes is how large a chunk's payload gets before it is closed. One
	// large value may exceed it.
	chunkBytes = 256 << 10
	// batchBytes is how much one transaction writes. A tick with more takes
	// several, and counts with the last of them, so that memory stays bounded
	// however many keys have changed. More would be fewer syncs of the disk, and
	// longer bursts of work beside the decisions.
	batchBytes = 2 << 20
	// compactFrom is how many bytes of deltas are worth a new base, however
	// small that is: replaying them takes about two seconds at most. With a
	// million keys that all change each second, it is a base every four.
	compactFrom = 128 << 20
)

// batch is the chunks of one transaction. The memory is used again.
type batch struct {
	bufs [][]byte
	n    int // in use
}

func (b *batch) chunks() [][]byte { return b.bufs[:b.n] }

// drop lets go of the memory, too.
func (b *batch) drop() { *b = batch{} }

func (b *batch) reset() {
	for i, buf := range b.bufs[:b.n] {
		if cap(buf) > 4*chunkBytes {
			b.bufs[i] = nil // of one large value: not to be kept for ever
		}
	}
	b.n = 0
}

// fill draws chunks from a cut or dump, the first of which belongs at p, until
// the batch is full or there are no more.
// After each chunk it rests as pace says, if that is not nil.
func (b *batch) fill(from dump, p chunkPlace, sequence uint64, o *Options, pace func(worked time.Duration)) (more bool) {
	var blank [chunkHeader]byte
	for size := 0; size < o.batch; b.n++ {
		if b.n == len(b.bufs) {
			// A little more than a chunk: it ends with the change that fills it.
			b.bufs = append(b.bufs, make([]byte, 0, chunkHeader+o.chunk+o.chunk/16))
		}
		begin := time.Now()
		buf := append(b.bufs[b.n][:0], blank[:]...)
		buf, more = from.Append(buf, chunkHeader+o.chunk)
		for more && len(buf) == chunkHeader {
			buf, more = from.Append(buf, chunkHeader+o.chunk)
		}
		b.bufs[b.n] = buf
		if len(buf) == chunkHeader {
			return false
		}
		sealChunk(buf, p, sequence)
		p.index++
		size += len(buf)
		if !more {
			b.n++
			return false
		}
		if pace != nil {
			pace(time.Since(begin))
		}
	}
	return true
}

// stats are figures of a drain that others may see.
type stats struct {
	took         time.Duration
	keys, bytes  int64
	compactions  int64
	base, deltas int64
	dumping      bool
}

// drain moves changes from a keyspace to the state file. It is used by one
// goroutine. Every step that fails can be repeated, and is by the next flush:
// what was drawn from the keyspace and not yet written is kept here.
type drain struct {
	st *State
	ks keyspace

	// pace rests after so much work that nobody waits for; nil: without a rest.
	pace func(worked time.Duration)

	cut  cut   // being drained; nil between flushes
	more bool  // the cut has more
	work batch // drawn from the cut, not written
	era  group // the era's chunks with those of the unfinished tick

	dump  dump  // being written; nil: none
	dmore bool  // the dump has more
	dwork batch // drawn from the dump, not written
	base  group // what of it is written

	litter garbage

	wrote uint64 // bytes of chunks, since the flush began
	idle  bool   // it had nothing to write
	drop  bool   // what the header no longer refers to is to be deleted
	stats stats

	gone  bool // the file was removed, and there is no new one yet
	whole bool // the file is new, and all that is in memory is to be written

	// taken is how many changes are not on disk, besides those that the
	// keyspace knows of. For others to read.
	taken atomic.Int64
}

func newDrain(st *State, ks keyspace) *drain {
	d := &drain{st: st, ks: ks, era: *st.hdr.era()}
	d.figures()
	return d
}

// dumping says whether dumpStep has work.
func (d *drain) dumping() bool { return d.dump != nil && (d.dmore || d.dwork.n > 0) }

func (d *drain) figures() {
	d.stats.base, d.stats.deltas = int64(d.st.hdr.base.bytes), int64(d.st.hdr.deltaBytes())
	d.stats.dumping = d.dump != nil
}

// flush writes the rest of a cut that could not be written before, and then
// one of now.
func (d *drain) flush() error {
	begin := d.st.o.now()
	d.wrote, d.idle = 0, true
	if err := d.present(); err != nil {
		return err
	}
	keys := 0
	if d.whole {
		keys = int(d.ks.Count())
		if err := d.everything(); err != nil {
			return fmt.Errorf("write all that is in memory to a new state file: %w", err)
		}
	}
	if d.cut != nil {
		c := d.cut
		if err := d.tick(); err != nil {
			return err
		}
		keys = c.Keys()
	}
	d.taken.Add(d.ks.Changed())
	c := d.ks.Cut()
	d.cut, d.more = c, true
	d.era = *d.st.hdr.era()
	if err := d.tick(); err != nil {
		return err
	}
	keys += c.Keys()
	if d.wrote > 0 {
		d.stats.keys, d.stats.bytes = int64(keys), int64(d.wrote)
		d.stats.took = d.st.o.now().Sub(begin)
	}
	if err := d.tidy(); err != nil {
		return err
	}
	// Saved is only what a restart finds.
	return d.missing(d.st.check())
}

// present sees that the state file and its folder's lock are where they belong.
// If the file was removed, a new one is made, and everything is due.
func (d *drain) present() error {
	err := d.missing(d.st.check())
	if err == nil {
		d.gone = false
		return d.st.relock()
	}
	if !errors.Is(err, errGone) {
		return err
	}
	if !d.gone {
		d.gone = true
		d.st.o.Logger.Error("the state file was removed while in use: all that is in memory is written to a new one", "file", d.st.path)
	}
	if err := d.st.anew(); err != nil {
		return fmt.Errorf("%w, and a new one cannot be made: %w", errGone, err)
	}
	d.gone, d.whole = false, true
	d.dump, d.drop = nil, false
	d.dwork.reset()
	d.figures()
	return nil
}

// settle gives memory back after much was written. It is called between
// flushes.
func (d *drain) settle() {
	if d.work.n+d.dwork.n > 0 || d.dumping() {
		return // more is to come
	}
	if d.litter.all >= leastGarbage {
		d.work.drop()
		d.dwork.drop()
	}
	if d.litter.giveBack() {
		d.st.forget()
	}
}

// missing counts everything as unsaved if an error says that the file is gone
// or another.
func (d *drain) missing(err error) error {
	if errors.Is(err, errGone) || errors.Is(err, ErrReplaced) {
		d.taken.Store(d.ks.Count())
	}
	return err
}

// everything writes all that is in memory as a base, to which the tick that
// comes next flips. If it fails, it goes on where it was.
func (d *drain) everything() error {
	if d.dump == nil {
		// A cut of which the old file has a part is drained to nowhere: what
		// it holds, or what came after, is in the base.
		for d.work.reset(); d.cut != nil && d.more; d.work.reset() {
			d.more = d.work.fill(d.cut, d.deltaPlace(), 0, &d.st.o, nil)
		}
		d.cut = nil
		d.begin()
	}
	for d.dumping() {
		if err := d.dumpStep(); err != nil {
			return err
		}
	}
	d.wrote += d.base.bytes
	return nil
}

// tick writes the cut: chunks that do not count yet, and with the last of them
// the header that makes them count.
func (d *drain) tick() error {
	hdr := d.st.hdr
	for {
		if d.work.n == 0 && d.more {
			d.more = d.work.fill(d.cut, d.deltaPlace(), hdr.sequence+1, &d.st.o, d.pace)
		}
		era := d.era
		for _, c := range d.work.chunks() {
			era.add(c)
		}
		next, last := hdr, !d.more
		if last {
			next = hdr.clone()
			*next.era() = era
			next.sequence++
			next.latest = d.cut.Latest()
			next.saved = d.st.o.now().UnixNano()
			d.flip(next)
		}
		idle := last && era.chunks == hdr.era().chunks && next.latest == hdr.latest && next.base == hdr.base
		if !idle {
			if err := d.st.write(next, change{place: d.deltaPlace(), chunks: d.work.chunks()}); err != nil {
				return err
			}
			d.idle = false
		}
		d.work.reset()
		d.litter.add(int64(era.bytes - d.era.bytes))
		d.wrote += era.bytes - d.era.bytes
		d.era = era
		if !last {
			continue
		}
		d.cut = nil
		d.taken.Store(0)
		if idle {
			return nil
		}
		switch {
		case next.base == hdr.base:
		case d.whole:
			d.whole, d.dump, d.drop = false, nil, true
			d.st.o.Logger.Info("the new state file holds all that is in memory", "file", d.st.path, "bytes", next.base.bytes)
		default:
			d.dump, d.drop = nil, true
			d.stats.compactions++
			d.st.o.Logger.Info("the state file was compacted", "file", d.st.path,
				"base", next.base.bytes, "deltas", next.deltaBytes(), "before", hdr.base.bytes+hdr.deltaBytes())
		}
		d.st.hdr = next
		d.era = *next.era()
		return nil
	}
}

func (d *drain) deltaPlace() chunkPlace {
	return chunkPlace{deltaChunk, d.era.id, d.era.chunks}
}

// tidy does what is due after a tick: delete what a compaction has replaced,
// or begin one.
func (d *drain) tidy() error {
	defer d.figures()
	if d.drop {
		if err := d.st.write(d.st.hdr, change{drop: true}); err != nil {
			return err
		}
		d.drop = false
	}
	if d.dump == nil && d.st.hdr.deltaBytes() > max(d.st.o.compact, d.st.hdr.base.bytes) {
		d.begin()
	}
	return nil
}

// begin begins a new base: a dump of all keys, which goes on while ticks do,
// so that it holds keys of different instants. The last cut is written, and
// the next begins a new era. Whatever changes from now on is therefore in that
// era or a later cut, and replaying it on the dump corrects what the dump saw
// too early: a change says what the value is, not how it changed.
func (d *drain) begin() {
	next := d.st.hdr.clone()
	next.eras = append(next.eras, group{id: next.era().id + 1})
	d.st.hdr = next
	d.era = *next.era()
	d.base = group{id: next.base.id + 1}
	d.dump, d.dmore = d.ks.Dump(), true
}

// dumpStep writes the next part of the dump, in one transaction. It does not
// count until a tick flips to it.
func (d *drain) dumpStep() error {
	defer d.figures()
	place := chunkPlace{baseChunk, d.base.id, d.base.chunks}
	if d.dwork.n == 0 {
		d.dmore = d.dwork.fill(d.dump, place, d.st.hdr.sequence, &d.st.o, d.pace)
	}
	base := d.base
	for _, c := range d.dwork.chunks() {
		base.add(c)
	}
	if base != d.base {
		if err := d.st.write(d.st.hdr, change{place: place, chunks: d.dwork.chunks()}); err != nil {
			return err
		}
	}
	d.dwork.reset()
	d.litter.add(int64(base.bytes - d.base.bytes))
	d.base = base
	return nil
}

// flip makes a finished dump the base of the header that ends a tick. It must
// be a tick whose cut came after the dump's end: the dump may hold values
// newer than any earlier cut, and only then does every one of them lie within
// the eras that are replayed on it.
func (d *drain) flip(next *header) {
	if d.dump == nil || d.dumping() {
		return
	}
	next.base = d.base
	next.eras = next.eras[len(next.eras)-1:] // begun with the dump
}
