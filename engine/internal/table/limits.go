package table

import (
	"encoding/binary"
	"unsafe"

	"github.com/stint-dev/stint/engine/limit"
)

// limitChunk is how many limits are kept together. A table with no more than
// that searches them one after the other; with more, through an index.
const limitChunk = 16

// interned is a limit that records share, under a number.
type interned struct {
	limit.Params
	users uint32 // records with this limit; 0: the number is free
	free  uint32 // the next free number + 1; 0: none
}

const limitChunkBytes = limitChunk * int(unsafe.Sizeof(interned{}))

// limits keeps each different limit of a table once, counted by its users, so
// that a record holds 4 bytes instead of 24. Numbers are used again: callers
// with a limit of their own for every key take memory for as many as there
// are at once.
type limits struct {
	acct   *account
	hash   func([]byte) uint64
	chunks []*[limitChunk]interned
	index  *index // of numbers + 1; nil while one chunk is enough
	free   uint32 // a free number + 1; 0: none
	used   int    // numbers with users
	last   uint32 // interned last; mostly the next one is the same
	buf    [24]byte
}

func (l *limits) at(i uint32) *interned { return &l.chunks[i/limitChunk][i%limitChunk] }

// intern is the number of a limit, with one user more. It reports false if
// the budget refuses.
func (l *limits) intern(p limit.Params) (uint32, bool) {
	if i, ok := l.find(p); ok {
		l.at(i).users++
		l.last = i
		return i, true
	}
	if l.free == 0 && !l.grow() {
		return 0, false
	}
	if l.index != nil {
		f := l.hashOf(p)
		if !l.index.reserve(f) {
			return 0, false
		}
		l.index.insert(f, Ref(l.free))
	}
	i := l.free - 1
	e := l.at(i)
	l.free = e.free
	*e = interned{Params: p, users: 1}
	l.used++
	l.last = i
	return i, true
}

func (l *limits) find(p limit.Params) (uint32, bool) {
	if l.used == 0 {
		return 0, false
	}
	if e := l.at(l.last); e.Params == p && e.users > 0 {
		return l.last, true
	}
	if l.index != nil {
		ref := l.index.lookup(l.hashOf(p), func(r Ref) bool { return l.at(uint32(r)-1).Params == p })
		return uint32(ref) - 1, ref != NoRef
	}
	for i := range l.chunks[0] {
		if e := &l.chunks[0][i]; e.Params == p && e.users > 0 {
			return uint32(i), true
		}
	}
	return 0, false
}

// grow adds a chunk of free numbers; the index is made with the second one.
func (l *limits) grow() bool {
	if !l.acct.take(limitChunkBytes) {
		return false
	}
	base := uint32(len(l.chunks)) * limitChunk
	c := new([limitChunk]interned)
	for i := range c {
		c[i].free = base + uint32(i) + 2
	}
	c[limitChunk-1].free = 0
	was := cap(l.chunks)
	l.chunks = append(l.chunks, c)
	l.acct.must((cap(l.chunks) - was) * pointerBytes)
	l.free = base + 1
	if len(l.chunks) == 2 {
		l.index = new(index)
		l.index.init(l.acct)
		for i := range l.chunks[0] {
			f := l.hashOf(l.chunks[0][i].Params)
			// One block holds them all, unless all hashes are equal, and
			// then it does too.
			l.index.insert(f, Ref(i+1))
		}
	}
	return true
}

// release takes one user off a limit.
func (l *limits) release(i uint32) {
	e := l.at(i)
	if e.users--; e.users > 0 {
		return
	}
	if l.index != nil {
		l.index.remove(l.hashOf(e.Params), Ref(i+1))
	}
	e.free = l.free
	l.free = i + 1
	if l.used--; l.used == 0 && l.index != nil {
		l.index.close()
		l.acct.give(len(l.chunks)*limitChunkBytes + cap(l.chunks)*pointerBytes)
		l.chunks, l.index, l.free = nil, nil, 0
	}
}

func (l *limits) hashOf(p limit.Params) uint32 {
	binary.LittleEndian.PutUint64(l.buf[0:], uint64(p.A))
	binary.LittleEndian.PutUint64(l.buf[8:], uint64(p.B))
	binary.LittleEndian.PutUint64(l.buf[16:], uint64(p.C))
	return uint32(l.hash(l.buf[:]))
}
