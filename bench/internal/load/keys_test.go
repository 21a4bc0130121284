package load

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A number's frequency must be its weight's part of all weights, for exponents
// on both sides of 1.
func TestZipfFrequenciesFollowTheirWeights(t *testing.T) {
	const keys, n = 1000, 400_000
	for _, s := range []float64{0.5, 0.99, 1, 1.5} {
		count := make([]int, keys)
		for _, i := range drawZipf(rand.New(rand.NewPCG(3, 4)), s, keys, n) {
			count[i]++
		}
		sum := 0.0
		for i := range keys {
			sum += math.Pow(float64(i+1), -s)
		}
		for _, i := range []int{0, 1, 2, 9, 99, keys - 1} {
			p := math.Pow(float64(i+1), -s) / sum
			want, deviation := n*p, math.Sqrt(n*p*(1-p))
			if got := float64(count[i]); math.Abs(got-want) > 5*deviation+1 {
				t.Errorf("s %v: number %d was drawn %v times, want %.0f give or take %.0f", s, i, got, want, deviation)
			}
		}
	}
}

func TestKeysBeginAtTheFirstAndComeAgain(t *testing.T) {
	c := Config{Keys: 3, First: 100, Sequential: true}
	s := newKeySource(&c, 0, 2)
	for i, want := range []uint64{102, 100, 101, 102, 100} {
		if got := s.next(); got != want {
			t.Fatalf("key %d in turn is %d, want %d", i, got, want)
		}
	}
	for name, c := range map[string]Config{"uniform": {Keys: 4, First: 100}, "zipf": {Keys: 4, First: 100, Zipf: 0.1}} {
		s := newKeySource(&c, 0, 0)
		seen := map[uint64]bool{}
		for range 1000 {
			seen[s.next()] = true
		}
		if len(seen) != 4 || !seen[100] || !seen[103] {
			t.Errorf("%s: %v", name, seen)
		}
	}
	// Loops of one run must not walk the same list in step.
	zipf := Config{Keys: 1_000_000, Zipf: 0.5}
	a, b := newKeySource(&zipf, 0, 0), newKeySource(&zipf, 1, 0)
	same := 0
	for range 100 {
		if a.next() == b.next() {
			same++
		}
	}
	if same > 10 {
		t.Errorf("two loops have %d of 100 keys in common", same)
	}
}
