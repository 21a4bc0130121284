// Package engine is the keyspace of a rate limiter: sharded tables of token
// buckets, leaky buckets and windows, and the transactions that decide on them.
//
// It is embeddable by itself. It has no clock, no goroutine, no I/O and no
// log: every transaction is given its time (unix nanoseconds), and whoever
// embeds the engine calls Sweep now and then and, if the state is to outlive
// the process, drains its changes with Cut. A Keyspace may be used from any
// number of goroutines at once; a Tx, a Cut and a Dump belong to one each.
package engine

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/stint-dev/stint/engine/internal/table"
)

// Databases is how many separate key spaces a Keyspace has: 0 to Databases-1.
const Databases = 16

// MaxKey is the longest key, in bytes; the shortest has one.
const MaxKey = 4096

// Errors of a decision.
var (
	// ErrKey: the key is empty or longer than MaxKey.
	ErrKey = errors.New("a key has 1 to 4096 bytes")
	// ErrKind: the kind given to Window is none of a window.
	ErrKind = errors.New("the kind is none of a window")
	// ErrWrongType: the key holds state of another algorithm.
	ErrWrongType = errors.New("the key holds a limiter of another kind")
	// ErrOOM: the decision needs more memory than Options.MaxMemory leaves.
	// Nothing of it was applied.
	ErrOOM = errors.New("the memory limit is reached")
)

// Errors of New, and of bytes given to Load.
var (
	ErrOptions = errors.New("engine: invalid options")
	ErrDamaged = errors.New("engine: damaged change record")
)

// DefaultShards is the number of shards when Options does not say: enough
// that two of a few dozen cores rarely meet at one lock, few enough that an
// almost empty keyspace is small.
const DefaultShards = 64

// maxShards keeps a SCAN cursor (shard, page, slot) within 63 bits, and the
// hash bits that pick a shard apart from those that a table uses.
const maxShards = 1024

// Options of a Keyspace. The zero value is right for a program that keeps its
// limits in its own memory.
type Options struct {
	// Shards is how many locks the keys are spread over: a power of two up to
	// 1,024. 0 means DefaultShards.
	Shards int
	// MaxMemory bounds the bytes of all tables. At the bound, whatever needs
	// more is refused with ErrOOM after full buckets were forgotten; a bucket
	// that is not full is never evicted. 0 means no bound.
	MaxMemory int64
	// Track keeps the set of changed keys that Cut drains. Without it Cut
	// must not be called.
	Track bool
}

// Keyspace holds the state of every key. Make one with New.
type Keyspace struct {
	seed   maphash.Seed
	shift  uint // a hash's top bits, shifted by this, are the shard
	shards []shard
	budget *table.Budget
	track  bool

	latest    atomic.Int64 // latest time of any decision, unix ns
	forgotten atomic.Int64 // units FORCE asked for beyond its bound
	sweepAt   atomic.Uint32

	viewing atomic.Bool     // a Frozen is open
	cutting atomic.Bool     // a Cut is not finished
	flushed [Databases]bool // flushed since the last cut; under all shard locks
}

// shard is one lock and what it guards. Locks are taken in the order of the
// slice when several are needed.
type shard struct {
	mu sync.Mutex

	// Decisions, but for PEEK and cost 0, that allowed and refused: counted
	// here because the lock is held anyway.
	allowed, refused int64

	expired int64 // swept from tables that were flushed since

	tables [Databases]*table.Table // the first ones share the lock's cache line

	_ [32]byte // keeps neighbours' locks off these lines
}

// New makes an empty keyspace. The error wraps ErrOptions.
func New(o Options) (*Keyspace, error) {
	n := o.Shards
	if n == 0 {
		n = DefaultShards
	}
	if n < 1 || n > maxShards || n&(n-1) != 0 {
		return nil, fmt.Errorf("%w: Shards is %d: want a power of two from 1 to %d", ErrOptions, o.Shards, maxShards)
	}
	if o.MaxMemory < 0 {
		return nil, fmt.Errorf("%w: MaxMemory is %d: want bytes, or 0 for no bound", ErrOptions, o.MaxMemory)
	}
	return &Keyspace{
		seed:   maphash.MakeSeed(),
		shift:  uint(64 - bits.Len(uint(n-1))),
		shards: make([]shard, n),
		budget: table.NewBudget(o.MaxMemory),
		track:  o.Track,
	}, nil
}

func (ks *Keyspace) hash(key []byte) uint64 { return maphash.Bytes(ks.seed, key) }

// shardOf picks a shard by the hash's top bits; a shift by 64 (one shard) is 0
// in Go.
func (ks *Keyspace) shardOf(hash uint64) *shard { return &ks.shards[hash>>ks.shift] }

// newTable makes the table of one database in one shard.
func (ks *Keyspace) newTable() *table.Table {
	return table.New(table.Options{Budget: ks.budget, Track: ks.track, Hash: ks.hash})
}

// lockAll takes every shard's lock, in order.
func (ks *Keyspace) lockAll() {
	for i := range ks.shards {
		ks.shards[i].mu.Lock()
	}
}

func (ks *Keyspace) unlockAll() {
	for i := range ks.shards {
		ks.shards[i].mu.Unlock()
	}
}

