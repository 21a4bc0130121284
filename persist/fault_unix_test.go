//go:build unix

package persist

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/persist/internal/boltfile"
)

// childEnv names the fault that this process, a child of a test, is to survive.
const childEnv = "STINT_PERSIST_TEST_FAULT"

// A fault is what happens to a file under a running Flusher.
type fault struct {
	ruin   func(f *os.File) error
	during bool // within a transaction, when all checks are done; or before it
}

var faults = map[string]fault{
	"pages overwritten":               {overwrite, false},
	"pages overwritten, late":         {overwrite, true},
	"all but the free list, late":     {overwriteData, true},
	"cut short":                       {cutShort, false},
	"cut short, late":                 {cutShort, true},
	"cut to nothing, late":            {func(f *os.File) error { return f.Truncate(0) }, true},
	"the free list overwritten, late": {overwriteList, true},
}

func overwrite(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return scribble(f, 2*pageSize, info.Size())
}

func cutShort(f *os.File) error { return f.Truncate(3 * pageSize) }

// overwriteData overwrites all pages but bbolt's own, so that a rollback gets
// as far as it can.
func overwriteData(f *os.File) error {
	from, to, size, err := list(f)
	if err != nil {
		return err
	}
	return errors.Join(scribble(f, 2*pageSize, from), scribble(f, to, size))
}

func overwriteList(f *os.File) error {
	from, to, _, err := list(f)
	if err != nil {
		return err
	}
	return scribble(f, from, to)
}

// list is where the first page of the free list is.
func list(f *os.File) (from, to, size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, 0, err
	}
	b, err := boltfile.Open(f, info.Size())
	if err != nil {
		return 0, 0, 0, err
	}
	if !b.ListsFree() {
		return 0, 0, 0, errors.New("the file has no list of free pages")
	}
	from = b.FreeList()
	return from, from + pageSize, info.Size(), nil
}

// scribble writes random bytes over a part of a file, in place.
func scribble(f *os.File, from, to int64) error {
	b := make([]byte, max(0, to-from))
	_, _ = rand.Read(b) // never fails
	_, err := f.WriteAt(b, from)
	return err
}

// TestTheProcessSurvivesADamagedMap ruins the state file under a Flusher, of
// which bbolt has a map in memory: a Save is an error then, and the process goes
// on. Each fault has a process of its own, which it may end.
func TestTheProcessSurvivesADamagedMap(t *testing.T) {
	if name := os.Getenv(childEnv); name != "" {
		survive(t, faults[name])
		return
	}
	for name := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+strings.SplitN(t.Name(), "/", 2)[0]+"$", "-test.v")
			cmd.Env = append(os.Environ(), childEnv+"="+name, "TMPDIR="+t.TempDir()) // it ends without tidying up
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), survived) {
				t.Fatalf("the process did not survive: %v\n%s", err, out[:min(len(out), 4000)])
			}
		})
	}
}

// copyOf copies a file, which may be locked.
func copyOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	other := filepath.Join(t.TempDir(), FileName)
	must(t, os.WriteFile(other, b, 0o600))
	return other
}

// bounded ends the process if it takes much memory, before the system does: one
// number in a ruined page may ask for all there is.
func bounded() {
	for range time.Tick(5 * time.Millisecond) {
		var m runtime.MemStats
		if runtime.ReadMemStats(&m); m.Sys > 1<<30 {
			fmt.Println("too much memory is taken:", m.Sys)
			os.Exit(1)
		}
	}
}

const survived = "the process is alive"

func survive(t *testing.T, what fault) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	var whole []byte // before the fault
	go bounded()
	armed := false
	ruin := func() {
		if !armed {
			return
		}
		armed = false
		whole, _ = os.ReadFile(path)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil {
			err = errors.Join(what.ruin(f), f.Close())
		}
		if err != nil {
			fmt.Println("the file was not ruined:", err)
			os.Exit(1)
		}
	}
	o := still()
	if what.during {
		o.during = ruin
	}
	f, ks := begin(t, dir, o)
	for round := range 3 { // some pages become free
		decide(t, ks, 20_000, round)
		must(t, f.Save())
	}
	armed = true
	if !what.during {
		ruin()
	}
	decide(t, ks, 20_000, 4)
	for i := range 3 {
		if err := f.Save(); err == nil {
			t.Fatalf("save %d of a ruined file succeeded", i)
		} else {
			t.Log(err)
		}
	}
	if i := f.Info(); i.Failing != 3 || i.Changed == 0 {
		t.Fatalf("after three failures: %+v", i)
	}
	// The file comes back, and with it all is well: nothing of what failed has
	// kept a lock.
	must(t, os.WriteFile(path, whole, 0o600))
	must(t, f.Save())
	if got, err := loads(t, copyOf(t, path)); err != nil || got != content(ks) {
		t.Fatalf("after the file came back, it is not what was saved: %v", err)
	}
	// Goroutines of bbolt's Close may wait for what broke down: no Close here.
	fmt.Println(survived)
	os.Exit(0)
}

// TestAFileWithoutAFreeListGetsOne begins with a file of before there was one.
func TestAFileWithoutAFreeListGetsOne(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	old, err := os.ReadFile(filepath.Join("testdata", "format1.db"))
	must(t, err)
	must(t, os.WriteFile(path, old, 0o600))
	lists := func() bool {
		t.Helper()
		r, err := openReader(path, false)
		must(t, err)
		defer r.Close()
		return r.bolt.ListsFree()
	}
	if lists() {
		t.Fatal("the file has a list already")
	}
	first := func() {
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, old) {
			t.Errorf("written to before the first transaction: %v", err)
		}
	}
	want, err := loads(t, path)
	must(t, err)
	o := still()
	o.during = sync.OnceFunc(first)
	f, _ := begin(t, dir, o)
	if !lists() {
		t.Error("the file has no list after the start")
	}
	must(t, f.Close(t.Context()))
	if got, err := loads(t, path); err != nil || got != want {
		t.Errorf("loaded afterwards: %v\n%s\nwant\n%s", err, got, want)
	}
}
