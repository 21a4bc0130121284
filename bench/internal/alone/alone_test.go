package alone

import (
	"context"
	"errors"
	"testing"
)

func TestKeysAreLiveAndDistinct(t *testing.T) {
	f, err := New(3000)
	if err != nil {
		t.Fatal(err)
	}
	tx := f.space.Begin(f.now)
	defer tx.End()
	if n := tx.Count(); n != 3000 || len(f.plain) != 3000 {
		t.Fatalf("%d buckets and %d map entries of 3000 keys", n, len(f.plain))
	}
	if f.setKey(1234); string(f.key[:]) != "k:000000001234" {
		t.Fatalf("key %q", f.key[:])
	}
	if f.Lookup(10); f.sum == 0 {
		t.Fatal("ten lookups found nothing")
	}
}

func TestDecisionsDoNotAllocate(t *testing.T) {
	f, err := New(2000)
	if err != nil {
		t.Fatal(err)
	}
	if allocs := testing.AllocsPerRun(10, func() { err = errors.Join(err, f.Decide(100, Hot), f.Decide(100, 2000), f.DecideAnnounced(100)) }); allocs > 0 || err != nil {
		t.Fatalf("%v allocations in 300 decisions, %v", allocs, err)
	}
}

func TestMeasureGivesEveryRoundItsFigures(t *testing.T) {
	list, err := Measure(context.Background(), 500, 3)
	if err != nil || len(list) != 3 {
		t.Fatalf("%d rounds, %v", len(list), err)
	}
	for _, r := range list {
		if r.MapLookup <= 0 || r.RandomKeys <= 0 || r.HotKeys <= 0 || r.Announced <= 0 || r.Pure <= 0 {
			t.Errorf("%+v", r)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Measure(ctx, 500, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

const million = 1_000_000

func BenchmarkMapLookup(b *testing.B) {
	f, err := New(million)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	f.Lookup(b.N)
}

func BenchmarkRandomKeys(b *testing.B) { benchmarkDecide(b, million) }

func BenchmarkHotKeys(b *testing.B) { benchmarkDecide(b, Hot) }

func benchmarkDecide(b *testing.B, among uint64) {
	f, err := New(million)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := f.Decide(b.N, among); err != nil {
		b.Fatal(err)
	}
}
