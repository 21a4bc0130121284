package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// listings are the two kinds of files: with a list of free pages, and without.
var listings = []bool{true, false}

// build makes a database with what f does in each of n transactions, and
// returns its bytes and what it holds. The bytes are the same each time.
func build(t *testing.T, n int, lists bool, f func(tx *bolt.Tx, i int)) ([]byte, []string) {
	t.Helper()
	return buildPages(t, n, &bolt.Options{PageSize: 4096, NoFreelistSync: !lists, NoSync: true}, f)
}

func buildPages(t *testing.T, n int, o *bolt.Options, f func(tx *bolt.Tx, i int)) ([]byte, []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := db.Update(func(tx *bolt.Tx) error { f(tx, i); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	_ = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				want = append(want, entry(name, k, v))
				return nil
			})
		})
	})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b, want
}

func entry(bucket, key, value []byte) string {
	return fmt.Sprintf("%q %q %d %x", bucket, key, len(value), crc32.ChecksumIEEE(value))
}

// content scans a database whole.
func content(b []byte) ([]string, error) {
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	var got []string
	var buf []byte
	err = f.Scan(func(bucket, key []byte, v Value) error {
		var err error
		if buf, err = f.Read(v, buf); err != nil {
			return err
		}
		got = append(got, entry(bucket, key, buf))
		return nil
	})
	return got, err
}

func must(b *bolt.Bucket, err error) *bolt.Bucket {
	if err != nil {
		panic(err)
	}
	return b
}

// shapes are transactions that make files of all kinds.
var shapes = map[string]func(tx *bolt.Tx, i int){
	"small": func(tx *bolt.Tx, i int) {
		b := must(tx.CreateBucketIfNotExists([]byte("one")))
		_ = b.Put([]byte{byte(i)}, []byte("value"))
	},
	"many keys": func(tx *bolt.Tx, i int) {
		b := must(tx.CreateBucketIfNotExists([]byte("many")))
		for j := range 100 {
			_ = b.Put(fmt.Appendf(nil, "%08d", (i*100+j)*7919%5000), make([]byte, j))
		}
	},
	"large values": func(tx *bolt.Tx, i int) {
		b := must(tx.CreateBucketIfNotExists(fmt.Appendf(nil, "bucket%d", i%3)))
		_ = b.Put(fmt.Appendf(nil, "%04d", i), bytes.Repeat([]byte{byte(i)}, 1000*i))
	},
	"huge value": func(tx *bolt.Tx, i int) {
		b := must(tx.CreateBucketIfNotExists([]byte("huge")))
		_ = b.Put(fmt.Appendf(nil, "%d", i), bytes.Repeat([]byte{byte(i)}, 100_000))
	},
	"deletes": func(tx *bolt.Tx, i int) {
		b := must(tx.CreateBucketIfNotExists(fmt.Appendf(nil, "b%02d", i%7)))
		for j := range 50 {
			_ = b.Put(fmt.Appendf(nil, "%04d", i*j%300), make([]byte, 100))
			_ = b.Delete(fmt.Appendf(nil, "%04d", i*j%77))
		}
		if i%5 == 4 {
			_ = tx.DeleteBucket(fmt.Appendf(nil, "b%02d", (i+3)%7))
		}
	},
	"many buckets": func(tx *bolt.Tx, i int) {
		for j := range 30 {
			b := must(tx.CreateBucketIfNotExists(fmt.Appendf(nil, "bucket number %05d", i*30+j)))
			_ = b.Put([]byte("k"), make([]byte, j*20))
		}
	},
}

func TestScanReadsWhatBoltWrote(t *testing.T) {
	for name, f := range shapes {
		for _, n := range []int{1, 2, 3, 10, 60} {
			for _, lists := range listings {
				b, want := build(t, n, lists, f)
				got, err := content(b)
				if err != nil {
					t.Fatalf("%s, %d transactions: %v", name, n, err)
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("%s, %d transactions: read %d entries, bolt has %d", name, n, len(got), len(want))
				}
				if f := opened(t, b); f.ListsFree() != lists {
					t.Fatalf("%s, %d transactions: a list of free pages is %v, want %v", name, n, f.ListsFree(), lists)
				}
			}
		}
	}
}

