package table

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
)

// One record that stays must not hold the memory of the limits of all that
// were there with it.
func TestLimitsComeBackBesideOneThatStays(t *testing.T) {
	const n = 40_000
	for _, stays := range []int{0, n / 2, n - 1} {
		acct := &account{budget: NewBudget(0)}
		l := &limits{acct: acct, hash: goodHash}
		numbers := make([]uint32, n)
		fill := func() {
			for i := range numbers {
				if i == stays && *l.users(numbers[i]) > 0 {
					continue
				}
				var ok bool
				if numbers[i], ok = l.intern(limit.Params{A: int64(i + 1)}); !ok {
					t.Fatal("refused")
				}
			}
		}
		numbers[stays], _ = l.intern(limit.Params{A: int64(stays + 1)})
		fill()
		full, made := acct.bytes, len(l.chunks)
		if full > 46*n {
			t.Errorf("%d bytes for %d limits", full, n)
		}
		for round := range 3 {
			for _, i := range rand.New(rand.NewPCG(1, uint64(round))).Perm(n) {
				if i != stays {
					l.release(numbers[i])
				}
			}
			// The chunk of the one, a free one, a segment, and 12 bytes for each
			// number of a chunk with what append adds.
			if most := int64(2*chunkBytes + 2*blockBytes + 20*made); acct.bytes > most {
				t.Errorf("%d bytes of %d are held by one limit, want at most %d", acct.bytes, full, most)
			}
			users := map[uint32]uint32{numbers[stays]: 1}
			if bytes, err := l.check(users); err != nil || int64(bytes) != acct.bytes {
				t.Fatalf("%d bytes, %d reserved, %v", bytes, acct.bytes, err)
			}
			if i, ok := l.find(limit.Params{A: int64(stays + 1)}); !ok || i != numbers[stays] {
				t.Fatal("the limit that stays is not found")
			}
			fill()
			if len(l.chunks) > made {
				t.Fatalf("%d chunks, were %d: numbers are not used again", len(l.chunks), made)
			}
			users = map[uint32]uint32{}
			for _, i := range numbers {
				users[i]++
			}
			if bytes, err := l.check(users); err != nil || int64(bytes) != acct.bytes {
				t.Fatalf("%d bytes, %d reserved, %v", bytes, acct.bytes, err)
			}
		}
		for _, i := range numbers {
			l.release(i)
		}
		if acct.bytes != 0 {
			t.Errorf("%d bytes for no limits", acct.bytes)
		}
	}
}

// The same through records that expire.
func TestExpiredLimitsGiveTheirMemoryBack(t *testing.T) {
	b := NewBudget(0)
	tab := New(Options{Budget: b, Hash: goodHash})
	var before int64
	for i := range 40_000 {
		v := bucketAt(second)
		if v.Limit.A += int64(i); i == 20_000 {
			v.W[0] = 9 * second
			before = b.Used()
		}
		if err := store(tab, fmt.Append(nil, i), v); err != nil {
			t.Fatal(err)
		}
	}
	for tab.SweepPage(2*second) > 0 {
	}
	mustCheck(t, tab)
	if tab.Len() != 1 || b.Used() > before/12 {
		t.Errorf("%d records take %d bytes, 20000 took %d", tab.Len(), b.Used(), before)
	}
}

// A limit that comes and goes makes no garbage at any count.
func TestLimitThatComesAndGoesMakesNoGarbage(t *testing.T) {
	l := &limits{acct: &account{budget: NewBudget(0)}, hash: goodHash}
	for n := range int64(5 * limitChunk) {
		if a := allocs(100, func() {
			i, _ := l.intern(limit.Params{A: -1})
			l.release(i)
		}); a > 0 && n != limitChunk {
			t.Errorf("%v allocations beside %d limits", a, n)
		}
		l.intern(limit.Params{A: n + 1})
	}
}

// Random use, so that chunks are emptied and filled in every order.
func TestLimitsUnderRandomUse(t *testing.T) {
	for _, hash := range []string{"good", "few"} {
		rnd := rand.New(rand.NewPCG(3, 4))
		acct := &account{budget: NewBudget(0)}
		l := &limits{acct: acct, hash: hashes[hash]}
		users, number := map[uint32]uint32{}, map[int64]uint32{}
		var held []int64
		for step := range 20_000 {
			grow := step/1500%2 == 0 // up and down again
			if len(held) == 0 || rnd.IntN(10) < 8 == grow {
				a := rnd.Int64N(700)
				i, ok := l.intern(limit.Params{A: a})
				if is, known := number[a]; !ok || known && users[is] > 0 && is != i || *l.at(i) != (limit.Params{A: a}) {
					t.Fatalf("limit %d has the number %d, had %d", a, i, is)
				}
				number[a] = i
				users[i]++
				held = append(held, a)
			} else {
				k := rnd.IntN(len(held))
				a := held[k]
				held[k] = held[len(held)-1]
				held = held[:len(held)-1]
				l.release(number[a])
				if users[number[a]]--; users[number[a]] == 0 {
					delete(users, number[a])
					delete(number, a)
				}
			}
			if step%50 == 0 || len(held) < 40 {
				if bytes, err := l.check(users); err != nil || int64(bytes) != acct.bytes {
					t.Fatalf("step %d: %d bytes, %d reserved, %v", step, bytes, acct.bytes, err)
				}
			}
		}
	}
}

func TestChunkFillsItsSizeClass(t *testing.T) {
	if chunkBytes != 480 {
		t.Errorf("a chunk of limits has %d bytes; the allocator makes that more", chunkBytes)
	}
}
