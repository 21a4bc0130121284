package persist

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/engine/limit"
)

// recorder is an engine that notes what every cut must hold, and is written to
// while it is dumped.
type recorder struct {
	engineKeyspace
	cuts   []string
	change func()
}

func (r *recorder) Cut() cut {
	r.cuts = append(r.cuts, content(r.Keyspace))
	return r.engineKeyspace.Cut()
}

func (r *recorder) Dump() dump { return &recordedDump{r, r.engineKeyspace.Dump()} }

type recordedDump struct {
	r *recorder
	dump
}

func (d *recordedDump) Append(dst []byte, max int) ([]byte, bool) {
	d.r.change()
	return d.dump.Append(dst, max)
}

// TestACrashAtAnyTransactionLeavesTheLastCut runs a real engine through
// decisions of all kinds, deletions, flushed databases, and buckets that are
// full again and swept, while its file is written, fails and is compacted. The
// file as it is after each transaction must load as one cut was.
func TestACrashAtAnyTransactionLeavesTheLastCut(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { crash(t, seed) })
	}
}

func crash(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(7, seed))
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	ks := newKeyspace(t)
	r := &recorder{engineKeyspace: engineKeyspace{ks}}
	now := t0
	var mu sync.Mutex // the test and the flusher both change
	r.change = func() {
		mu.Lock()
		defer mu.Unlock()
		tx := ks.Begin(now)
		defer tx.End()
		for range 1 + rng.IntN(5) {
			now += rng.Int64N(int64(time.Second))
			ks.BeginInto(tx, now)
			tx.Select(uint8(rng.IntN(2)))
			key := fmt.Appendf(nil, "key%d", rng.IntN(60))
			second := int64(time.Second)
			switch rng.IntN(12) {
			case 0, 1, 2, 3:
				_, _ = tx.Throttle(key, limit.BucketLimit{Capacity: 50, Rate: rate(1, second)}, 1+rng.Int64N(20), limit.Consume)
			case 4, 5:
				_, _ = tx.Throttle(key, limit.BucketLimit{Capacity: 500, Rate: rate(1, 60*second)}, 1+rng.Int64N(20), limit.AtMost)
			case 6:
				_, _ = tx.Window(limit.KindFixed, key, limit.WindowLimit{Limit: 10, Period: 30 * second}, 1, limit.Consume)
			case 7, 8:
				_, _ = tx.Window(limit.KindLog, key, limit.WindowLimit{Limit: 20, Period: 60 * second}, 1, limit.Consume)
			case 9, 10:
				tx.Delete(key)
			case 11:
				if rng.IntN(20) == 0 {
					tx.FlushDB()
				}
			}
			tx.End()
		}
		if rng.IntN(3) == 0 {
			for ks.Sweep(1000) {
			}
		}
	}
	var images [][]byte
	calls := 0
	o := small()
	o.commit = func(do func() error) error {
		calls++
		trouble := fine
		if calls > 2 {
			r.change()
			mu.Lock()
			trouble = rng.IntN(12)
			mu.Unlock()
		}
		if trouble == failBefore {
			return errDisk
		}
		err := do()
		if b, e := os.ReadFile(path); e == nil {
			images = append(images, b)
		}
		if err == nil && trouble == failAfter {
			return errDisk
		}
		return err
	}
	st, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.load(r); err != nil {
		t.Fatal(err)
	}
	f, err := st.Start()
	if err != nil {
		t.Fatal(err)
	}
	// An idle cut makes no tick, and that would break the count: each has a
	// decision of its own.
	for n := 1; n <= 150 || f.Info().Compactions < 3; n++ {
		if n > 3000 {
			t.Fatal("no compaction comes to its end")
		}
		mu.Lock()
		now += int64(time.Second)
		tx := ks.Begin(now)
		if _, err := tx.Throttle([]byte("each"), limit.BucketLimit{Capacity: 1e6, Rate: rate(1, int64(time.Hour))}, 1, limit.Consume); err != nil {
			t.Fatal(err)
		}
		tx.End()
		mu.Unlock()
		_ = f.Save() // some fail
	}
	done := len(r.cuts)
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	for i, b := range images {
		image := filepath.Join(t.TempDir(), FileName)
		if err := os.WriteFile(image, b, 0o600); err != nil {
			t.Fatal(err)
		}
		rd, err := openReader(image, false)
		if err != nil {
			t.Fatal(err)
		}
		seq := rd.hdr.sequence
		rd.Close()
		if seq < last || seq > uint64(len(r.cuts)) {
			t.Fatalf("image %d: tick %d after %d, of %d", i, seq, last, len(r.cuts))
		}
		last = seq
		want := "latest 0"
		if seq > 0 {
			want = r.cuts[seq-1]
		}
		got, err := loads(t, image)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("image %d of %d, tick %d: loaded\n%s\nwant\n%s", i, len(images), seq, got, want)
		}
	}
	if last < uint64(done) {
		t.Fatalf("the file ends at tick %d, and %d were cut", last, done)
	}
	t.Logf("%d transactions, %d ticks, %+v", len(images), last, f.Info())
}