// opened opens a database that is whole.
func opened(t *testing.T, b []byte) *File {
	t.Helper()
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestDamageIsAnError flips bytes and cuts files short, the same ones in each
// run. Values are not checked here, so a flip may go unnoticed in them, but the
// structure must be whole enough for bolt to open the file to write, and
// nothing may panic or hang.
func TestDamageIsAnError(t *testing.T) {
	for i, name := range slices.Sorted(maps.Keys(shapes)) {
		for j, lists := range listings {
			damage(t, fmt.Sprintf("%s, list %v", name, lists), lists, shapes[name], rand.New(rand.NewPCG(uint64(i), uint64(j))))
		}
	}
}

func damage(t *testing.T, name string, lists bool, shape func(tx *bolt.Tx, i int), rng *rand.Rand) {
	b, want := build(t, 12, lists, shape)
	f := opened(t, b)
	ok, bad := 0, 0
	try := func(b []byte) error {
		got, err := content(b)
		switch {
		case err == nil:
			ok++
			if len(got) > len(want) {
				t.Fatalf("%s: %d entries, of %d", name, len(got), len(want))
			}
			if ok%40 == 0 {
				opens(t, b, lists)
			}
		case errors.Is(err, ErrDamaged), errors.Is(err, ErrNotBolt), errors.Is(err, io.EOF):
			bad++
		default:
			t.Fatalf("%s: error of another kind: %v", name, err)
		}
		return err
	}
	// What must be noticed: a page of the tree, or the list, that is not what
	// its header says, and a file that is shorter than what is in use of it.
	heads := []uint64{f.root}
	if lists {
		heads = append(heads, f.freelist)
	}
	for _, id := range heads {
		for at := id * 4096; at < id*4096+10; at++ {
			was := b[at]
			b[at] ^= byte(1 + rng.IntN(255))
			if try(b) == nil {
				t.Fatalf("%s: a change of byte %d of page %d was not noticed", name, at%4096, id)
			}
			b[at] = was
		}
	}
	for range 50 {
		n := rng.Int64N(f.Used())
		if try(b[:n:n]) == nil {
			t.Fatalf("%s: cut from %d bytes to %d, and it was not noticed", name, f.Used(), n)
		}
	}
	// What may be in a value: the first bytes of every page and some of the
	// others, about 1,000 places a file.
	step := 1 + len(b)/100_000
	for at := rng.IntN(step); at < len(b); at += step {
		if at%4096 > 64 && rng.IntN(1+len(b)/step/300) > 0 {
			continue
		}
		was := b[at]
		b[at] ^= byte(1 + rng.IntN(255))
		_ = try(b)
		b[at] = was
	}
	if _, err := content(b); err != nil {
		t.Fatalf("%s: not as it was at the end: %v", name, err)
	}
	t.Logf("%s: %d damaged files noticed, %d read", name, bad, ok)
}

// opens fails if bolt cannot open a file to write that a scan has passed, or
// then writes one that does not pass.
func opens(t *testing.T, b []byte, lists bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: !lists, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("zzz"))
		if err != nil {
			return err
		}
		return b.Put([]byte("k"), make([]byte, 20_000))
	})
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := content(after); err != nil {
		t.Fatalf("after another transaction: %v", err)
	}
}

func TestBothMetaPagesMustBeWhole(t *testing.T) {
	b, _ := build(t, 3, true, shapes["small"])
	for _, page := range []int{0, 4096} {
		for at := page; at < page+headerSize+metaSize; at++ {
			if at%4096 >= 10 && at%4096 < headerSize {
				continue // count and overflow mean nothing here
			}
			b[at] ^= 4
			if _, err := Open(bytes.NewReader(b), int64(len(b))); !errors.Is(err, ErrDamaged) {
				t.Fatalf("byte %d of a meta page flipped: %v", at, err)
			}
			b[at] ^= 4
		}
	}
}

func TestOtherFilesAreNotBolt(t *testing.T) {
	for _, b := range [][]byte{nil, {1}, []byte("REDIS0011"), make([]byte, 4096), make([]byte, 65536), bytes.Repeat([]byte("text\n"), 5000)} {
		if _, err := Open(bytes.NewReader(b), int64(len(b))); !errors.Is(err, ErrNotBolt) {
			t.Fatalf("%d bytes of something else: %v", len(b), err)
		}
	}
}

func TestACycleIsNoticed(t *testing.T) {
	b, _ := build(t, 60, true, shapes["many keys"])
	f := opened(t, b)
	root := rootOf(f, b)
	p := b[root*4096:]
	if native.Uint16(p[8:]) != flagBranch || native.Uint16(p[10:]) < 3 {
		t.Fatal("the tree is too small for the test")
	}
	first, second := p[headerSize+8:headerSize+16], p[headerSize+elementSize+8:headerSize+elementSize+16]
	was := bytes.Clone(first)
	for name, other := range map[string]uint64{
		"itself": root, "the root bucket": f.root, "its sibling": native.Uint64(second),
		"a meta page": 1, "beyond the end": f.pages, "far beyond": 1 << 60,
	} {
		native.PutUint64(first, other)
		if _, err := content(b); !errors.Is(err, ErrDamaged) {
			t.Errorf("a branch that refers to %s: %v", name, err)
		}
	}
	copy(first, was)
	if _, err := content(b); err != nil {
		t.Fatal(err)
	}
}

