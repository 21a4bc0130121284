package persist

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// must fails the test on the error of a step that is not what it is about.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// holds fails unless the file holds what the last cut saw, once nothing more is
// being written to it.
func holds(t *testing.T, f *Flusher, k *fake, dir string) *header {
	t.Helper()
	for f.Info().Compacting {
		must(t, f.Save())
	}
	got, hdr := peek(t, dir)
	same(t, got, k, len(k.cuts))
	return hdr
}

// some changes a few dozen keys.
func some(k *fake, round int) {
	for i := range 40 {
		k.set(fmt.Sprint("key", i), uint64((i+round)%5))
		k.set(fmt.Sprint("round", round, ".", i), 1)
	}
}

// TestARemovedStateIsWrittenAnew removes the file, the folder or the lock
// while the state is kept there, in every state that a Flusher can be in.
func TestARemovedStateIsWrittenAnew(t *testing.T) {
	removals := map[string]func(dir string) error{
		"file": func(dir string) error {
			path := filepath.Join(dir, FileName)
			return errors.Join(os.Remove(path), os.WriteFile(path+newSuffix, []byte("half"), 0o600))
		},
		"moved":  func(dir string) error { return os.Rename(filepath.Join(dir, FileName), filepath.Join(dir, "away")) },
		"folder": os.RemoveAll,
		"folder moved": func(dir string) error {
			return os.Rename(dir, dir+"-away")
		},
		"folder emptied": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) },
		"lock":           func(dir string) error { return os.Remove(filepath.Join(dir, lockName)) },
	}
	for name, remove := range removals {
		for _, state := range []string{"idle", "changed", "failed", "abandoned", "dumping"} {
			t.Run(name+" "+state, func(t *testing.T) {
				var log bytes.Buffer
				var disk trouble
				o := small()
				o.commit = disk.commit
				o.Logger = slog.New(slog.NewTextHandler(&log, nil))
				if state != "dumping" {
					o.compact = 1 << 30
				}
				dir := filepath.Join(t.TempDir(), "a", "state")
				f, k := start(t, dir, o)
				for i := range 4 {
					some(k, i)
					must(t, f.Save())
				}
				switch state {
				case "changed":
					some(k, 5)
				case "failed", "abandoned": // a cut is unfinished, the file is closed
					some(k, 5)
					disk.mode.Store(map[string]int32{"failed": failAfter, "abandoned": failBefore}[state])
					if f.Save() == nil {
						t.Fatal("the write did not fail")
					}
					disk.mode.Store(fine)
					k.set("key7", 0)
				}
				must(t, remove(dir))
				must(t, f.Save())
				holds(t, f, k, dir)
				if name != "lock" && !strings.Contains(log.String(), "level=ERROR") {
					t.Errorf("the log is not loud:\n%s", &log)
				}
				if name == "lock" && !strings.Contains(log.String(), "level=WARN") {
					t.Errorf("the log does not tell:\n%s", &log)
				}
				if i := f.Info(); i.Failing != 0 || i.Changed != 0 {
					t.Errorf("after everything was saved: %+v", i)
				}
				// The folder is held as before.
				if _, err := Open(dir, still()); !errors.Is(err, ErrLocked) {
					t.Errorf("the new folder can be used by a second process: %v", err)
				}
				for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, FileName): 0o600, filepath.Join(dir, lockName): 0o600} {
					if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
						t.Errorf("%s: %v, %v, want mode %o", path, info.Mode(), err, want)
					}
				}
				if _, err := os.Stat(filepath.Join(dir, FileName+newSuffix)); err == nil {
					t.Error("the unfinished name is left")
				}
				// And it goes on: changes, removals and another removal.
				some(k, 9)
				k.set("key3", 0)
				must(t, f.Save())
				holds(t, f, k, dir)
				must(t, os.RemoveAll(dir))
				k.set("last", 1)
				closed(t, f)
				g, k2 := start(t, dir, still())
				same(t, k2, k, len(k.cuts))
				closed(t, g)
			})
		}
	}
}

