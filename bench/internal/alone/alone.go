// Package alone times the engine by itself: no server, no protocol, one
// thread. The yardstick is a lookup in a plain Go map in the same run, because
// with a million random keys both wait for memory, and how long that takes is
// the machine's affair.
package alone

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
)

// Hot is the number of hot keys.
const Hot = 1000

// keyLen is the length of every key in bytes: "k:" and 12 digits.
const keyLen = 14

// Figures is one round. Times are ns for one lookup or decision, with the
// writing of its key, which is the same work for all.
type Figures struct {
	MapLookup   float64
	RandomKeys  float64
	Announced   float64 // random keys, announced in groups as the server does with a pipeline
	HotKeys     float64
	Pure        float64 // the arithmetic only: no key, no lock, no table
	Allocations float64 // of a decision
}

// Fixture is a map and a keyspace with the same keys. It belongs to one
// goroutine.
type Fixture struct {
	keys   uint64
	plain  map[string]int64
	space  *engine.Keyspace
	tx     engine.Tx
	limit  limit.BucketLimit
	random *rand.PCG
	now    int64
	key    [keyLen]byte
	group  [engine.MaxAhead][]byte
	sum    int64 // of what was found, so that no lookup is optimised away
}

// New makes a fixture of that many keys. Its limit is so slow that every bucket
// stays live, and so large that none is refused.
func New(keys int) (*Fixture, error) {
	space, err := engine.New(engine.Options{})
	if err != nil {
		return nil, err
	}
	f := &Fixture{
		keys:   uint64(keys),
		plain:  make(map[string]int64, keys),
		space:  space,
		limit:  limit.BucketLimit{Capacity: 1_000_000_000, Rate: limit.Rate{Count: 1, Period: int64(time.Hour)}},
		random: rand.NewPCG(1, 2),
		now:    1_700_000_000_000_000_000,
	}
	copy(f.key[:], "k:")
	for i := range f.group {
		f.group[i] = []byte("k:000000000000")
	}
	for i := range f.keys {
		f.setKey(i)
		f.plain[string(f.key[:])] = int64(i)
		if _, err := f.decide(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *Fixture) setKey(i uint64) { write(f.key[:], i) }

func write(key []byte, i uint64) {
	for at := keyLen - 1; at >= 2; at-- {
		key[at] = '0' + byte(i%10)
		i /= 10
	}
}

// Lookup looks n random keys up in the plain map.
func (f *Fixture) Lookup(n int) {
	for range n {
		f.setKey(f.random.Uint64() % f.keys)
		f.sum += f.plain[string(f.key[:])]
	}
}

// Decide makes n decisions, a transaction each and each a microsecond after
// the one before, on random keys of the first among.
func (f *Fixture) Decide(n int, among uint64) error {
	for range n {
		f.setKey(f.random.Uint64() % min(among, f.keys))
		if _, err := f.decide(); err != nil {
			return err
		}
	}
	return nil
}

// DecideAnnounced makes about n decisions on random keys, a transaction for each
// group of keys that are announced together.
func (f *Fixture) DecideAnnounced(n int) error {
	for ; n > 0; n -= len(f.group) {
		for _, key := range f.group {
			write(key, f.random.Uint64()%f.keys)
		}
		f.now += 1000
		f.space.BeginInto(&f.tx, f.now)
		for left := f.group[:]; len(left) > 0; {
			taken := f.tx.Ahead(left)
			for _, key := range left[:taken] {
				if _, err := f.tx.Throttle(key, f.limit, 1, limit.Consume); err != nil {
					f.tx.End()
					return err
				}
			}
			left = left[taken:]
		}
		f.tx.End()
	}
	return nil
}

// DecidePure makes n decisions on one bucket's numbers.
func (f *Fixture) DecidePure(n int) {
	var b limit.Bucket
	for range n {
		f.now += 1000
		var r limit.Result
		b, r = f.limit.Decide(b, 1, limit.Consume, f.now)
		f.sum += r.ResetMs
	}
}

func (f *Fixture) decide() (limit.Result, error) {
	f.now += 1000
	f.space.BeginInto(&f.tx, f.now)
	r, err := f.tx.Throttle(f.key[:], f.limit, 1, limit.Consume)
	f.tx.End()
	if err == nil && r.Allowed != 1 {
		err = fmt.Errorf("a decision that had to be allowed was refused: %+v", r)
	}
	return r, err
}

// Measure makes rounds of as many lookups and decisions as there are keys, one
// kind after the other.
func Measure(ctx context.Context, keys, rounds int) ([]Figures, error) {
	f, err := New(keys)
	if err != nil {
		return nil, fmt.Errorf("the engine alone: %w", err)
	}
	runtime.GC() // what filling left behind is not collected while the clock runs
	var list []Figures
	for range rounds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var r Figures
		begin := time.Now()
		f.Lookup(keys)
		r.MapLookup = perOne(begin, keys)

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin = time.Now()
		if err := f.Decide(keys, f.keys); err != nil {
			return nil, fmt.Errorf("the engine alone: %w", err)
		}
		r.RandomKeys = perOne(begin, keys)
		runtime.ReadMemStats(&after)
		// Whole ones, as testing.AllocsPerRun has it: the runtime makes a few
		// of its own meanwhile.
		r.Allocations = float64((after.Mallocs - before.Mallocs) / uint64(keys))

		begin = time.Now()
		if err := f.DecideAnnounced(keys); err != nil {
			return nil, fmt.Errorf("the engine alone: %w", err)
		}
		r.Announced = perOne(begin, keys)

		begin = time.Now()
		f.DecidePure(keys)
		r.Pure = perOne(begin, keys)

		begin = time.Now()
		if err := f.Decide(keys, Hot); err != nil {
			return nil, fmt.Errorf("the engine alone: %w", err)
		}
		r.HotKeys = perOne(begin, keys)
		list = append(list, r)
	}
	return list, nil
}

func perOne(begin time.Time, n int) float64 {
	return float64(time.Since(begin).Nanoseconds()) / float64(n)
}
