package persist

import (
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a keyspace of numbers under names. It keeps what every cut saw, so
// that a test can say what a file must hold: cut n is tick n of the file.
type fake struct {
	mu     sync.Mutex
	vals   map[string]uint64
	dirty  map[string]bool
	latest int64
	cuts   []map[string]uint64
	times  []int64
	open   bool // a cut is not drained
	onDump func()
}

func newFake() *fake {
	return &fake{vals: map[string]uint64{}, dirty: map[string]bool{}}
}

// set changes a key; 0 deletes it. Time goes on by one.
func (k *fake) set(key string, v uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.latest++
	k.dirty[key] = true
	if v == 0 {
		delete(k.vals, key)
	} else {
		k.vals[key] = v
	}
}

func (k *fake) Changed() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return int64(len(k.dirty))
}

func (k *fake) Count() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return int64(len(k.vals))
}

func (k *fake) Advance(latest int64) { k.latest = max(k.latest, latest) }

func (k *fake) Cut() cut {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open {
		panic("Cut before the last one was drained")
	}
	k.open = true
	k.cuts = append(k.cuts, maps.Clone(k.vals))
	k.times = append(k.times, k.latest)
	c := &fakeDrain{k: k, latest: k.latest, vals: maps.Clone(k.vals), end: func() { k.open = false }}
	c.left = slices.Sorted(maps.Keys(k.dirty))
	clear(k.dirty)
	return c
}

// Dump walks the keys there are now, and gives the values they have when it
// comes by.
func (k *fake) Dump() dump {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &fakeDrain{k: k, left: slices.Sorted(maps.Keys(k.vals))}
}

func (k *fake) Load(b []byte) error {
	for len(b) > 0 {
		n := int(b[0])
		key, v := string(b[1:1+n]), binary.LittleEndian.Uint64(b[1+n:])
		b = b[9+n:]
		if v == 0 {
			delete(k.vals, key)
		} else {
			k.vals[key] = v
		}
	}
	return nil
}

type fakeDrain struct {
	k      *fake
	latest int64
	vals   map[string]uint64 // of a cut; nil: a dump
	left   []string
	keys   int
	idle   bool
	end    func()
}

func (d *fakeDrain) Latest() int64 { return d.latest }
func (d *fakeDrain) Keys() int     { return d.keys }

func (d *fakeDrain) Append(dst []byte, max int) ([]byte, bool) {
	if d.vals == nil && d.k.onDump != nil {
		d.k.onDump()
	}
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	if d.idle = !d.idle; d.idle {
		return dst, true // nothing this time: drains may do so
	}
	vals := d.vals
	if vals == nil {
		vals = d.k.vals
	}
	for len(dst) < max {
		if len(d.left) == 0 {
			if d.end != nil {
				d.end()
			}
			return dst, false
		}
		key := d.left[0]
		d.left = d.left[1:]
		d.keys++
		dst = append(dst, byte(len(key)))
		dst = append(dst, key...)
		dst = binary.LittleEndian.AppendUint64(dst, vals[key])
	}
	return dst, true
}

// start opens a folder and loads a fake from it.
func start(t *testing.T, dir string, o Options) (*Flusher, *fake) {
	t.Helper()
	st, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	k := newFake()
	if _, err := st.load(k); err != nil {
		st.Close()
		t.Fatal(err)
	}
	f, err := st.Start()
	if err != nil {
		st.Close()
		t.Fatal(err)
	}
	return f, k
}

// still is options under which nothing happens by itself.
func still() Options { return Options{tick: make(chan time.Time), Version: "test"} }

// peek loads a copy of the state file, as if the process had been killed.
func peek(t *testing.T, dir string) (*fake, *header) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	return peekBytes(t, b)
}

func peekBytes(t *testing.T, b []byte) (*fake, *header) {
	t.Helper()
	path := filepath.Join(t.TempDir(), FileName)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := openReader(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	k := newFake()
	if err := r.load(k); err != nil {
		t.Fatal(err)
	}
	return k, r.hdr
}

// same fails unless a loaded fake is what cut n saw.
func same(t *testing.T, got, of *fake, n int) {
	t.Helper()
	want, at := map[string]uint64{}, int64(0)
	if n > 0 {
		of.mu.Lock()
		want, at = of.cuts[n-1], of.times[n-1]
		of.mu.Unlock()
	}
	if !maps.Equal(got.vals, want) {
		t.Fatalf("loaded %d keys that are not the %d of cut %d:\n%v\n%v", len(got.vals), len(want), n, got.vals, want)
	}
	if got.latest != at {
		t.Fatalf("loaded latest time %d, cut %d had %d", got.latest, n, at)
	}
}
