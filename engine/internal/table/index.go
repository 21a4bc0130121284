package table

import (
	"math/bits"
	"sync"
	"unsafe"
)

// The index finds a record by its hash: extendible hashing. A directory maps
// the top bits of a 32-bit hash to a segment; a segment is a small table of
// lines. An entry is a word of 32 hash bits and the 32-bit ref, so that moving
// entries never touches a record.
//
// A line is a cache line of 8 entries, filled from its front. An entry lies in
// its home line or, if that was full, in the first after it that was not; so a
// search goes on only past full lines. All 8 hashes of a line are compared
// without a branch: a branch for each would be mispredicted about every second
// time, each time with a cache miss outstanding, and the processor could not
// begin the next miss meanwhile.
//
// A segment grows by one block at a time, and when it has all its blocks it
// splits in two, which between them take over the blocks. All blocks have one
// size and none is ever thrown away by growth. That matters: as hashes are
// even, all segments grow at about the same time, and outgrown buffers of
// another size would pile up until the garbage collector came round, and they
// count in the resident set like anything else.
const (
	lineWords   = 8
	blockLines  = 16
	blockWords  = blockLines * lineWords
	maxBlocks   = 8
	blockFull   = 104 // entries a block holds on average when its segment is full: 81 %
	blockSparse = 64  // fewer than this in one block less: a segment shrinks
	segmentFull = maxBlocks * blockFull

	// mergeBelow is how many entries two neighbours may have together to
	// become one: far fewer than make it split again.
	mergeBelow = 300

	// maxDepth keeps enough bits of the 32 for the line in a segment.
	maxDepth = 24
)

type (
	line  [lineWords]uint64
	block [blockLines]line
)

// Sizes in memory, as the allocator rounds them, bytes.
const (
	blockBytes   = int(unsafe.Sizeof(block{}))
	segmentBytes = (int(unsafe.Sizeof(segment{})) + 15) &^ 15
	pointerBytes = int(unsafe.Sizeof(uintptr(0)))
)

// segment is the part of the index for all hashes with the same top depth
// bits. At least one line is never full, which ends every search.
type segment struct {
	lines  uint32 // of all its blocks
	count  uint32 // entries
	blocks [maxBlocks]*block
	next   *segment // where a split cannot part the entries (equal hashes), the rest
	depth  uint8
}

type index struct {
	dir      []*segment // 2^(32−shift) of them
	shift    uint8
	acct     *account
	segments int // different ones in dir
	deep     int // segments of full depth: at 0 the directory can be halved

	// moved counts the entries that were placed anew, so that a test can bound
	// what one call does.
	moved int
}

// scratch holds a segment's entries while they are placed anew. It is too
// large for the stack of every connection's goroutine.
type scratch [maxBlocks * blockWords]uint64

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (x *index) init(a *account) {
	a.must(segmentBytes + blockBytes + pointerBytes)
	x.acct = a
	x.shift = 32
	x.dir = []*segment{{lines: blockLines, blocks: [maxBlocks]*block{new(block)}}}
	x.segments, x.deep = 1, 1
}

// close gives the memory back; the index must not be used afterwards.
func (x *index) close() {
	n := len(x.dir) * pointerBytes
	for i := 0; i < len(x.dir); {
		s := x.dir[i]
		i += len(x.dir) >> s.depth
		for ; s != nil; s = s.next {
			n += segmentBytes + s.numBlocks()*blockBytes
		}
	}
	x.acct.give(n)
	x.dir = nil
}

func entry(f uint32, ref Ref) uint64 { return uint64(f)<<32 | uint64(ref) }

// home is the line where the search for a hash begins. All hashes of a segment
// share their top bits, so a multiplication first carries the lower ones up.
func (s *segment) home(f uint32) uint32 {
	return uint32(uint64(f*0x9E3779B1) * uint64(s.lines) >> 32)
}

func (s *segment) line(l uint32) *line {
	return &s.blocks[l/blockLines%maxBlocks][l%blockLines]
}

// following is the line after l, in a ring.
func (s *segment) following(l uint32) uint32 {
	if l++; l == s.lines {
		return 0
	}
	return l
}

// distance is how many steps lead from line a forward to b.
func (s *segment) distance(a, b uint32) uint32 {
	if b < a {
		b += s.lines
	}
	return b - a
}

func (s *segment) numBlocks() int { return int(s.lines / blockLines) }

func (s *segment) full() bool { return s.count >= s.lines/blockLines*blockFull }

// full says whether a search goes on after this line.
func (l *line) full() bool { return l[lineWords-1] != 0 }

// same is 1 if an entry has the hash f, else 0.
func same(e uint64, f uint32) uint32 {
	return uint32((uint64(uint32(e>>32)^f) - 1) >> 63)
}

// match is a bit for each entry with the hash f. It may set bits of empty
// words too if f is 0; those entries are 0.
func (l *line) match(f uint32) uint32 {
	return same(l[0], f) | same(l[1], f)<<1 | same(l[2], f)<<2 | same(l[3], f)<<3 |
		same(l[4], f)<<4 | same(l[5], f)<<5 | same(l[6], f)<<6 | same(l[7], f)<<7
}

