package persist

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// asking is a keyspace that needs the Flusher's lock to count.
type asking struct {
	keyspace
	f *Flusher
}

func (a asking) Changed() int64 {
	a.f.LastSave()
	return a.keyspace.Changed()
}

func TestInfoHoldsNoLockWhileTheEngineCounts(t *testing.T) {
	f, k := start(t, t.TempDir(), still())
	defer closed(t, f)
	k.set("a", 1)
	f.ks = asking{k, f} // Info's alone by now
	within(t, "Info", func() {
		if i := f.Info(); i.Changed != 1 {
			t.Errorf("%d changes, want 1", i.Changed)
		}
	})
}

// until saves until a condition holds.
func until(t *testing.T, f *Flusher, what string, holds func(Info) bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(f.Info()); {
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s: %+v", what, f.Info())
		}
		must(t, f.Save())
	}
}

// TestABaseThatFailsIsFailing lets the disk fail in nothing but dumps: idle
// flushes between them must not say that all is well.
func TestABaseThatFailsIsFailing(t *testing.T) {
	var log bytes.Buffer
	var clock atomic.Int64
	var flusher atomic.Pointer[Flusher]
	var fail atomic.Bool
	o := small()
	o.now = func() time.Time { return time.Unix(clock.Add(int64(logEvery/time.Second)), 0) } // each line is due
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	o.commit = func(do func() error) error {
		if f := flusher.Load(); f != nil && fail.Load() && !f.Info().Saving {
			return errDisk
		}
		return do()
	}
	f, k := start(t, t.TempDir(), o)
	flusher.Store(f)
	fail.Store(true)
	for i := range 200 {
		k.set(fmt.Sprint("key", i), uint64(i+1))
	}
	until(t, f, "a dump fails", func(i Info) bool { return i.Failing > 0 })
	seen, asked := f.Info().Failures, int64(0)
	until(t, f, "it fails again and again", func(i Info) bool {
		if i.Failing != i.Failures || !strings.Contains(i.LastError, "new base") {
			t.Fatalf("well, but for the base: %+v", i)
		}
		// It is tried once after each flush, and not all the time.
		if asked++; i.Failures > seen+asked {
			t.Fatalf("%d more failures after %d saves", i.Failures-seen, asked-1)
		}
		return i.Failures > seen+5
	})
	fail.Store(false)
	until(t, f, "the base is written", func(i Info) bool { return i.Failing == 0 && i.Compactions > 0 })
	closed(t, f)
	if n := strings.Count(log.String(), "is written again"); n != 1 {
		t.Fatalf("%d lines say that all is well again, want 1:\n%s", n, &log)
	}
}
