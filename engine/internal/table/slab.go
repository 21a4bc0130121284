package table

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/stint-dev/stint/engine/limit"
)

// Ref says where a record is: the number of its page (21 bits) and its offset
// there in units of 8 bytes (11 bits). A record never moves while it lives.
type Ref uint32

// NoRef is no record; no page has the number 0.
const NoRef Ref = 0

const (
	pageBytes  = 16 << 10 // of a page, at most
	slotUnit   = 8        // slots are multiples of this, bytes
	refBits    = 11       // of a Ref: the offset
	offsetMask = 1<<refBits - 1
	maxPages   = 1 << (32 - refBits)

	minPageShift = 10 // the smallest page is 1 KiB
	pageSizes    = 5  // 1, 2, 4, 8, 16 KiB

	// firstSlots is how many slots the first page of a class should have.
	firstSlots = 8

	largestSlot = headerBytes + 3*8 + MaxKey
)

// slotSizes are the sizes of slots, bytes, rising: steps of 8 up to 128, then
// steps of about an eighth, chosen so that slots fill a page.
var slotSizes = func() (sizes []int) {
	for n := 32; n <= 128; n += slotUnit {
		sizes = append(sizes, n)
	}
	for last := 128; last < largestSlot; {
		perPage := pageBytes / min(last+last/8, largestSlot)
		last = pageBytes / perPage &^ (slotUnit - 1)
		sizes = append(sizes, last)
	}
	return sizes
}()

// classOf is the class (index of slotSizes) for a record's size in units of
// slotUnit, rounded up.
var classOf = func() (class [largestSlot/slotUnit + 1]uint8) {
	c := 0
	for i := range class {
		for slotSizes[c] < i*slotUnit {
			c++
		}
		class[i] = uint8(c)
	}
	return class
}()

// maxClasses bounds len(slotSizes), so that per-class state can be an array.
const maxClasses = 48

// page holds slots of one size. It is the only thing with a pointer for some
// 400 records.
//
// A free slot has kind 0; its first two bytes are the next free slot of the
// page in the form of page.free. Its flags are still in use, see dirty.go.
type page struct {
	data []byte // nil: the number is not in use

	// least is a lower bound of the records' expiry, unix ns: lowered by
	// every write, made exact when the page is swept or counted.
	least int64

	next, prev uint32 // pages of the class that have room; 0 ends
	used       uint16 // slots that hold a record
	carved     uint16 // slots ever used; those after it were never written
	free       uint16 // offset/8 + 1 of a free slot below carved; 0 none
	class      uint8
}

func (p *page) size() int { return slotSizes[p.class] }

// hasRoom says whether a slot is free.
func (p *page) hasRoom() bool {
	return p.free != 0 || (int(p.carved)+1)*p.size() <= len(p.data)
}

// slab is all pages of a table.
type slab struct {
	pages  []page // number 0 is not used
	least  int64  // a lower bound of all pages' least
	acct   *account
	unused []uint32
	room   [maxClasses]uint32 // first of the pages with room
	count  [maxClasses]uint32 // pages
	spare  [pageSizes][]byte  // an emptied page of each size, so that one key that comes and goes makes no garbage
	hand   int                // the page that is swept next
}

func (s *slab) init(a *account) {
	s.acct = a
	s.least = math.MaxInt64
	s.pages = make([]page, 1, 4)
	a.must(cap(s.pages) * int(unsafe.Sizeof(page{})))
}

func classFor(size int) uint8 { return classOf[(size+slotUnit-1)/slotUnit] }

// slot is the bytes from a record's begin to its page's end.
func (s *slab) slot(ref Ref) []byte {
	return s.pages[ref>>refBits].data[(ref&offsetMask)*slotUnit:]
}

// alloc takes a slot of a class and reports false if the budget refuses. Of
// the slot only its flags mean anything.
func (s *slab) alloc(class uint8) (Ref, bool) {
	n := s.room[class]
	if n == 0 {
		if n = s.newPage(class); n == 0 {
			return NoRef, false
		}
	}
	p := &s.pages[n]
	var offset int
	if p.free != 0 {
		offset = int(p.free-1) * slotUnit
		p.free = binary.LittleEndian.Uint16(p.data[offset:])
	} else {
		offset = int(p.carved) * p.size()
		p.carved++
		p.data[offset+offFlags] = 0
	}
	p.used++
	if !p.hasRoom() {
		s.unlink(n)
	}
	return Ref(n<<refBits | uint32(offset/slotUnit)), true
}