// push adds an entry at the end of a line that is not full.
func (l *line) push(e uint64) {
	for i := range l {
		if l[i] == 0 {
			l[i] = e
			return
		}
	}
}

// removeAt takes an entry out and moves the line's last one there.
func (l *line) removeAt(i int) {
	last := lineWords - 1
	for l[last] == 0 {
		last--
	}
	l[i] = l[last]
	l[last] = 0
}

// add places an entry; there must be room.
func (s *segment) add(e uint64) {
	l := s.home(uint32(e >> 32))
	for s.line(l).full() {
		l = s.following(l)
	}
	s.line(l).push(e)
	s.count++
}

// find is where an entry is: its line, and its place there.
func (s *segment) find(e uint64) (l uint32, i int, ok bool) {
	for l = s.home(uint32(e >> 32)); ; l = s.following(l) {
		line := s.line(l)
		for i := range line {
			if line[i] == e {
				return l, i, true
			}
		}
		if !line.full() {
			return 0, 0, false
		}
	}
}

// removeAt takes an entry out. If its line was full, later lines may hold
// entries that were pushed on past it: one of them takes the place, and its
// own line is filled up likewise, so that no search ends before its entry.
func (s *segment) removeAt(gap uint32, i int) {
	s.count--
	wasFull := s.line(gap).full()
	s.line(gap).removeAt(i)
	for l := gap; wasFull; {
		l = s.following(l)
		line := s.line(l)
		wasFull = line.full()
		for i, e := range line {
			if e != 0 && s.distance(s.home(uint32(e>>32)), l) >= s.distance(gap, l) {
				s.line(gap).push(e)
				line.removeAt(i)
				gap = l
				break
			}
		}
	}
}

// gather takes all entries out into buf[:n].
func (s *segment) gather(buf *scratch) (n int) {
	for i := range s.numBlocks() {
		for j := range s.blocks[i] {
			for _, e := range s.blocks[i][j] {
				if e == 0 {
					break
				}
				buf[n] = e
				n++
			}
		}
		*s.blocks[i] = block{}
	}
	s.count = 0
	return n
}

func (s *segment) addAll(entries []uint64) {
	for _, e := range entries {
		s.add(e)
	}
}

// first is the segment of a hash; the others are its next ones.
func (x *index) first(f uint32) *segment { return x.dir[f>>x.shift] }

// reserve makes room for one more entry of this hash. It reports false, with
// everything still found, if the budget refuses.
func (x *index) reserve(f uint32) bool {
	for {
		s := x.first(f)
		for ; s != nil; s = s.next {
			if !s.full() {
				return true
			}
			if s.numBlocks() < maxBlocks {
				return x.grow(s)
			}
		}
		s = x.first(f)
		if s.next == nil && x.parts(s) {
			if !x.split(f) {
				return false
			}
			continue
		}
		return x.chain(s)
	}
}

// insert adds an entry after reserve.
func (x *index) insert(f uint32, ref Ref) {
	s := x.first(f)
	for s.full() {
		s = s.next
	}
	s.add(entry(f, ref))
}

// replace gives the entry of one record to another.
func (x *index) replace(f uint32, was, is Ref) {
	for s := x.first(f); s != nil; s = s.next {
		if l, i, ok := s.find(entry(f, was)); ok {
			s.line(l)[i] = entry(f, is)
			return
		}
	}
	panic("table: a record is not in the index")
}

// remove takes an entry out and shrinks what has become sparse.
func (x *index) remove(f uint32, ref Ref) {
	before := (*segment)(nil)
	for s := x.first(f); s != nil; before, s = s, s.next {
		l, i, ok := s.find(entry(f, ref))
		if !ok {
			continue
		}
		s.removeAt(l, i)
		switch n := s.numBlocks(); {
		case n > 1 && s.count < uint32(n-1)*blockSparse:
			x.shrink(s)
		case before != nil && s.count == 0:
			before.next = s.next
			x.acct.give(segmentBytes + n*blockBytes)
		}
		if x.first(f).count < mergeBelow/2 {
			x.merge(f)
		}
		return
	}
	panic("table: a record is not in the index")
}

// grow adds a block to a segment.
func (x *index) grow(s *segment) bool {
	if !x.acct.take(blockBytes) {
		return false
	}
	x.rehash(s, s.numBlocks()+1)
	return true
}

func (x *index) shrink(s *segment) {
	x.rehash(s, s.numBlocks()-1)
	x.acct.give(blockBytes)
}

// rehash gives a segment n blocks and places its entries anew.
func (x *index) rehash(s *segment, n int) {
	buf := scratches.Get().(*scratch)
	k := s.gather(buf)
	x.moved += k
	s.resize(n)
	s.addAll(buf[:k])
	scratches.Put(buf)
}

// resize changes the number of blocks of an empty segment.
func (s *segment) resize(n int) {
	for i := range s.blocks {
		switch {
		case i >= n:
			s.blocks[i] = nil
		case s.blocks[i] == nil:
			s.blocks[i] = new(block)
		}
	}
	s.lines = uint32(n) * blockLines
}

