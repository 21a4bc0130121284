package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	bolt "go.etcd.io/bbolt"
)

func TestAListOfFreePagesThatIsWrongIsNoticed(t *testing.T) {
	b, _ := build(t, 20, true, shapes["deletes"])
	f := opened(t, b)
	meta := b[f.txid%2*4096:]
	page := b[f.freelist*4096:]
	ids := page[headerSize:]
	n := int(native.Uint16(page[10:]))
	if n < 4 {
		t.Fatalf("%d free pages are too few for the test", n)
	}
	setList := func(id uint64) {
		native.PutUint64(meta[headerSize+32:], id)
		seal(meta)
	}
	for name, change := range map[string]func(){
		"its page is a meta page":      func() { setList(1) },
		"its page is past the end":     func() { setList(f.pages) },
		"its page is the root":         func() { setList(f.root) },
		"its page calls itself other":  func() { native.PutUint64(page, f.freelist+1) },
		"it is a leaf":                 func() { native.PutUint16(page[8:], flagLeaf) },
		"it runs past the end":         func() { native.PutUint32(page[12:], uint32(f.pages-f.freelist)) },
		"more numbers than fit":        func() { native.PutUint16(page[10:], 511) },
		"a long list longer than fits": func() { native.PutUint16(page[10:], longList); native.PutUint64(ids, 510) },
		"a huge list":                  func() { native.PutUint16(page[10:], longList); native.PutUint64(ids, 1<<63) },
		"a meta page is free":          func() { native.PutUint64(ids, 1) },
		"a page past the end is free":  func() { native.PutUint64(ids[(n-1)*8:], f.pages) },
		"a page is free twice":         func() { native.PutUint64(ids[8:], native.Uint64(ids)) },
		"its numbers are unordered":    func() { native.PutUint64(ids, native.Uint64(ids[8:])); native.PutUint64(ids[8:], 2) },
		"the root is free":             func() { replaceID(ids, n, f.root) },
		"a bucket is free":             func() { replaceID(ids, n, rootOf(f, b)) },
		"the list itself is free":      func() { replaceID(ids, n, f.freelist) },
	} {
		whole := bytes.Clone(b)
		change()
		if _, err := content(b); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		copy(b, whole)
	}
	if _, err := content(b); err != nil {
		t.Fatal(err)
	}
	// What is just right, and what is one too many for a page of 4096 bytes.
	for _, c := range []struct {
		count uint16
		long  uint64
		fits  bool
	}{{0, 0, true}, {510, 0, true}, {511, 0, false}, {longList, 509, true}, {longList, 510, false}} {
		native.PutUint16(page[10:], c.count)
		native.PutUint64(ids, c.long)
		if _, err := Open(bytes.NewReader(b), int64(len(b))); (err == nil) != c.fits {
			t.Errorf("a list of %d, %d numbers: %v", c.count, c.long, err)
		}
	}
}

// replaceID puts id on a list of n numbers, in order, instead of another.
func replaceID(ids []byte, n int, id uint64) {
	at := 0
	for at < n-1 && native.Uint64(ids[at*8:]) < id {
		at++
	}
	if at > 0 && native.Uint64(ids[at*8:]) > id {
		at--
	}
	native.PutUint64(ids[at*8:], id)
}

// seal gives a meta page the checksum of what is in it.
func seal(page []byte) {
	b := page[headerSize : headerSize+metaSize]
	native.PutUint64(b[metaSize-8:], metaSum(b))
}

// TestALongListIsRead has more free pages than a page's count can say, on a
// list of many pages, each of which must be looked at.
func TestALongListIsRead(t *testing.T) {
	const size, pages = 1024, 66_000
	b, want := buildPages(t, 3, &bolt.Options{PageSize: size, NoSync: true}, func(tx *bolt.Tx, i int) {
		switch i {
		case 0:
			k := must(tx.CreateBucketIfNotExists([]byte("gone")))
			for j := range 10 {
				_ = k.Put([]byte{byte(j)}, make([]byte, pages/10*size))
			}
		case 1:
			_ = tx.DeleteBucket([]byte("gone"))
		case 2:
			_ = must(tx.CreateBucketIfNotExists([]byte("small"))).Put([]byte("k"), []byte("v"))
		}
	})
	f := opened(t, b)
	if f.free.count < longList || f.free.run < 100 {
		t.Fatalf("%d numbers on %d pages are too few for the test", f.free.count, f.free.run)
	}
	if got, err := content(b); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("read %v, %v", got, err)
	}
	for _, i := range []uint64{0, 1, 8191, 8192, 8193, f.free.count / 2, f.free.count - 1} {
		id := b[uint64(f.free.off)+i*8:]
		was := native.Uint64(id)
		native.PutUint64(id, f.pages)
		if _, err := content(b); !errors.Is(err, ErrDamaged) {
			t.Errorf("number %d of the list is wrong: %v", i, err)
		}
		native.PutUint64(id, was)
	}
}
