package boltfile

import (
	"bytes"
	"fmt"
)

const (
	// maxDepth bounds the height of one tree. Two elements a page would fill
	// any disk long before.
	maxDepth = 32
	// maxKey is the longest name or key expected, in bytes.
	maxKey = 64
	// wholePage: pages up to this many bytes are read at once. Of longer ones,
	// which hold large values, only the elements and keys are.
	wholePage = 64 << 10
)

// Scan visits every key of every bucket, in the order of bucket names and then
// keys, and checks all that it passes. Buckets within buckets are not expected
// and count as damage, as do names and keys of more than 64 bytes. The bytes
// given to visit are valid during the call only. An error of visit ends the
// scan and is returned as it is.
func (f *File) Scan(visit func(bucket, key []byte, v Value) error) error {
	s := scan{f: f, used: make([]uint64, f.pages/64+1), visit: visit}
	if f.ListsFree() {
		// Its own pages first: a tree that reaches into them is damaged.
		if err := s.take(f.freelist, f.free.run); err != nil {
			return err
		}
	}
	if err := s.tree(f.root, 0, bounds{}); err != nil {
		return err
	}
	return s.freePages()
}

// scan is one pass over the file.
type scan struct {
	f      *File
	used   []uint64 // a bit a page
	visit  func(bucket, key []byte, v Value) error
	bucket []byte // name of the bucket within, nil: in the root
	bufs   [2 * maxDepth][]byte
	keys   [2 * maxDepth][2][maxKey]byte
}

// bounds of the keys below a branch element: low ≤ key < high; nil is none.
type bounds struct{ low, high []byte }

// page is a run of pages, or a page within a bucket's value.
type page struct {
	name   string // for errors
	off    int64  // where it begins in the file
	size   int64  // bytes
	branch bool
	count  int
	head   []byte // its first bytes: at least all elements
}

func (s *scan) tree(id uint64, depth int, b bounds) error {
	if depth >= len(s.bufs) {
		return fmt.Errorf("%w: page %d: the tree is too deep", ErrDamaged, id)
	}
	p, err := s.load(id, depth)
	if err != nil {
		return err
	}
	if !p.branch {
		if p.count == 0 && b.low != nil {
			// Only a bucket without keys has such a page, as its root.
			return fmt.Errorf("%w: %s: a leaf without elements below a branch", ErrDamaged, p.name)
		}
		return s.leaf(p, depth, b)
	}
	if p.count == 0 {
		return fmt.Errorf("%w: %s: a branch without elements", ErrDamaged, p.name)
	}
	// Two key buffers a depth: the key of an element and of the next, which
	// bound the child between them.
	key, child, err := s.branchElement(p, 0, s.keys[depth][0][:0])
	if err != nil {
		return err
	}
	if b.low != nil && bytes.Compare(key, b.low) < 0 {
		return fmt.Errorf("%w: %s: its first key is out of order", ErrDamaged, p.name)
	}
	for i := range p.count {
		within := bounds{key, b.high}
		next, nextChild := key, child
		if i+1 < p.count {
			if next, nextChild, err = s.branchElement(p, i+1, s.keys[depth][(i+1)%2][:0]); err != nil {
				return err
			}
			if bytes.Compare(key, next) >= 0 {
				return fmt.Errorf("%w: %s: keys out of order", ErrDamaged, p.name)
			}
			within.high = next
		}
		if b.high != nil && bytes.Compare(key, b.high) >= 0 {
			return fmt.Errorf("%w: %s: a key beyond its branch", ErrDamaged, p.name)
		}
		if err := s.tree(child, depth+1, within); err != nil {
			return err
		}
		key, child = next, nextChild
	}
	return nil
}

// load reads and checks a page, and marks its run as used.
func (s *scan) load(id uint64, depth int) (page, error) {
	f := s.f
	if id < 2 || id >= f.pages {
		return page{}, fmt.Errorf("%w: page %d of %d is referred to", ErrDamaged, id, f.pages)
	}
	off := int64(id) * f.pageSize
	var h [headerSize]byte
	if _, err := f.r.ReadAt(h[:], off); err != nil {
		return page{}, fmt.Errorf("read page %d: %w", id, err)
	}
	if got := native.Uint64(h[:]); got != id {
		return page{}, fmt.Errorf("%w: page %d calls itself %d", ErrDamaged, id, got)
	}
	run := uint64(native.Uint32(h[12:])) + 1
	if run > f.pages-id {
		return page{}, fmt.Errorf("%w: page %d runs past the end", ErrDamaged, id)
	}
	if err := s.take(id, run); err != nil {
		return page{}, err
	}
	return s.open(fmt.Sprintf("page %d", id), h, off, int64(run)*f.pageSize, depth)
}

// take marks a run of pages as used.
func (s *scan) take(id, run uint64) error {
	for i := id; i < id+run; i++ {
		if s.uses(i) {
			return fmt.Errorf("%w: page %d is referred to twice", ErrDamaged, i)
		}
		s.used[i/64] |= 1 << (i % 64)
	}
	return nil
}

func (s *scan) uses(id uint64) bool { return s.used[id/64]&(1<<(id%64)) != 0 }

