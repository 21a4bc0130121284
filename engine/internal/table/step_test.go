package table

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stint-dev/stint/engine/limit"
)

// No call does work that grows with the table: filling one, as large as a shard
// of a keyspace of ten million keys is, and emptying it by sweeping. What is
// bounded is counted; the longest times are only shown.
func TestNoCallIsLong(t *testing.T) {
	const keys = 10_000_000 / 64
	seen := 0
	hash := func(b []byte) uint64 { return mix(binary.LittleEndian.Uint64(b)) }
	x := New(Options{Track: true, Hash: hash})
	key := make([]byte, 14)
	v := limit.Value{Kind: limit.KindBucket, Limit: limit.Params{A: 10, B: 1, C: 1_000_000_000}, W: [3]int64{1 << 60}}
	var longest time.Duration
	call := func(f func()) {
		moved, dir := x.index.moved, len(x.index.dir)
		begin := time.Now()
		f()
		longest = max(longest, time.Since(begin))
		// A segment is placed anew when it grows or splits, two when they merge
		// and shrink.
		if n := x.index.moved - moved; n > 2*segmentFull {
			t.Fatalf("%d entries were moved by one call", n)
		}
		// The directory is the only thing that doubles.
		if n := len(x.index.dir); n != dir && n > 1024 {
			t.Fatalf("the directory of %d entries became one of %d", dir, n)
		}
	}
	for i := range uint64(keys) {
		binary.LittleEndian.PutUint64(key, i)
		call(func() {
			if err := x.Put(hash(key), key, NoRef, &v); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Logf("%d keys, longest insertion %v", keys, longest)
	longest = 0
	call(x.Cut)
	t.Logf("the cut of them took %v", longest)
	longest = 0
	for more := true; more; {
		call(func() {
			more = x.DrainSome(128, func([]byte, *limit.Value) { seen++ }, func(_, _ []byte) {}, func([]byte) {})
		})
	}
	t.Logf("%d drained, longest step of 128: %v", seen, longest)
	if seen != keys {
		t.Fatalf("%d of %d keys were drained", seen, keys)
	}
	// A step of a sweep empties a page, and each of its records may make two
	// segments one. That moves few, as both are sparse.
	longest = 0
	most := 0
	for x.Len() > 0 {
		moved := x.index.moved
		begin := time.Now()
		freed := x.SweepPage(math.MaxInt64)
		longest = max(longest, time.Since(begin))
		most = max(most, x.index.moved-moved)
		if freed > pageBytes/32 || most > 20*segmentFull {
			t.Fatalf("%d records were freed by one step, and %d entries moved", freed, most)
		}
	}
	t.Logf("longest step of a sweep %v, most entries moved by one %d", longest, most)
	if x.Swept() != keys {
		t.Fatalf("%d of %d keys were swept", x.Swept(), keys)
	}
}

// mix spreads a number over 64 bits (the end of splitmix64).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
