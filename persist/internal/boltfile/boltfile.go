// Package boltfile reads a bbolt database with plain reads and believes
// nothing it finds.
//
// bbolt maps its file into memory and trusts the pages: a damaged one makes it
// panic, read past the end of the file (a fault that kills the process), or
// follow a cycle for ever. A state file may be damaged, and then a server must
// say so in a sentence. So whatever reads a state file reads it through this
// package, and bbolt opens a file, to write, only after a Scan of it passed.
//
// What is checked: both meta pages with their checksums, the type, number,
// length, place and order of every page and element reached, that no page is reached
// twice, which also bounds the time, and that the list of free pages, if the
// file has one, names none that is in use. What is in the values is the
// business of the caller. A File may be used by one goroutine at a time.
package boltfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// Errors of Open and Scan.
var (
	// ErrNotBolt: neither meta page is one of bbolt.
	ErrNotBolt = errors.New("not a bbolt database")
	// ErrDamaged: a bbolt database whose structure is broken.
	ErrDamaged = errors.New("damaged bbolt database")
)

// The layout of a bbolt file, version 2. bbolt writes its own numbers in the
// machine's byte order.
const (
	magic   = 0xED0CDAED
	version = 2

	headerSize  = 16 // page: id 8, flags 2, count 2, overflow 4
	elementSize = 16 // branch: pos 4, key size 4, page 8; leaf: flags, pos, key size, value size
	metaSize    = 64 // without the page header
	bucketSize  = 16 // root page 8, sequence 8; an inline page may follow

	flagBranch = 0x01
	flagLeaf   = 0x02
	flagMeta   = 0x04
	flagFree   = 0x10

	noFreelist = ^uint64(0) // instead of a page number: free pages are not listed
	longList   = 0xFFFF     // instead of a count: the first number of the list is the count
	idSize     = 8          // a page number

	minPageSize     = 512
	maxPageSize     = 1 << 16
	defaultPageSize = 4096
)

var native = binary.NativeEndian

type meta struct {
	pageSize int64
	root     uint64 // page of the root bucket
	freelist uint64
	pages    uint64 // pages in use: numbers at and above were never written
	txid     uint64
}

// File is an open database. It refers to the state of the newest transaction.
type File struct {
	r io.ReaderAt
	meta
	free freelist
}

// Open reads the two meta pages of a file of the given size in bytes, and the
// first bytes of its list of free pages. That costs three small reads.
//
// bbolt itself is content with one valid meta page and goes on from the
// transaction before. Here both must be valid: a meta page fits a sector and
// is never half written, so a broken one is damage, and the transaction before
// would be an older state passed off as the newest.
func Open(r io.ReaderAt, size int64) (_ *File, err error) {
	a, errA := readMeta(r, size, 0, 0)
	second := int64(defaultPageSize)
	if errA == nil {
		second = a.pageSize
	}
	b, errB := readMeta(r, size, second, 1)
	switch {
	case errA != nil && errB != nil && errors.Is(errA, ErrNotBolt) && errors.Is(errB, ErrNotBolt):
		return nil, ErrNotBolt
	case errA != nil:
		return nil, fmt.Errorf("%w: the first meta page: %s", ErrDamaged, detail(errA))
	case errB != nil:
		return nil, fmt.Errorf("%w: the second meta page: %s", ErrDamaged, detail(errB))
	case a.pageSize != b.pageSize:
		return nil, fmt.Errorf("%w: the meta pages disagree on the page size", ErrDamaged)
	}
	m := a
	if b.txid > a.txid {
		m = b
	}
	switch {
	case m.pages < 3 || m.pages > uint64(size/m.pageSize):
		return nil, fmt.Errorf("%w: %d pages of %d bytes are in use, the file has %d bytes: it was cut short", ErrDamaged, m.pages, m.pageSize, size)
	case m.root < 2 || m.root >= m.pages:
		return nil, fmt.Errorf("%w: the root is page %d of %d", ErrDamaged, m.root, m.pages)
	}
	f := &File{r: r, meta: m}
	if m.freelist != noFreelist {
		if f.free, err = f.openFreelist(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func detail(err error) string {
	if errors.Is(err, ErrNotBolt) {
		return "not a meta page"
	}
	return err.Error()
}

func readMeta(r io.ReaderAt, size, off int64, slot uint64) (meta, error) {
	var buf [headerSize + metaSize]byte
	if off+int64(len(buf)) > size {
		return meta{}, ErrNotBolt
	}
	if _, err := r.ReadAt(buf[:], off); err != nil {
		return meta{}, err
	}
	b := buf[headerSize:]
	if native.Uint32(b) != magic {
		return meta{}, ErrNotBolt
	}
	if metaSum(b) != native.Uint64(b[metaSize-8:]) {
		return meta{}, errors.New("its checksum is wrong")
	}
	m := meta{
		pageSize: int64(native.Uint32(b[8:])),
		root:     native.Uint64(b[16:]),
		freelist: native.Uint64(b[32:]),
		pages:    native.Uint64(b[40:]),
		txid:     native.Uint64(b[48:]),
	}
	switch {
	case native.Uint32(b[4:]) != version:
		return meta{}, fmt.Errorf("it is of bbolt format %d, not %d", native.Uint32(b[4:]), version)
	case native.Uint64(buf[:]) != slot || native.Uint16(buf[8:]) != flagMeta:
		return meta{}, errors.New("its page header is wrong")
	case m.txid%2 != slot:
		return meta{}, errors.New("it belongs to the other page")
	case m.pageSize < minPageSize || m.pageSize > maxPageSize || m.pageSize&(m.pageSize-1) != 0:
		return meta{}, fmt.Errorf("pages of %d bytes", m.pageSize)
	}
	return m, nil
}

// FreeList is where the list of free pages begins in the file, in bytes; 0 if
// there is none.
func (f *File) FreeList() int64 {
	if !f.ListsFree() {
		return 0
	}
	return int64(f.freelist) * f.pageSize
}

// metaSum is the checksum of a meta page, which begins after the page header.
func metaSum(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b[:metaSize-8])
	return h.Sum64()
}

// ListsFree says whether the file has a list of its free pages. bbolt finds
// them by itself where there is none.
func (f *File) ListsFree() bool { return f.freelist != noFreelist }

// Transaction is the number of the newest transaction.
func (f *File) Transaction() uint64 { return f.txid }

// Used is how many bytes of the file, from its beginning, are in use. The rest
// was reserved and never written.
func (f *File) Used() int64 { return int64(f.pages) * f.pageSize }

// Value is where a value lies in the file.
type Value struct {
	Offset int64
	Size   int
}

// Read reads a value into dst, which grows if it must, and returns it.
func (f *File) Read(v Value, dst []byte) ([]byte, error) {
	if cap(dst) < v.Size {
		dst = make([]byte, v.Size)
	}
	dst = dst[:v.Size]
	if _, err := f.r.ReadAt(dst, v.Offset); err != nil {
		return nil, fmt.Errorf("read %d bytes at %d: %w", v.Size, v.Offset, err)
	}
	return dst, nil
}