// open reads the elements of a page whose header is h.
func (s *scan) open(name string, h [headerSize]byte, off, size int64, depth int) (page, error) {
	p := page{name: name, off: off, size: size, count: int(native.Uint16(h[10:]))}
	switch flags := native.Uint16(h[8:]); flags {
	case flagBranch:
		p.branch = true
	case flagLeaf:
	default:
		return page{}, fmt.Errorf("%w: %s is of type %#x where data is expected", ErrDamaged, name, flags)
	}
	want := int64(headerSize + p.count*elementSize)
	if want > size {
		return page{}, fmt.Errorf("%w: %s: %d elements do not fit", ErrDamaged, name, p.count)
	}
	if size <= wholePage {
		want = size
	}
	if int64(cap(s.bufs[depth])) < want {
		s.bufs[depth] = make([]byte, want)
	}
	p.head = s.bufs[depth][:want]
	if _, err := s.f.r.ReadAt(p.head, off); err != nil {
		return page{}, fmt.Errorf("read %s: %w", name, err)
	}
	return p, nil
}

func (s *scan) branchElement(p page, i int, dst []byte) (key []byte, child uint64, err error) {
	at := headerSize + i*elementSize
	e := p.head[at:]
	pos := int64(at) + int64(native.Uint32(e))
	if i == 0 && pos != p.content() {
		return nil, 0, fmt.Errorf("%w: %s: its number of elements is wrong", ErrDamaged, p.name)
	}
	key, err = s.key(p, pos, native.Uint32(e[4:]), 0, dst)
	return key, native.Uint64(e[8:]), err
}

// content is where the keys and values of a page begin: bbolt puts them right
// after the elements, one after the other. A wrong count, with which the last
// elements would be lost without a trace, is noticed by that.
func (p page) content() int64 { return int64(headerSize + p.count*elementSize) }

// key reads the key at pos of the page, after it checked that the key and a
// value of vsize bytes lie between the elements and the end of the page.
func (s *scan) key(p page, pos int64, ksize, vsize uint32, dst []byte) ([]byte, error) {
	if ksize == 0 || ksize > maxKey {
		return nil, fmt.Errorf("%w: %s: a key of %d bytes", ErrDamaged, p.name, ksize)
	}
	if pos < p.content() || pos+int64(ksize)+int64(vsize) > p.size {
		return nil, fmt.Errorf("%w: %s: an element lies outside", ErrDamaged, p.name)
	}
	dst = dst[:ksize]
	if pos+int64(ksize) <= int64(len(p.head)) {
		copy(dst, p.head[pos:])
	} else if _, err := s.f.r.ReadAt(dst, p.off+pos); err != nil {
		return nil, fmt.Errorf("read a key of %s: %w", p.name, err)
	}
	return dst, nil
}

func (s *scan) leaf(p page, depth int, b bounds) error {
	var last []byte
	next := p.content()
	for i := range p.count {
		at := headerSize + i*elementSize
		e := p.head[at:]
		flags, ksize, vsize := native.Uint32(e), native.Uint32(e[8:]), native.Uint32(e[12:])
		pos := int64(at) + int64(native.Uint32(e[4:]))
		if pos != next {
			return fmt.Errorf("%w: %s: element %d of %d is not where the one before ends", ErrDamaged, p.name, i, p.count)
		}
		next += int64(ksize) + int64(vsize)
		key, err := s.key(p, pos, ksize, vsize, s.keys[depth][i%2][:0])
		if err != nil {
			return err
		}
		if last != nil && bytes.Compare(last, key) >= 0 ||
			last == nil && b.low != nil && bytes.Compare(key, b.low) < 0 ||
			b.high != nil && bytes.Compare(key, b.high) >= 0 {
			return fmt.Errorf("%w: %s: keys out of order", ErrDamaged, p.name)
		}
		last = key
		v := Value{Offset: p.off + pos + int64(ksize), Size: int(vsize)}
		switch {
		case s.bucket != nil && flags == 0:
			err = s.visit(s.bucket, key, v)
		case s.bucket == nil && flags == 1:
			err = s.inside(p, key, v, depth)
		default:
			err = fmt.Errorf("%w: %s: an element of type %d is out of place", ErrDamaged, p.name, flags)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inside scans a bucket, whose root page's number is in the value, or 0 and
// the page follows.
func (s *scan) inside(p page, name []byte, v Value, depth int) error {
	if v.Size < bucketSize {
		return fmt.Errorf("%w: %s: a bucket of %d bytes", ErrDamaged, p.name, v.Size)
	}
	var b [bucketSize + headerSize]byte
	if _, err := s.f.r.ReadAt(b[:min(v.Size, len(b))], v.Offset); err != nil {
		return fmt.Errorf("read a bucket of %s: %w", p.name, err)
	}
	s.bucket = name
	defer func() { s.bucket = nil }()
	if root := native.Uint64(b[:]); root != 0 {
		return s.tree(root, depth+1, bounds{})
	}
	if v.Size < len(b) {
		return fmt.Errorf("%w: %s: a bucket of %d bytes", ErrDamaged, p.name, v.Size)
	}
	h := [headerSize]byte(b[bucketSize:])
	in, err := s.open("a bucket within "+p.name, h, v.Offset+bucketSize, int64(v.Size-bucketSize), depth+1)
	if err != nil {
		return err
	}
	if in.branch {
		return fmt.Errorf("%w: %s: a branch within a bucket's value", ErrDamaged, p.name)
	}
	return s.leaf(in, depth+1, bounds{})
}