// parts says whether one more bit of the hash would part the entries, and the
// directory may grow as far as that takes. Hashes that are not even, as of a
// test, must not blow the directory up.
func (x *index) parts(s *segment) bool {
	if s.depth >= maxDepth || (uint8(32)-x.shift == s.depth && 2*len(x.dir) > 16*x.segments+64) {
		return false
	}
	ones := s.ones()
	return ones != 0 && ones != int(s.count)
}

// ones is how many entries have the hash bit that a split looks at.
func (s *segment) ones() (n int) {
	for i := range s.numBlocks() {
		for j := range s.blocks[i] {
			for _, e := range s.blocks[i][j] {
				n += int(e >> (63 - s.depth) & 1)
			}
		}
	}
	return n
}

// blocksFor is how many blocks hold n entries and one more.
func blocksFor(n int) int { return min(n/blockFull+1, maxBlocks) }

// split parts the full segment of a hash by one more bit.
func (x *index) split(f uint32) bool {
	s := x.first(f)
	bit := uint64(1) << (63 - s.depth)
	ones := s.ones()
	left, right := blocksFor(int(s.count)-ones), blocksFor(ones)
	need := segmentBytes + (left+right-maxBlocks)*blockBytes
	double := uint8(32)-x.shift == s.depth
	if double {
		need += len(x.dir) * pointerBytes
	}
	if !x.acct.take(need) {
		return false
	}
	if double {
		x.double()
	}

	buf := scratches.Get().(*scratch)
	defer scratches.Put(buf)
	n := s.gather(buf)
	x.moved += n
	r := &segment{depth: s.depth + 1}
	s.depth++
	copy(r.blocks[:right], s.blocks[min(left, maxBlocks):])
	s.resize(left)
	r.resize(right)
	for _, e := range buf[:n] {
		if e&bit != 0 {
			r.add(e)
		} else {
			s.add(e)
		}
	}

	// The directory's entries for s are one run; its second half is r's.
	lo, width := x.run(f, s.depth-1)
	for i := lo + width/2; i < lo+width; i++ {
		x.dir[i] = r
	}
	x.segments++
	if s.depth == 32-x.shift {
		x.deep += 2
	}
	return true
}

// run is the directory's entries for the hashes that share depth bits with f.
func (x *index) run(f uint32, depth uint8) (lo, width int) {
	width = len(x.dir) >> depth
	return int(f>>x.shift) &^ (width - 1), width
}

func (x *index) double() {
	dir := make([]*segment, 2*len(x.dir))
	for i, s := range x.dir {
		dir[2*i], dir[2*i+1] = s, s
	}
	x.dir = dir
	x.shift--
	x.deep = 0
}

// chain gives a segment that cannot be split a further one. Its search then
// takes longer, which is the best that equal hashes allow.
func (x *index) chain(s *segment) bool {
	if !x.acct.take(segmentBytes + blockBytes) {
		return false
	}
	n := &segment{next: s.next, depth: s.depth}
	n.resize(1)
	s.next = n
	return true
}

// merge joins the segment of a hash with its neighbour while both are sparse,
// and halves the directory when no segment needs its last bit.
func (x *index) merge(f uint32) {
	for {
		s := x.first(f)
		if s.depth == 0 {
			return
		}
		lo, width := x.run(f, s.depth)
		other := x.dir[lo^width]
		if other.depth != s.depth || other.next != nil || s.count+other.count > mergeBelow {
			return
		}
		buf := scratches.Get().(*scratch)
		have := s.numBlocks() + other.numBlocks()
		n := s.gather(buf)
		x.moved += n
		s.resize(min(have, maxBlocks))
		s.addAll(buf[:n])
		n = other.gather(buf)
		x.moved += n
		s.addAll(buf[:n])
		x.rehash(s, blocksFor(int(s.count)))
		scratches.Put(buf)
		x.acct.give(segmentBytes + (have-s.numBlocks())*blockBytes)

		if s.depth == 32-x.shift {
			x.deep -= 2
		}
		s.depth--
		lo, width = x.run(f, s.depth)
		for i := lo; i < lo+width; i++ {
			x.dir[i] = s
		}
		x.segments--
		for x.deep == 0 {
			x.halve()
		}
	}
}

func (x *index) halve() {
	n := len(x.dir) / 2
	dir := make([]*segment, n)
	x.shift++
	for i := range dir {
		dir[i] = x.dir[2*i]
		if dir[i].depth == 32-x.shift {
			x.deep++
		}
	}
	x.dir = dir
	x.acct.give(n * pointerBytes)
}

// lookup is the ref of the entry with this hash that match accepts, or NoRef.
func (x *index) lookup(f uint32, match func(Ref) bool) Ref {
	for s := x.first(f); s != nil; s = s.next {
		for l := s.home(f); ; l = s.following(l) {
			line := s.line(l)
			for m := line.match(f); m != 0; m &= m - 1 {
				if ref := Ref(line[bits.TrailingZeros32(m)%lineWords]); ref != NoRef && match(ref) {
					return ref
				}
			}
			if !line.full() {
				break
			}
		}
	}
	return NoRef
}
