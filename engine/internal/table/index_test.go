package table

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// Hashes that are even and hashes that are anything but: all equal, a few
// different ones, or alike in the bits that pick a segment.
func TestIndexUnderAnyHashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		acct := &account{budget: NewBudget(0)}
		x := new(index)
		x.init(acct)
		empty := acct.bytes
		var all []uint64
		last := Ref(0)
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			n := rapid.IntRange(1, 2500).Draw(t, "entries")
			if rapid.Bool().Draw(t, "insert") {
				mask := rapid.SampledFrom([]uint32{1<<32 - 1, 1<<32 - 1, 0, 1, 1 << 31, 0xF << 28, 0xFFF, 1 << 12, 0xFFFF0000}).Draw(t, "mask")
				fixed := rapid.SampledFrom([]uint32{0, 1 << 31, 1 << 20, 0x80400000}).Draw(t, "fixed")
				if mask&(mask-1) == 0 {
					n %= segmentFull * 5 / 4 // a long search for each
				}
				for range n {
					f := rnd.Uint32()&mask | fixed
					last++
					if !x.reserve(f) {
						t.Fatal("refused without a bound")
					}
					x.insert(f, last)
					all = append(all, entry(f, last))
				}
			} else {
				rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				for range min(n, len(all)) {
					e := all[len(all)-1]
					all = all[:len(all)-1]
					x.remove(uint32(e>>32), Ref(e))
				}
			}
			if err := sameEntries(x, all); err != nil {
				t.Fatal(err)
			}
			if int64(x.bytes()) != acct.bytes {
				t.Fatalf("%d bytes in use, %d reserved", x.bytes(), acct.bytes)
			}
			if len(x.dir) > 16*x.segments+64 && len(all) > 3000 {
				t.Fatalf("a directory of %d for %d segments", len(x.dir), x.segments)
			}
		}
		for _, e := range all {
			is := Ref(e) + 1<<30
			x.replace(uint32(e>>32), Ref(e), is)
			x.remove(uint32(e>>32), is)
		}
		if err := sameEntries(x, nil); err != nil {
			t.Fatal(err)
		}
		if acct.bytes != empty {
			t.Fatalf("%d bytes for an empty index, %d segments; was %d", acct.bytes, x.segments, empty)
		}
		if x.close(); acct.bytes != 0 {
			t.Fatalf("%d bytes reserved after close", acct.bytes)
		}
	})
}

func sameEntries(x *index, want []uint64) error {
	got, err := x.check()
	if err != nil {
		return err
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d entries, should be %d", len(got), len(want))
	}
	for _, e := range want {
		if !got[e] {
			return fmt.Errorf("entry %x is lost", e)
		}
		if x.lookup(uint32(e>>32), func(r Ref) bool { return r == Ref(e) }) != Ref(e) {
			return fmt.Errorf("entry %x is not found", e)
		}
	}
	return nil
}

// A segment with a further one behind it must not split: the entries there
// would be lost to the half that they do not hang on.
func TestIndexChainIsNotSplit(t *testing.T) {
	x := new(index)
	x.init(&account{budget: NewBudget(0)})
	var all []uint64
	add := func(f uint32) {
		ref := Ref(len(all) + 1)
		x.reserve(f)
		x.insert(f, ref)
		all = append(all, entry(f, ref))
	}
	for range segmentFull {
		add(0)
	}
	for range segmentFull {
		add(1 << 31) // into the further segment
	}
	for _, e := range all[:segmentFull/2] {
		x.remove(0, Ref(e))
	}
	for range segmentFull {
		add(1 << 31) // fills the first one up again
	}
	if err := sameEntries(x, all[segmentFull/2:]); err != nil {
		t.Error(err)
	}
}

// A split that parts next to nothing must not double the directory each time.
func TestIndexDirectoryStaysSmall(t *testing.T) {
	for name, hash := range map[string]func(r uint32) uint32{
		"equal": func(uint32) uint32 { return 7 },
		"lone":  func(r uint32) uint32 { return uint32(1<<(r/4%32)) &^ -(r % 4 & 1) },
	} {
		x := new(index)
		x.init(&account{budget: NewBudget(0)})
		rnd := rand.New(rand.NewPCG(7, 8))
		for i := range 8000 {
			f := hash(rnd.Uint32())
			x.reserve(f)
			x.insert(f, Ref(i+1))
			if len(x.dir) > 16*x.segments+64 || name == "equal" && x.segments > 1 {
				t.Fatalf("%s: a directory of %d for %d segments at %d entries", name, len(x.dir), x.segments, i+1)
			}
		}
	}
}

// Growth in small steps keeps the load up at every count, and emptying gives
// the memory back on the way, not only at the end.
func TestIndexLoad(t *testing.T) {
	acct := &account{budget: NewBudget(0)}
	x := new(index)
	x.init(acct)
	rnd := rand.New(rand.NewPCG(5, 6))
	const n = 60_000
	fs := make([]uint32, n)
	for i := range fs {
		fs[i] = rnd.Uint32()
		x.reserve(fs[i])
		x.insert(fs[i], Ref(i+1))
		if per := float64(acct.bytes) / float64(i+1); i > 5000 && per > 13 {
			t.Fatalf("%.1f bytes an entry at %d", per, i+1)
		}
	}
	for i := range fs {
		x.remove(fs[i], Ref(i+1))
		if left := n - i - 1; left > 500 && float64(acct.bytes)/float64(left) > 30 {
			t.Fatalf("%d bytes for %d entries", acct.bytes, left)
		}
	}
}