// TestWhatTakesThePlaceOfTheStateIsNotTouched fails when a flush writes to
// something else than the file that it has written before, or says that it
// succeeded while a restart would find something else.
func TestWhatTakesThePlaceOfTheStateIsNotTouched(t *testing.T) {
	read := func(t *testing.T, path string) []byte {
		b, err := os.ReadFile(path)
		must(t, err)
		return b
	}
	swap := func(b []byte) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			must(t, os.WriteFile(path+".tmp", b, 0o600))
			must(t, os.Rename(path+".tmp", path))
		}
	}
	other := t.TempDir()
	g, _ := start(t, other, still())
	closed(t, g)
	foreign := read(t, filepath.Join(other, FileName))
	for name, c := range map[string]struct {
		put  func(t *testing.T, path string, old []byte)
		keep bool // it has content to compare
	}{
		"another state":   {func(t *testing.T, path string, _ []byte) { swap(foreign)(t, path) }, true},
		"text":            {func(t *testing.T, path string, _ []byte) { swap([]byte("notes"))(t, path) }, true},
		"an older copy":   {func(t *testing.T, path string, old []byte) { swap(old)(t, path) }, true},
		"the newest copy": {func(t *testing.T, path string, _ []byte) { swap(read(t, path))(t, path) }, true},
		"a copy over it":  {func(t *testing.T, path string, old []byte) { must(t, os.WriteFile(path, old, 0o600)) }, true},
		"another over it": {func(t *testing.T, path string, _ []byte) { must(t, os.WriteFile(path, foreign, 0o600)) }, true},
		"text over it":    {func(t *testing.T, path string, _ []byte) { must(t, os.WriteFile(path, []byte("notes"), 0o600)) }, true},
		"nothing over it": {func(t *testing.T, path string, _ []byte) { must(t, os.Truncate(path, 0)) }, true},
		"half of it":      {func(t *testing.T, path string, old []byte) { must(t, os.Truncate(path, int64(len(old)/2))) }, true},
		"a folder": {func(t *testing.T, path string, _ []byte) {
			must(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700)))
		}, false},
		"a link to itself": {func(t *testing.T, path string, _ []byte) {
			must(t, errors.Join(os.Remove(path), os.Symlink(path, path)))
		}, false},
		"a link to nothing": {func(t *testing.T, path string, _ []byte) {
			must(t, errors.Join(os.Remove(path), os.Symlink(path+".none", path)))
		}, false},
	} {
		for _, failed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " failed before: ", failed), func(t *testing.T) {
				var disk trouble
				o := small()
				o.compact = 1 << 30
				o.commit = disk.commit
				dir := t.TempDir()
				path := filepath.Join(dir, FileName)
				f, k := start(t, dir, o)
				some(k, 0)
				must(t, f.Save())
				old := read(t, path)
				some(k, 1)
				must(t, f.Save())
				if failed { // after which the file is opened anew
					disk.mode.Store(failBefore)
					some(k, 2)
					if f.Save() == nil {
						t.Fatal("the write did not fail")
					}
					disk.mode.Store(fine)
				}
				c.put(t, path, old)
				before, _ := os.ReadFile(path)
				for i := range 3 {
					err := f.Save()
					if err == nil {
						t.Fatal("a save to what is not the state file says it succeeded")
					}
					if c.keep && (!errors.Is(err, ErrReplaced) && !errors.Is(err, ErrForeign) && !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "move")) {
						t.Fatalf("no sentence with advice: %v", err)
					}
					if got := f.Info(); c.keep && !failed && got.Changed < k.Count() {
						t.Fatalf("%d unsaved changes while %d keys are on no disk", got.Changed, k.Count())
					}
					some(k, 3+i)
				}
				if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
					t.Fatal("it was written to")
				}
				if _, err := os.Lstat(path); err != nil {
					t.Fatalf("it was removed: %v", err)
				}
				if _, err := os.Lstat(path + ".none"); err == nil {
					t.Fatal("a file was made where a broken link leads")
				}
				// Advice that is followed helps.
				must(t, os.Rename(path, path+".away"))
				must(t, f.Save())
				holds(t, f, k, dir)
				// A clean stop that cannot save says so.
				c.put(t, path, old)
				k.set("last", 1)
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				if err := f.Close(ctx); err == nil || !strings.Contains(err.Error(), "lost") || !strings.Contains(err.Error(), path) {
					t.Fatalf("closed without the last change: %v", err)
				}
			})
		}
	}
}

