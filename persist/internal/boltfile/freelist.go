package boltfile

import "fmt"

// freelist is where the numbers of the free pages are. bbolt believes them: a
// page in use that is on the list would be overwritten by the next transaction.
type freelist struct {
	run   uint64 // pages it takes
	off   int64  // of the first number in the file
	count uint64 // of numbers
}

// openFreelist reads and checks the head of the list: what bbolt must find to
// take it for one, and that its numbers lie within its pages.
func (f *File) openFreelist() (freelist, error) {
	id := f.freelist
	if id < 2 || id >= f.pages {
		return freelist{}, fmt.Errorf("%w: the list of free pages is page %d of %d", ErrDamaged, id, f.pages)
	}
	l := freelist{off: int64(id)*f.pageSize + headerSize}
	var h [headerSize + idSize]byte
	if _, err := f.r.ReadAt(h[:], l.off-headerSize); err != nil {
		return freelist{}, fmt.Errorf("read the list of free pages: %w", err)
	}
	l.run = uint64(native.Uint32(h[12:])) + 1
	switch flags := native.Uint16(h[8:]); {
	case native.Uint64(h[:]) != id:
		return freelist{}, fmt.Errorf("%w: page %d, the list of free pages, calls itself %d", ErrDamaged, id, native.Uint64(h[:]))
	case flags != flagFree:
		return freelist{}, fmt.Errorf("%w: page %d is of type %#x where the list of free pages is expected", ErrDamaged, id, flags)
	case l.run > f.pages-id:
		return freelist{}, fmt.Errorf("%w: the list of free pages runs past the end", ErrDamaged)
	}
	room := (l.run*uint64(f.pageSize) - headerSize) / idSize
	l.count = uint64(native.Uint16(h[10:]))
	if l.count == longList {
		l.count = native.Uint64(h[headerSize:])
		l.off += idSize
		room--
	}
	if l.count > room {
		return freelist{}, fmt.Errorf("%w: the list of free pages has %d numbers, and room for %d", ErrDamaged, l.count, room)
	}
	return l, nil
}

// freePages checks the numbers on the list, after all that is reachable was
// marked: each is of a page of the file that nothing refers to, and they
// ascend, so that none is there twice.
func (s *scan) freePages() error {
	last := uint64(1) // the meta pages are never free
	buf := make([]byte, min(s.f.free.count*idSize, wholePage))
	for at := uint64(0); at < s.f.free.count*idSize; at += uint64(len(buf)) {
		buf = buf[:min(s.f.free.count*idSize-at, wholePage)]
		if _, err := s.f.r.ReadAt(buf, s.f.free.off+int64(at)); err != nil {
			return fmt.Errorf("read the list of free pages: %w", err)
		}
		for b := buf; len(b) > 0; b = b[idSize:] {
			id := native.Uint64(b)
			switch {
			case id <= last:
				return fmt.Errorf("%w: the list of free pages is out of order: page %d after %d", ErrDamaged, id, last)
			case id >= s.f.pages:
				return fmt.Errorf("%w: page %d of %d is on the list of free pages", ErrDamaged, id, s.f.pages)
			case s.uses(id):
				return fmt.Errorf("%w: page %d is in use and on the list of free pages", ErrDamaged, id)
			}
			last = id
		}
	}
	return nil
}