// release frees a slot, and its page when that was the last record in it.
func (s *slab) release(ref Ref) {
	n := uint32(ref >> refBits)
	p := &s.pages[n]
	if !p.hasRoom() {
		s.link(n)
	}
	slot := p.data[(ref&offsetMask)*slotUnit:]
	slot[offKind] = uint8(limit.None)
	binary.LittleEndian.PutUint16(slot, p.free)
	p.free = uint16(ref&offsetMask) + 1
	if p.used--; p.used == 0 {
		s.releasePage(n)
	}
}

func (s *slab) link(n uint32) {
	p := &s.pages[n]
	head := s.room[p.class]
	p.next, p.prev = head, 0
	s.pages[head].prev = n // of page 0 nobody reads it
	s.room[p.class] = n
}

func (s *slab) unlink(n uint32) {
	p := &s.pages[n]
	if p.prev == 0 {
		s.room[p.class] = p.next
	} else {
		s.pages[p.prev].next = p.next
	}
	s.pages[p.next].prev = p.prev
}

// newPage makes a page with room, or returns 0 if the budget refuses. The
// first pages of a class are small: a table with few keys costs little.
func (s *slab) newPage(class uint8) uint32 {
	shift := 0
	for shift < pageSizes-1 && 1<<(minPageShift+shift) < firstSlots*slotSizes[class] {
		shift++
	}
	shift = min(shift+int(s.count[class]), pageSizes-1)
	data := s.spare[shift]
	if data == nil {
		size := 1 << (minPageShift + shift)
		if len(s.unused) == 0 && len(s.pages) == maxPages || !s.acct.take(size) {
			return 0
		}
		data = make([]byte, size)
	}
	s.spare[shift] = nil
	var n uint32
	if k := len(s.unused); k > 0 {
		n = s.unused[k-1]
		s.unused = s.unused[:k-1]
	} else {
		n = uint32(len(s.pages))
		was := cap(s.pages)
		s.pages = append(s.pages, page{})
		s.acct.must((cap(s.pages) - was) * int(unsafe.Sizeof(page{})))
	}
	s.pages[n] = page{data: data, least: math.MaxInt64, class: class}
	s.count[class]++
	s.link(n)
	return n
}

func (s *slab) releasePage(n uint32) {
	s.unlink(n)
	p := &s.pages[n]
	s.count[p.class]--
	i := 0
	for len(p.data) > 1<<(minPageShift+i) {
		i++
	}
	if s.spare[i] == nil {
		s.spare[i] = p.data
	} else {
		s.acct.give(len(p.data))
	}
	*p = page{least: math.MaxInt64}
	was := cap(s.unused)
	s.unused = append(s.unused, n)
	s.acct.must((cap(s.unused) - was) * 4)
}

// dropSpares gives emptied pages back, the small ones first: so many that they
// make up need bytes, all for 0. If all do not make it up none goes, and it
// reports false.
func (s *slab) dropSpares(need int64) bool {
	have := int64(0)
	for _, d := range s.spare {
		have += int64(len(d))
	}
	if have < need {
		return false
	}
	given := int64(0)
	for i, d := range s.spare {
		if d != nil && (need == 0 || given < need) {
			s.acct.give(len(d))
			s.spare[i] = nil
			given += int64(len(d))
		}
	}
	return true
}

// lower says that a record of this page expires at the given time.
func (s *slab) lower(ref Ref, expiry int64) {
	if p := &s.pages[ref>>refBits]; expiry < p.least {
		p.least = expiry
		s.least = min(s.least, expiry)
	}
}

// record is the slot of a ref if there is one with that number, whether free
// or not. It is for refs that may be out of date: a page may have been given
// back, and its number taken by a page with slots of another size.
func (s *slab) record(ref Ref) ([]byte, bool) {
	if int(ref>>refBits) >= len(s.pages) {
		return nil, false
	}
	p := &s.pages[ref>>refBits]
	offset := int(ref&offsetMask) * slotUnit
	if offset%p.size() != 0 || offset >= int(p.carved)*p.size() {
		return nil, false
	}
	return p.data[offset:], true
}