// TestAFileThatChangesBeforeItIsUsedIsRefused swaps the file between the steps
// of a start.
func TestAFileThatChangesBeforeItIsUsedIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	f, k := start(t, dir, still())
	some(k, 0)
	closed(t, f)
	swap := func() { // for a copy with every byte the same
		b, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(path+".copy", b, 0o600))
		must(t, os.Rename(path+".copy", path))
	}
	st, err := Open(dir, still())
	must(t, err)
	defer st.Close()
	must(t, second(st.load(newFake())))
	swap()
	if _, err := st.load(newFake()); !errors.Is(err, ErrReplaced) {
		t.Errorf("loaded another file than was opened: %v", err)
	}
	if _, err := st.Start(); !errors.Is(err, ErrReplaced) {
		t.Errorf("started with another file than was loaded: %v", err)
	}
}

// TestAWriteThatFailedAndIsThereIsRecognized leaves the transaction on the disk
// of which bbolt said that it failed.
func TestAWriteThatFailedAndIsThereIsRecognized(t *testing.T) {
	st, err := Open(t.TempDir(), still())
	must(t, err)
	defer st.Close()
	before := st.known
	must(t, st.write(st.hdr, change{}))
	after := st.known
	st.abandon()
	st.known, st.tried = before, after
	must(t, st.write(st.hdr, change{}))
	st.abandon()
	st.known, st.tried = before, after
	if err := st.write(st.hdr, change{}); !errors.Is(err, ErrReplaced) {
		t.Fatalf("a file with a transaction of nobody's was written to: %v", err)
	}
}

// TestARemovalWhileItIsWrittenIsNotASuccess removes the file after the check
// before a transaction.
func TestARemovalWhileItIsWrittenIsNotASuccess(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	o := small()
	var remove atomic.Bool
	o.commit = func(do func() error) error {
		err := do()
		if remove.CompareAndSwap(true, false) {
			err = errors.Join(err, os.Remove(path))
		}
		return err
	}
	f, k := start(t, dir, o)
	some(k, 0)
	must(t, f.Save())
	remove.Store(true)
	k.set("a", 7)
	if err := f.Save(); !errors.Is(err, errGone) {
		t.Fatalf("a save to a file that is gone: %v", err)
	}
	if i := f.Info(); i.Changed < k.Count() || i.Failing != 1 {
		t.Fatalf("with nothing on disk and %d keys: %+v", k.Count(), i)
	}
	must(t, f.Save())
	holds(t, f, k, dir)
	closed(t, f)
}

