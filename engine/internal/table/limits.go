package table

import (
	"encoding/binary"
	"unsafe"

	"github.com/stint-dev/stint/engine/limit"
)

// limitChunk is how many limits are kept together. A table with no more than
// that searches them one after the other; with more, through an index.
const limitChunk = 16

// chunk holds interned limits. Each chunk has its own list of free places, so
// that no list leads into one that was given back.
type chunk struct {
	params [limitChunk]limit.Params
	users  [limitChunk]uint32 // records with this limit; 0: the place is free
	after  [limitChunk]uint8  // of a free place: the next one + 1; 0: none

	next, prev uint32 // chunks with both free and used places, + 1; 0 ends
	free       uint8  // a free place + 1; 0: none
	used       uint8  // places with users
}

const chunkBytes = int(unsafe.Sizeof(chunk{}))

// limits keeps each different limit of a table once, counted by its users, so
// that a record holds 4 bytes instead of 24: the number of the chunk times
// limitChunk, and the place there. Chunks are given back, and their numbers
// used again: callers with a limit of their own for every key take memory for
// as many as there are at once. What stays of a peak are 12 bytes for each
// chunk there was, until the last limit goes.
type limits struct {
	chunks []*chunk // nil: given back
	acct   *account
	hash   func([]byte) uint64
	gaps   []uint32 // the numbers of those
	index  *index   // of numbers + 1; nil while one chunk is enough
	room   uint32   // first of the chunks with both free and used places, + 1
	empty  uint32   // a chunk without users + 1, kept so that a limit that comes and goes makes no garbage; 0: none
	used   int      // numbers with users
	last   uint32   // interned last, mostly the next one is the same; its chunk is there while used > 0
	buf    [24]byte
}

func (l *limits) at(i uint32) *limit.Params {
	return &l.chunks[i/limitChunk].params[i%limitChunk]
}

func (l *limits) users(i uint32) *uint32 {
	return &l.chunks[i/limitChunk].users[i%limitChunk]
}

// intern is the number of a limit, with one user more. It reports false if
// the budget refuses.
func (l *limits) intern(p limit.Params) (uint32, bool) {
	if i, ok := l.find(p); ok {
		*l.users(i)++
		l.last = i
		return i, true
	}
	if l.room == 0 && l.empty == 0 && !l.grow() {
		return 0, false
	}
	f := uint32(0)
	if l.index != nil {
		if f = l.hashOf(p); !l.index.reserve(f) {
			return 0, false
		}
	}
	i := l.take()
	*l.at(i), *l.users(i) = p, 1
	l.last = i
	if l.index != nil {
		l.index.insert(f, Ref(i+1))
	}
	return i, true
}

func (l *limits) find(p limit.Params) (uint32, bool) {
	if l.used == 0 {
		return 0, false
	}
	if *l.at(l.last) == p && *l.users(l.last) > 0 {
		return l.last, true
	}
	if l.index != nil {
		ref := l.index.lookup(l.hashOf(p), func(r Ref) bool { return *l.at(uint32(r) - 1) == p })
		return uint32(ref) - 1, ref != NoRef
	}
	c := l.chunks[0]
	for i := range c.params {
		if c.params[i] == p && c.users[i] > 0 {
			return uint32(i), true
		}
	}
	return 0, false
}

// grow adds an empty chunk; the index is made with the second one.
func (l *limits) grow() bool {
	if !l.acct.take(chunkBytes) {
		return false
	}
	c := &chunk{free: 1}
	for i := range c.after[:limitChunk-1] {
		c.after[i] = uint8(i) + 2
	}
	if k := len(l.gaps); k > 0 {
		n := l.gaps[k-1]
		l.gaps = l.gaps[:k-1]
		l.chunks[n] = c
		l.empty = n + 1
		return true
	}
	was := cap(l.chunks)
	l.chunks = append(l.chunks, c)
	l.acct.must((cap(l.chunks) - was) * pointerBytes)
	l.empty = uint32(len(l.chunks))
	if l.empty == 2 {
		l.index = new(index)
		l.index.init(l.acct)
		for i := range l.chunks[0].params {
			// All places are used, else there was no need to grow. One block
			// holds them all, unless all hashes are equal, and then it does
			// too.
			l.index.insert(l.hashOf(l.chunks[0].params[i]), Ref(i+1))
		}
	}
	return true
}

// take is the number of a place that was free; there must be one.
func (l *limits) take() uint32 {
	if l.room == 0 {
		l.link(l.empty)
		l.empty = 0
	}
	n := l.room
	c := l.chunks[n-1]
	at := uint32(c.free) - 1
	c.used++
	l.used++
	if c.free = c.after[at]; c.free == 0 {
		l.unlink(n)
	}
	return (n-1)*limitChunk + at
}

// release takes one user off a limit.
func (l *limits) release(i uint32) {
	users := l.users(i)
	if *users--; *users > 0 {
		return
	}
	if l.index != nil {
		l.index.remove(l.hashOf(*l.at(i)), Ref(i+1))
	}
	n, at := i/limitChunk+1, i%limitChunk
	c := l.chunks[n-1]
	if c.free == 0 {
		l.link(n)
	}
	c.after[at], c.free = c.free, uint8(at)+1
	c.used--
	l.used--
	if c.used == 0 {
		l.unlink(n)
		l.vacate(n)
	}
}

// vacate keeps one chunk without users and gives back any other.
func (l *limits) vacate(n uint32) {
	switch {
	case l.used == 0 && l.index != nil:
		l.index.close()
		there := len(l.chunks) - len(l.gaps)
		l.acct.give(there*chunkBytes + cap(l.chunks)*pointerBytes + cap(l.gaps)*4)
		l.chunks, l.gaps, l.index, l.empty = nil, nil, nil, 0
	case l.empty == 0:
		l.empty = n
	default:
		l.chunks[n-1] = nil
		was := cap(l.gaps)
		l.gaps = append(l.gaps, n-1)
		l.acct.must((cap(l.gaps) - was) * 4)
		l.acct.give(chunkBytes)
		if l.last/limitChunk == n-1 {
			l.last = (l.empty - 1) * limitChunk
		}
	}
}

func (l *limits) link(n uint32) {
	c := l.chunks[n-1]
	c.next, c.prev = l.room, 0
	if l.room != 0 {
		l.chunks[l.room-1].prev = n
	}
	l.room = n
}

func (l *limits) unlink(n uint32) {
	c := l.chunks[n-1]
	if c.prev == 0 {
		l.room = c.next
	} else {
		l.chunks[c.prev-1].next = c.next
	}
	if c.next != 0 {
		l.chunks[c.next-1].prev = c.prev
	}
}

func (l *limits) hashOf(p limit.Params) uint32 {
	binary.LittleEndian.PutUint64(l.buf[0:], uint64(p.A))
	binary.LittleEndian.PutUint64(l.buf[8:], uint64(p.B))
	binary.LittleEndian.PutUint64(l.buf[16:], uint64(p.C))
	return uint32(l.hash(l.buf[:]))
}
