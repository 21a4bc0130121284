package persist

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/persist/internal/boltfile"
)

func closed(t *testing.T, f *Flusher) {
	t.Helper()
	if err := f.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestSavedStateSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	f, k := start(t, dir, still())
	defer closed(t, f)
	for i := range 50 {
		for j := range 20 {
			k.set(fmt.Sprint("key", (i*7+j)%60), uint64(i*j%5))
		}
		if err := f.Save(); err != nil {
			t.Fatal(err)
		}
		got, hdr := peek(t, dir)
		if hdr.sequence != uint64(i+1) {
			t.Fatalf("tick %d of the file, want %d", hdr.sequence, i+1)
		}
		same(t, got, k, i+1)
	}
}

func TestCleanCloseLosesNothing(t *testing.T) {
	dir := t.TempDir()
	f, k := start(t, dir, still())
	k.set("a", 7)
	closed(t, f)
	if err := f.Save(); !errors.Is(err, ErrClosed) {
		t.Fatalf("Save after Close: %v", err)
	}
	if err := f.BackgroundSave(); !errors.Is(err, ErrClosed) {
		t.Fatalf("BackgroundSave after Close: %v", err)
	}
	g, k2 := start(t, dir, still()) // the folder was given back
	defer closed(t, g)
	same(t, k2, k, 1)
}

func TestTickFlushes(t *testing.T) {
	tick := make(chan time.Time)
	o := still()
	o.tick = tick
	dir := t.TempDir()
	f, k := start(t, dir, o)
	defer closed(t, f)
	k.set("a", 1)
	tick <- time.Time{}
	tick <- time.Time{} // taken when the first is done with
	got, _ := peek(t, dir)
	if got.vals["a"] != 1 {
		t.Fatal("a tick wrote nothing")
	}
	if i := f.Info(); i.Flushes < 1 || i.LastKeys != 1 || i.LastBytes == 0 {
		t.Fatalf("figures of a flush of one key: %+v", i)
	}
}

func TestIdleTickWritesNothing(t *testing.T) {
	dir := t.TempDir()
	var clock atomic.Int64
	o := still()
	o.now = func() time.Time { return time.Unix(clock.Add(1), 0) }
	f, k := start(t, dir, o)
	defer closed(t, f)
	k.set("a", 1)
	if err := f.Save(); err != nil {
		t.Fatal(err)
	}
	first := f.Info()
	before, _ := os.ReadFile(filepath.Join(dir, FileName))
	for range 3 {
		if err := f.Save(); err != nil {
			t.Fatal(err)
		}
	}
	after, _ := os.ReadFile(filepath.Join(dir, FileName))
	if !bytes.Equal(before, after) {
		t.Fatal("a save without changes wrote to the file")
	}
	// It is no flush, but all before it is on disk.
	if i := f.Info(); i.Flushes != first.Flushes || i.Flushes != 1 || !i.LastSave.After(first.LastSave) {
		t.Fatalf("after saves without changes: %+v, before: %+v", i, first)
	}
	k.mu.Lock()
	k.latest += 5 // a PEEK: no change but the time
	k.mu.Unlock()
	if err := f.Save(); err != nil {
		t.Fatal(err)
	}
	if got, _ := peek(t, dir); got.latest != k.latest {
		t.Fatalf("the latest time was saved as %d, not %d", got.latest, k.latest)
	}
	if i := f.Info(); i.Flushes != 2 {
		t.Fatalf("%d flushes, and two wrote", i.Flushes)
	}
}

func TestLatestTimeMayGoBack(t *testing.T) {
	dir := t.TempDir()
	f, k := start(t, dir, still())
	defer closed(t, f)
	k.set("a", 1)
	k.latest = 1000
	if err := f.Save(); err != nil {
		t.Fatal(err)
	}
	k.latest = 5 // the debugging command that resets everything
	if err := f.Save(); err != nil {
		t.Fatal(err)
	}
	if got, _ := peek(t, dir); got.latest != 5 {
		t.Fatalf("latest %d after a reset to 5", got.latest)
	}
}

func TestBackgroundSaveWrites(t *testing.T) {
	dir := t.TempDir()
	f, k := start(t, dir, still())
	defer closed(t, f)
	k.set("a", 1)
	for range 3 {
		if err := f.BackgroundSave(); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.After(10 * time.Second)
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for f.Info().Flushes == 0 {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatal("a background save did not happen")
		}
	}
	got, _ := peek(t, dir)
	same(t, got, k, 1)
}

