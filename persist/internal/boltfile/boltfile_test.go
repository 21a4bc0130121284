package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// build makes a database with what f does in each of n transactions, and
// returns its bytes and what it holds.
func build(t *testing.T, n int, f func(tx *bolt.Tx, i int)) ([]byte, []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: 4096, NoFreelistSync: true, NoSync: true})
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
			b, want := build(t, n, f)
			got, err := content(b)
			if err != nil {
				t.Fatalf("%s, %d transactions: %v", name, n, err)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s, %d transactions: read %d entries, bolt has %d", name, n, len(got), len(want))
			}
		}
	}
}

// TestDamageIsAnError flips bytes and cuts files short. Values are not checked
// here, so a flip may go unnoticed in them, but the structure must be whole
// enough for bolt to open the file to write, and nothing may panic or hang.
func TestDamageIsAnError(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for name, f := range shapes {
		b, want := build(t, 12, f)
		ok, bad := 0, 0
		try := func(b []byte) {
			got, err := content(b)
			switch {
			case err == nil:
				ok++
				if len(got) > len(want) {
					t.Fatalf("%s: %d entries, of %d", name, len(got), len(want))
				}
				if ok%40 == 0 {
					opens(t, b)
				}
			case errors.Is(err, ErrDamaged), errors.Is(err, ErrNotBolt), errors.Is(err, io.EOF):
				bad++
			default:
				t.Fatalf("%s: error of another kind: %v", name, err)
			}
		}
		// The first bytes of every page, where its structure is, and some of
		// the others; about 1,500 places a file.
		step := 1 + len(b)/100_000
		for at := rng.IntN(step); at < len(b); at += step {
			if at%4096 > 64 && rng.IntN(1+len(b)/step/500) > 0 {
				continue
			}
			was := b[at]
			b[at] ^= byte(1 + rng.IntN(255))
			try(b)
			b[at] = was
		}
		for range 100 {
			n := rng.IntN(len(b))
			try(b[:n:n])
		}
		if bad < 100 {
			t.Fatalf("%s: %d damaged files noticed, %d read", name, bad, ok)
		}
	}
}

// opens fails if bolt cannot open a file to write that a scan has passed.
func opens(t *testing.T, b []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, NoSync: true})
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
}

func TestBothMetaPagesMustBeWhole(t *testing.T) {
	b, _ := build(t, 3, shapes["small"])
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
	b, _ := build(t, 60, shapes["many keys"])
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
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
	b, _ := build(t, 40, func(tx *bolt.Tx, i int) {
		for _, name := range []string{"aa", "bb"} {
			k := must(tx.CreateBucketIfNotExists([]byte(name)))
			for j := range 10 {
				_ = k.Put(fmt.Appendf(nil, "%s%06d", name, i*10+j), make([]byte, 50))
			}
		}
	})
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
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
	db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: 4096, NoFreelistSync: true, NoSync: true})
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
