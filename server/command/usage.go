package command

import (
	"math/bits"
	"sync/atomic"
)

// usages counts how often each command was run and how long it took, for INFO
// commandstats and LATENCY HISTOGRAM. The zero value is ready; any number of
// goroutines may use one.
//
// Connections are spread over shards, so that two processors seldom write to
// the same memory. What a shard keeps of a command is made when it is first
// run: most servers use ten commands of a hundred.
type usages struct {
	shards [usageShards]usageShard
}

// usageShards is a power of two, a few times the processors of most machines.
const usageShards = 32

// usageShard has one entry for each command of the table, by its index. It is
// nil until a connection of the shard is made.
type usageShard struct {
	of atomic.Pointer[[]atomic.Pointer[use]]
}

// use is what one shard counts of one command. Each call is in times, in the
// bucket of its time: their sum is the number of calls.
type use struct {
	times    [timeBuckets]atomic.Int64
	ns       atomic.Int64 // in all
	failed   atomic.Int64 // calls that replied an error
	rejected atomic.Int64 // refused before they were run: these are no calls
}

// shard is the shard of a connection.
func (u *usages) shard(id uint64) *usageShard {
	s := &u.shards[id%usageShards]
	if s.of.Load() == nil {
		room := make([]atomic.Pointer[use], len(commands.all))
		s.of.CompareAndSwap(nil, &room) // of two goroutines, one is first
	}
	return s
}

// use returns the entry of the command with that index.
func (s *usageShard) use(cmd int32) *use {
	entry := &(*s.of.Load())[cmd]
	if u := entry.Load(); u != nil {
		return u
	}
	entry.CompareAndSwap(nil, new(use))
	return entry.Load()
}

// add counts n calls of the command that took share ns each.
func (s *usageShard) add(cmd int32, n, share int64) {
	u := s.use(cmd)
	u.times[timeBucket(share)].Add(n)
	u.ns.Add(n * share)
}

// reset forgets everything. What is counted in the same moment may be lost.
func (u *usages) reset() {
	for i := range u.shards {
		of := u.shards[i].of.Load()
		if of == nil {
			continue
		}
		// Set to zero and not taken away: whoever is about to count holds it.
		for j := range *of {
			if e := (*of)[j].Load(); e != nil {
				for b := range e.times {
					e.times[b].Store(0)
				}
				e.ns.Store(0)
				e.failed.Store(0)
				e.rejected.Store(0)
			}
		}
	}
}

// used is the sum of one command over all shards.
type used struct {
	calls, ns, failed, rejected int64
	times                       [timeBuckets]int64
}

// of sums what was counted of the command with that index.
func (u *usages) of(cmd int32) used {
	var sum used
	for i := range u.shards {
		of := u.shards[i].of.Load()
		if of == nil {
			continue
		}
		e := (*of)[cmd].Load()
		if e == nil {
			continue
		}
		sum.ns += e.ns.Load()
		sum.failed += e.failed.Load()
		sum.rejected += e.rejected.Load()
		for b := range e.times {
			n := e.times[b].Load()
			sum.times[b] += n
			sum.calls += n
		}
	}
	return sum
}

// Times are kept in buckets of 1, 2, 4, 8 … ns, each cut into eight: a time is
// known to an eighth of itself. The last bucket, from two minutes on, has all that
// take longer.
const (
	timeSub     = 8
	timeBuckets = 34*timeSub + timeSub
)

// timeBucket is the bucket of a time in ns, from 0.
func timeBucket(ns int64) int {
	v := uint64(max(ns, 0))
	if v < 2*timeSub {
		return int(v)
	}
	e := bits.Len64(v) - 4 // v>>e is 8 to 15
	return min(e*timeSub+int(v>>e), timeBuckets-1)
}

// bucketEnd is the longest time in ns that falls into the bucket; the last one
// has longer ones too.
func bucketEnd(bucket int) int64 {
	if bucket < 2*timeSub {
		return int64(bucket)
	}
	e := bucket/timeSub - 1
	return int64(bucket%timeSub+timeSub+1)<<e - 1
}

// quantile is a time in ns that the part q of all calls, 0 to 1, did not
// exceed: the end of its bucket, so it may be an eighth too long, never short.
func (u *used) quantile(q float64) int64 {
	rank := max(int64(q*float64(u.calls)+0.999999), 1)
	for b, n := range u.times {
		if rank -= n; n > 0 && rank <= 0 {
			return bucketEnd(b)
		}
	}
	return 0
}
