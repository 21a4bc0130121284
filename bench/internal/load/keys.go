package load

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Bounds of zipf keys: their weights are added up in a list.
const (
	maxZipf     = 10
	maxZipfKeys = 20_000_000
)

// drawn is how many zipf keys are drawn in advance. A draw costs more than all
// the rest of a request, and the generator takes its time from the server's
// machine; so the same list is gone through again and again.
const drawn = 1 << 20

// keySource gives the key numbers of one loop.
type keySource struct {
	first, keys uint64
	sequential  bool
	at          uint64 // next of the sequence, or of the list
	list        []uint32
	random      *rand.Rand
}

// newKeySource is the source of loop number i; begin is where its part of a
// sequence begins.
func newKeySource(c *Config, i int, begin int64) keySource {
	s := keySource{
		first: uint64(c.First), keys: uint64(c.Keys), sequential: c.Sequential, at: uint64(begin),
		random: rand.New(rand.NewPCG(c.Seed, uint64(i))),
	}
	if c.Zipf > 0 {
		s.at = 0
		s.list = drawZipf(s.random, c.Zipf, int(c.Keys), drawn)
	}
	return s
}

func (s *keySource) next() uint64 {
	switch {
	case s.sequential:
		key := s.at % s.keys
		s.at++
		return s.first + key
	case s.list != nil:
		key := s.list[s.at%uint64(len(s.list))]
		s.at++
		return s.first + uint64(key)
	}
	return s.first + s.random.Uint64N(s.keys)
}

// drawZipf draws n numbers from 0 to keys-1, number i with a probability in
// proportion to 1/(i+1)^s, by looking random points up in the sum of all
// weights. Unlike math/rand's it has exponents of 1 and below, where the
// traffic of real caches is found.
func drawZipf(random *rand.Rand, s float64, keys, n int) []uint32 {
	upTo := make([]float64, keys)
	sum := 0.0
	for i := range upTo {
		sum += math.Pow(float64(i+1), -s)
		upTo[i] = sum
	}
	list := make([]uint32, n)
	for i := range list {
		at, _ := slices.BinarySearch(upTo, random.Float64()*sum)
		list[i] = uint32(min(at, keys-1))
	}
	return list
}