// TestAFailureWhileTheStateIsWrittenAnewIsSurvived lets each transaction after
// a removal fail in turn.
func TestAFailureWhileTheStateIsWrittenAnewIsSurvived(t *testing.T) {
	for _, mode := range []int32{failBefore, failAfter, breakDown} {
		for nth := 1; ; nth++ {
			var disk trouble
			var calls, failures atomic.Int64 // the flusher counts
			var armed atomic.Bool
			o := small()
			o.commit = func(do func() error) error {
				disk.mode.Store(fine)
				if armed.Load() && calls.Add(1) == int64(nth) {
					failures.Add(1)
					disk.mode.Store(mode)
				}
				return disk.commit(do)
			}
			dir := filepath.Join(t.TempDir(), "state")
			f, k := start(t, dir, o)
			for i := range 3 {
				some(k, i)
				must(t, f.Save())
			}
			holds(t, f, k, dir) // and no dump goes on that could be what fails
			must(t, os.RemoveAll(dir))
			armed.Store(true)
			err := f.Save()
			if failures.Load() > 0 {
				if err == nil {
					t.Fatalf("transaction %d failed, and the save did not", nth)
				}
				if i := f.Info(); i.Changed < int64(len(k.vals)) && nth < 5 {
					t.Fatalf("transaction %d failed: %d unsaved changes of %d keys", nth, i.Changed, len(k.vals))
				}
				k.set("key1", 99)
				k.set("key2", 0)
				must(t, f.Save())
			} else {
				must(t, err)
			}
			armed.Store(false)
			holds(t, f, k, dir)
			closed(t, f)
			got, _ := peek(t, dir)
			same(t, got, k, len(k.cuts))
			if failures.Load() == 0 {
				if nth < 6 {
					t.Fatalf("all is written in %d transactions: the test sees too little", nth)
				}
				break
			}
		}
	}
}

// TestRemovalsAndFailuresInAnyOrder does both at random, while dumps go on.
func TestRemovalsAndFailuresInAnyOrder(t *testing.T) {
	rng, luck := rand.New(rand.NewPCG(5, 6)), rand.New(rand.NewPCG(7, 8)) // the second is the flusher's
	dir := filepath.Join(t.TempDir(), "state")
	var disk trouble
	o := small()
	o.commit = func(do func() error) error {
		disk.mode.Store(int32([]int{fine, fine, fine, fine, fine, failBefore, failAfter, breakDown}[luck.IntN(8)]))
		return disk.commit(do)
	}
	var f *Flusher
	var k *fake
	for f == nil { // the disk may fail at the start too
		st, err := Open(dir, o)
		if err != nil {
			continue
		}
		k = newFake()
		must(t, second(st.load(k)))
		if f, err = st.Start(); err != nil {
			f = nil
			must(t, st.Close())
		}
	}
	saved, removed := 0, 0
	for n := range 600 {
		for range 20 {
			k.set(fmt.Sprint("key", rng.IntN(60)), uint64(n%4))
		}
		if n%7 == 0 {
			removed++
			must(t, []func() error{
				func() error { return os.RemoveAll(dir) },
				func() error { return os.RemoveAll(filepath.Join(dir, FileName)) },
			}[rng.IntN(2)]())
		}
		if f.Save() == nil {
			saved++
			if !f.Info().Compacting { // else the file is being written to
				got, _ := peek(t, dir)
				same(t, got, k, len(k.cuts))
			}
		}
	}
	if saved < 50 || removed < 50 {
		t.Fatalf("%d saves, %d removals: the test sees too little", saved, removed)
	}
	closed(t, f)
	got, _ := peek(t, dir)
	same(t, got, k, len(k.cuts))
}

// TestAFileThatComesBackIsGoneOnWith moves the folder away, to where no new one
// can be made in its place, and back.
func TestAFileThatComesBackIsGoneOnWith(t *testing.T) {
	top := t.TempDir()
	up := filepath.Join(top, "up")
	dir := filepath.Join(up, "state")
	var log bytes.Buffer
	o := small()
	o.compact = 1 << 30
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	f, k := start(t, dir, o)
	some(k, 0)
	must(t, f.Save())
	some(k, 1)
	must(t, os.Rename(up, up+"-away"))
	must(t, os.Symlink(filepath.Join(top, "none"), up)) // nothing can be made here
	for range 3 {
		if err := f.Save(); err == nil {
			t.Fatal("saved to nowhere")
		}
	}
	if i := f.Info(); i.Changed < k.Count() || i.Failing != 3 {
		t.Fatalf("with nothing on disk and %d keys: %+v", k.Count(), i)
	}
	if n := strings.Count(log.String(), "was removed while in use: all"); n != 1 {
		t.Fatalf("%d lines about one removal:\n%s", n, &log)
	}
	must(t, os.Remove(up))
	must(t, os.Rename(up+"-away", up))
	must(t, f.Save())
	hdr := holds(t, f, k, dir)
	if hdr.sequence != 2 {
		t.Fatalf("tick %d of the file, want the second of the one that was moved", hdr.sequence)
	}
	closed(t, f)
}