// Latest is the latest time of any decision, unix ns; 0 before the first.
func (ks *Keyspace) Latest() int64 { return ks.latest.Load() }

// Advance makes latest the latest time seen, if it is later than that: the
// time restored with a state. Decisions from then on happen no earlier.
func (ks *Keyspace) Advance(latest int64) {
	for {
		seen := ks.latest.Load()
		if latest <= seen || ks.latest.CompareAndSwap(seen, latest) {
			return
		}
	}
}

// flush empties the databases from first to last. Every lock must be held.
func (ks *Keyspace) flush(first, last int) {
	for db := first; db <= last; db++ {
		for i := range ks.shards {
			sh := &ks.shards[i]
			if t := sh.tables[db]; t != nil {
				// A cut in progress still reads the table; Close only gives
				// its memory back to the budget.
				t.Close()
				sh.expired += t.Swept()
				sh.tables[db] = nil
			}
		}
		ks.flushed[db] = true
	}
}

// Reset empties everything and forgets the latest time seen, as a fresh
// keyspace would be.
func (ks *Keyspace) Reset() {
	ks.lockAll()
	defer ks.unlockAll()
	ks.flush(0, Databases-1)
	ks.latest.Store(0)
}

// MaxMemory is the bound of memory, bytes; 0 is none.
func (ks *Keyspace) MaxMemory() int64 { return ks.budget.Max() }

// SetMaxMemory changes Options.MaxMemory; what is held already stays.
func (ks *Keyspace) SetMaxMemory(bytes int64) { ks.budget.SetMax(bytes) }

// Sweep forgets buckets that are full again at the latest time seen, in small
// steps: each holds one shard's lock for one page of a table. It reports
// whether the last steps found something, so that the caller goes on sooner.
// No command can see whether a full bucket was swept.
func (ks *Keyspace) Sweep(steps int) (more bool) {
	now := ks.Latest()
	for range steps {
		i := int(ks.sweepAt.Add(1)) & (len(ks.shards) - 1)
		sh := &ks.shards[i]
		sh.mu.Lock()
		for _, t := range sh.tables {
			if t != nil && t.SweepPage(now) > 0 {
				more = true
			}
		}
		sh.mu.Unlock()
	}
	return more
}

// relieve gives the memory of keys that are full at now back to the budget,
// everywhere, a page at a time, and reports whether there was any. With
// nothing to give back it costs a lock and a comparison for each shard.
func (ks *Keyspace) relieve(now int64) bool {
	before := ks.budget.Used()
	for i := range ks.shards {
		for more := true; more; {
			more = ks.shards[i].relieve(now)
		}
	}
	return ks.budget.Used() < before
}

// relieve takes a page or a few of each table, and reports whether any had
// something.
func (sh *shard) relieve(now int64) (more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, t := range sh.tables {
		if t == nil {
			continue
		}
		if t.SweepPage(now) > 0 {
			more = true
		} else {
			t.DropSpares()
		}
	}
	return more
}

// Changed is how many changes stand to be drained by the next Cut: about the
// number of changed and deleted keys and of flushed databases, 0 only if there
// are none.
func (ks *Keyspace) Changed() (n int64) {
	for i := range ks.shards {
		sh := &ks.shards[i]
		sh.mu.Lock()
		if i == 0 {
			n = ks.flushes()
		}
		for _, t := range sh.tables {
			if t != nil {
				n += int64(t.Dirty())
			}
		}
		sh.mu.Unlock()
	}
	return n
}

// flushes is how many databases were flushed since the last cut. A shard must
// be locked.
func (ks *Keyspace) flushes() (n int64) {
	if !ks.track {
		return 0
	}
	for _, f := range ks.flushed {
		if f {
			n++
		}
	}
	return n
}

// Stats is a count of what a keyspace holds.
type Stats struct {
	Keys      [Databases]int64 // keys that are not full, at the time given
	Memory    int64            // bytes of all tables
	MaxMemory int64            // Options.MaxMemory
	Forgotten int64            // units FORCE asked for beyond its bound
	Changed   int64            // as Keyspace.Changed
	Allowed   int64            // decisions of a cost above 0 that allowed, PEEK left out
	Refused   int64            // … that refused
	Expired   int64            // keys that were swept because they were full
}

// Stats counts at time now (unix ns), which does not advance the latest seen.
// Each shard is locked in turn: the sum is not one instant's.
func (ks *Keyspace) Stats(now int64) Stats {
	s := Stats{
		Memory:    ks.budget.Used(),
		MaxMemory: ks.budget.Max(),
		Forgotten: ks.forgotten.Load(),
	}
	now = max(now, ks.Latest())
	for i := range ks.shards {
		sh := &ks.shards[i]
		sh.mu.Lock()
		if i == 0 {
			s.Changed = ks.flushes()
		}
		s.Allowed += sh.allowed
		s.Refused += sh.refused
		s.Expired += sh.expired
		for db, t := range sh.tables {
			if t != nil {
				s.Keys[db] += int64(t.CountLive(now))
				s.Changed += int64(t.Dirty())
				s.Expired += t.Swept()
			}
		}
		sh.mu.Unlock()
	}
	return s
}