func TestElementsOutOfPlaceAreNoticed(t *testing.T) {
	// Two buckets of several pages.
	b, _ := build(t, 40, true, func(tx *bolt.Tx, i int) {
		for _, name := range []string{"aa", "bb"} {
			k := must(tx.CreateBucketIfNotExists([]byte(name)))
			for j := range 10 {
				_ = k.Put(fmt.Appendf(nil, "%s%06d", name, i*10+j), make([]byte, 50))
			}
		}
	})
	f := opened(t, b)
	root := b[f.root*4096:]
	second := headerSize + elementSize // the element of the second bucket
	value := second + int(native.Uint32(root[second+4:])) + int(native.Uint32(root[second+8:]))
	branch := b[rootOf(f, b)*4096:]
	leaf := b[native.Uint64(branch[headerSize+8:])*4096:]
	n := int(native.Uint16(leaf[10:]))
	last := headerSize + (n-1)*elementSize
	for name, change := range map[string]func(){
		"two buckets on the same pages": func() { native.PutUint64(root[value:], rootOf(f, b)) },
		"a key without bytes":           func() { native.PutUint32(leaf[headerSize+8:], 0) },
		"a key too long":                func() { native.PutUint32(leaf[headerSize+8:], maxKey+1) },
		"a key beyond its branch":       func() { leaf[last+int(native.Uint32(leaf[last+4:]))] = 'z' },
		"a key before its branch":       func() { leaf[headerSize+int(native.Uint32(leaf[headerSize+4:]))] = '!' },
		"a bucket in a bucket":          func() { native.PutUint32(leaf[headerSize:], 1) },
		"a value in the root":           func() { native.PutUint32(root[headerSize:], 0) },
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
}

// rootOf is the root page of the first bucket.
func rootOf(f *File, b []byte) uint64 {
	p := b[f.root*4096:]
	at := headerSize + int(native.Uint32(p[headerSize+4:])) + int(native.Uint32(p[headerSize+8:]))
	return native.Uint64(p[at:])
}

func FuzzScan(f *testing.F) {
	path := filepath.Join(f.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: 4096, NoSync: true})
	if err != nil {
		f.Fatal(err)
	}
	for i := range 4 {
		_ = db.Update(func(tx *bolt.Tx) error { shapes["deletes"](tx, i); return nil })
	}
	db.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(0, []byte{1})
	f.Add(8192, []byte{2, 0, 0, 0})
	f.Add(4096*3+16, []byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, at int, patch []byte) {
		c := bytes.Clone(b)
		if at < 0 || at >= len(c) {
			return
		}
		copy(c[at:], patch)
		_, _ = content(c)
	})
}

// TestALostElementIsNoticed: a count that is too small would drop the last keys of
// a page without a trace.
func TestALostElementIsNoticed(t *testing.T) {
	for _, name := range []string{"many keys", "large values", "many buckets"} {
		b, _ := build(t, 12, false, shapes[name])
		f := opened(t, b)
		want, _ := content(b)
		pages := 0
		for id := uint64(2); id < f.pages; id++ {
			page := b[id*uint64(f.pageSize):]
			if flags := native.Uint16(page[8:]); native.Uint64(page) != id || flags != flagLeaf && flags != flagBranch {
				continue
			}
			count := native.Uint16(page[10:])
			for _, wrong := range []uint16{count - 1, count / 2, 0} {
				if wrong >= count {
					continue
				}
				c := bytes.Clone(b)
				native.PutUint16(c[id*uint64(f.pageSize)+10:], wrong)
				got, err := content(c)
				switch {
				case errors.Is(err, ErrDamaged):
					pages++
				case err != nil || len(got) != len(want):
					// Only a page that is in no tree may say what it likes, and one
					// that says it is empty.
					if wrong > 0 {
						t.Fatalf("%s: page %d with %d of %d elements: %d keys of %d, %v", name, id, wrong, count, len(got), len(want), err)
					}
				}
			}
		}
		if pages == 0 {
			t.Errorf("%s: no page was tried", name)
		}
	}
}