// TestAFolderTakenByAnotherIsLeftToIt removes the folder and lets a second
// process begin in its place.
func TestAFolderTakenByAnotherIsLeftToIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	f, k := start(t, dir, small())
	some(k, 0)
	must(t, f.Save())
	must(t, os.RemoveAll(dir))
	must(t, os.Mkdir(dir, 0o700))
	lock, err := lockFolder(dir, true)
	must(t, err)
	if err := f.Save(); !errors.Is(err, ErrLocked) {
		t.Fatalf("saved to a folder that another process has locked: %v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Fatalf("something was put into another's folder: %v", files)
	}
	must(t, lock.release())
	must(t, f.Save())
	holds(t, f, k, dir)
	closed(t, f)
}

// TestUnsavedChangesAreCountedUntilTheyAreOnDisk fails when changes are
// counted as saved because a flush that failed has taken them.
func TestUnsavedChangesAreCountedUntilTheyAreOnDisk(t *testing.T) {
	var disk trouble
	o := small()
	o.commit = disk.commit
	f, k := start(t, t.TempDir(), o)
	if n := f.Info().Changed; n != 0 {
		t.Fatalf("%d unsaved changes at the start", n)
	}
	for i := range 30 {
		k.set(fmt.Sprint("key", i), 1)
	}
	for _, mode := range []int32{failBefore, failAfter, breakDown, failBefore} {
		if n := f.Info().Changed; n != 30 {
			t.Fatalf("%d unsaved changes of 30", n)
		}
		disk.mode.Store(mode)
		if f.Save() == nil {
			t.Fatal("the write did not fail")
		}
	}
	k.set("more", 1)
	if n := f.Info().Changed; n != 31 {
		t.Fatalf("%d unsaved changes of 31", n)
	}
	disk.mode.Store(fine)
	must(t, f.Save())
	if n := f.Info().Changed; n != 0 {
		t.Fatalf("%d unsaved changes after a save", n)
	}
	closed(t, f)
}

// TestALinkToTheStateIsFollowed keeps the state on another disk, as a user may.
func TestALinkToTheStateIsFollowed(t *testing.T) {
	dir := t.TempDir()
	path, real := filepath.Join(dir, FileName), filepath.Join(t.TempDir(), "elsewhere")
	f, k := start(t, dir, small())
	some(k, 0)
	closed(t, f)
	must(t, os.Rename(path, real))
	must(t, os.Symlink(real, path))
	f, k = start(t, dir, small())
	some(k, 1)
	must(t, f.Save())
	holds(t, f, k, dir)
	closed(t, f)
	if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Fatalf("the link was replaced: %v, %v", info.Mode(), err)
	}
}

// TestAFileOfAnothersUnderTheLocksNameKeepsItsContent begins in a folder of
// another program that has a file of this name.
func TestAFileOfAnothersUnderTheLocksNameKeepsItsContent(t *testing.T) {
	for _, content := range []string{"a note", "12 monkeys", strings.Repeat("1", 40)} {
		dir := t.TempDir()
		path := filepath.Join(dir, lockName)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		f, _ := start(t, dir, still())
		if _, err := Open(dir, still()); !errors.Is(err, ErrLocked) {
			t.Errorf("it does not lock: %v", err)
		}
		closed(t, f)
		if b, _ := os.ReadFile(path); string(b) != content {
			t.Errorf("%q became %q", content, b)
		}
	}
}

// within fails the test if f does not return in time.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s hangs", what)
	}
}