func TestSavesAtOnceAreAnswered(t *testing.T) {
	dir := t.TempDir()
	f, k := start(t, dir, still())
	defer closed(t, f)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 10 {
				key := fmt.Sprint(i, ".", j)
				k.set(key, 1)
				if err := f.Save(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, _ := peek(t, dir)
	if len(got.vals) != 80 {
		t.Fatalf("%d keys saved of 80", len(got.vals))
	}
}

// small makes every mechanism run with a few keys: ticks of several
// transactions, and compactions all the time.
func small() Options {
	o := still()
	o.chunk, o.batch, o.compact = 64, 300, 3000
	return o
}

func TestACrashAtAnyTransactionLeavesTheLastTick(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	rng := rand.New(rand.NewPCG(1, 2))
	var k *fake
	var mu sync.Mutex // the test and the flusher both change
	change := func() {
		mu.Lock()
		defer mu.Unlock()
		for range 1 + rng.IntN(6) {
			k.set(fmt.Sprint("key", rng.IntN(80)), uint64(rng.IntN(4)))
		}
	}
	o := small()
	var images [][]byte
	o.commit = func(do func() error) error {
		if k != nil {
			change() // decisions go on while the file is written
		}
		err := do()
		if b, e := os.ReadFile(path); e == nil {
			images = append(images, b)
		}
		return err
	}
	st, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	k = newFake()
	if _, err := st.load(k); err != nil {
		t.Fatal(err)
	}
	f, err := st.Start()
	if err != nil {
		t.Fatal(err)
	}
	k.onDump = change
	for n := 1; n <= 60 || f.Info().Compactions < 4; n++ {
		if n > 3000 {
			t.Fatal("no compaction comes to its end")
		}
		for range 10 {
			change()
		}
		if err := f.Save(); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, f)
	t.Logf("%d transactions, %d ticks, %+v", len(images), len(k.cuts), f.Info())
	last, based := uint64(0), 0
	for i, b := range images {
		got, hdr := peekBytes(t, b)
		if hdr.sequence < last {
			t.Fatalf("after transaction %d the file is at tick %d, before at %d", i, hdr.sequence, last)
		}
		last = hdr.sequence
		same(t, got, k, int(hdr.sequence))
		if hdr.base.id > 0 {
			based++
		}
		if i%5 != 0 {
			continue
		}
		// Begun again from here, it goes on without harm from what was left.
		again := t.TempDir()
		if err := os.WriteFile(filepath.Join(again, FileName), b, 0o600); err != nil {
			t.Fatal(err)
		}
		g, k2 := start(t, again, small())
		same(t, k2, k, int(hdr.sequence))
		for j := range 100 {
			k2.set(fmt.Sprint("new", j), uint64(i+1))
			if j%30 == 0 {
				if err := g.Save(); err != nil {
					t.Fatal(err)
				}
			}
		}
		closed(t, g)
		k3, _ := peek(t, again)
		same(t, k3, k2, len(k2.cuts))
	}
	if last != uint64(len(k.cuts)) {
		t.Fatalf("the last tick is %d of %d", last, len(k.cuts))
	}
	if based == 0 || based == len(images) {
		t.Fatalf("%d of %d images have a base: the test does not see compaction", based, len(images))
	}
}

func TestCompactionKeepsTheFileBounded(t *testing.T) {
	dir := t.TempDir()
	f, k := start(t, dir, small())
	for i := range 400 {
		for j := range 10 {
			k.set(fmt.Sprint("key", j), uint64(i+1))
		}
		if err := f.Save(); err != nil {
			t.Fatal(err)
		}
		if i := f.Info(); i.LastKeys != 10 || i.LastBytes < 10*9 || i.LastBytes > 1<<10 {
			t.Fatalf("figures of a flush of ten keys: %+v", i)
		}
	}
	closed(t, f)
	i := f.Info()
	if i.Compactions < 10 || i.FileBytes > 256<<10 || i.DeltaBytes > 64<<10 {
		t.Fatalf("after 400 ticks of the same ten keys: %+v", i)
	}
	// The dump at hand may be left when it ends, and a start removes that.
	if n := strays(t, dir); n > 1 {
		t.Fatalf("%d buckets are left of what was compacted away", n)
	}
	g, _ := start(t, dir, still())
	closed(t, g)
	if n := strays(t, dir); n > 0 {
		t.Fatalf("%d buckets are left after a start", n)
	}
}

// strays counts the buckets that the header does not refer to.
func strays(t *testing.T, dir string) int {
	t.Helper()
	r, err := openReader(filepath.Join(dir, FileName), false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	found := map[string]bool{}
	err = r.bolt.Scan(func(bucket, _ []byte, _ boltfile.Value) error {
		if !r.hdr.refers(string(bucket)) {
			found[string(bucket)] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// trouble is a disk that can fail: before the write, after it (the write
// reached the disk, its confirmation did not come), or by a breakdown.
type trouble struct{ mode atomic.Int32 }

const (
	fine = iota
	failBefore
	failAfter
	breakDown
)

var errDisk = errors.New("no space left on device")

func (d *trouble) commit(do func() error) (err error) {
	defer trap(&err)
	switch d.mode.Load() {
	case failBefore:
		return errDisk
	case failAfter:
		return errors.Join(do(), errDisk)
	case breakDown:
		panic("breakdown")
	}
	return do()
}

func TestAFailedWriteIsSurvived(t *testing.T) {
	for mode, name := range map[int32]string{failBefore: "before", failAfter: "after", breakDown: "panic"} {
		t.Run(name, func(t *testing.T) {
			var disk trouble
			var log bytes.Buffer
			var clock atomic.Int64
			clock.Store(1e18)
			o := small()
			o.commit = disk.commit
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			o.now = func() time.Time { return time.Unix(0, clock.Load()) }
			dir := t.TempDir()
			f, k := start(t, dir, o)
			k.set("before", 1)
			if err := f.Save(); err != nil {
				t.Fatal(err)
			}
			disk.mode.Store(mode)
			for i := range 20 {
				clock.Add(int64(time.Second))
				for j := range 40 {
					k.set(fmt.Sprint("key", j), uint64(i+1)) // decisions go on
				}
				if err := f.Save(); err == nil {
					t.Fatal("a save that failed says it did not")
				}
				if got := f.Info(); got.Failing != int64(i+1) || got.LastError == "" || got.Failures != int64(i+1) {
					t.Fatalf("after %d failures: %+v", i+1, got)
				}
				if f.LastSave().UnixNano() != 1e18 {
					t.Fatal("a failed save counts as one")
				}
			}
			if n := strings.Count(log.String(), "could not be written"); n != 2 {
				t.Fatalf("%d lines in 20 seconds of failures, want one at once and one in ten seconds:\n%s", n, &log)
			}
			disk.mode.Store(fine)
			k.set("key1", 0)
			k.set("after", 1)
			if err := f.Save(); err != nil {
				t.Fatal(err)
			}
			if got := f.LastSave().UnixNano(); got != 1e18+20e9 {
				t.Fatalf("the last save is of %d", got)
			}
			if got := f.Info(); got.Failing != 0 || got.Failures != 20 {
				t.Fatalf("after the recovery: %+v", got)
			}
			if !strings.Contains(log.String(), "written again") {
				t.Fatalf("the recovery is not logged:\n%s", &log)
			}
			got, _ := peek(t, dir)
			same(t, got, k, len(k.cuts))
			closed(t, f)
			got, _ = peek(t, dir)
			same(t, got, k, len(k.cuts))
		})
	}
}

// TestAnyFailureLeavesTheLastTick lets the disk fail at random, in ticks,
// dumps and deletions alike.
func TestAnyFailureLeavesTheLastTick(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var disk trouble
	var calls atomic.Int64
	o := small()
	o.commit = func(do func() error) error {
		if calls.Add(1) > 2 { // not the creation
			disk.mode.Store(int32([]int{fine, fine, fine, failBefore, failAfter, breakDown}[rng.IntN(6)]))
		}
		return disk.commit(do)
	}
	dir := t.TempDir()
	f, k := start(t, dir, o)
	saved := 0
	for n := 1; n < 600; n++ {
		for range 20 {
			k.set(fmt.Sprint("key", n*31%50), uint64(n%4))
			k.set(fmt.Sprint("other", n), 1)
		}
		if f.Save() == nil {
			saved++
		}
	}
	if saved < 100 || f.Info().Failures < 50 || f.Info().Compactions < 2 {
		t.Fatalf("%d saves succeeded: %+v", saved, f.Info())
	}
	closed(t, f)
	got, hdr := peek(t, dir)
	if hdr.sequence > uint64(len(k.cuts)) {
		t.Fatalf("tick %d of %d cuts", hdr.sequence, len(k.cuts))
	}
	same(t, got, k, len(k.cuts))
}

func TestAFailedTickNeverShowsHalfOfIt(t *testing.T) {
	dir := t.TempDir()
	calls := 0
	o := small()
	o.compact = 1 << 30
	o.commit = func(do func() error) error {
		if calls++; calls == 5 { // creation, start, tick, tick of several transactions
			return errDisk
		}
		return do()
	}
	f, k := start(t, dir, o)
	k.set("a", 1)
	if err := f.Save(); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		k.set(fmt.Sprint("key", i), 1)
	}
	if err := f.Save(); err == nil {
		t.Fatal("the fifth transaction failed and the save did not")
	}
	got, hdr := peek(t, dir)
	if hdr.sequence != 1 {
		t.Fatalf("tick %d counts", hdr.sequence)
	}
	same(t, got, k, 1)
	if err := f.Save(); err != nil {
		t.Fatal(err)
	}
	closed(t, f)
	got, _ = peek(t, dir)
	same(t, got, k, len(k.cuts))
}

func TestCloseEndsWithItsContext(t *testing.T) {
	var disk trouble
	o := small()
	o.commit = disk.commit
	dir := t.TempDir()
	f, k := start(t, dir, o)
	k.set("a", 1)
	disk.mode.Store(failBefore)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := f.Close(ctx)
	if err == nil || !strings.Contains(err.Error(), "lost") {
		t.Fatalf("closed without its last flush: %v", err)
	}
	g, _ := start(t, dir, still()) // the folder was given back all the same
	closed(t, g)
}

func TestCloseRetriesTheLastFlush(t *testing.T) {
	var calls atomic.Int64
	o := still()
	o.commit = func(do func() error) error {
		if n := calls.Add(1); n > 2 && n < 6 {
			return errDisk
		}
		return do()
	}
	dir := t.TempDir()
	f, k := start(t, dir, o)
	k.set("a", 1)
	closed(t, f)
	got, _ := peek(t, dir)
	if got.vals["a"] != 1 {
		t.Fatal("the last flush was not repeated")
	}
}
