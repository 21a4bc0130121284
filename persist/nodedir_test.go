package persist

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAFolderHasOneUser(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	lock, err := LockDir(dir)
	must(t, err)
	if _, err := LockDir(dir); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second node: %v", err)
	}
	if st, err := Open(dir, still()); !errors.Is(err, ErrLocked) {
		t.Errorf("a single node besides: %v", err)
		if err == nil {
			st.Close()
		}
	}
	must(t, lock.Release())
	st, err := Open(dir, still())
	must(t, err)
	if _, err := LockDir(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("a node of a cluster besides a single one: %v", err)
	}
	must(t, st.Close())
	lock, err = LockDir(dir)
	must(t, err)
	must(t, lock.Release())
}

func TestHoldsTellsWhatIsThere(t *testing.T) {
	for _, names := range [][]string{{}, {FileName}, {LogFileName}, {FileName, LogFileName}} {
		dir := t.TempDir()
		for _, name := range append(names, "lock", "other.db") {
			must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		state, log, err := Holds(dir)
		if err != nil || state != slices.Contains(names, FileName) || log != slices.Contains(names, LogFileName) {
			t.Errorf("with %q: %v, %v, %v", names, state, log, err)
		}
	}
	if state, log, err := Holds(filepath.Join(t.TempDir(), "none")); state || log || err != nil {
		t.Error(state, log, err)
	}
}

// readState is what a keyspace becomes that loads all that ReadState gives.
func readState(t *testing.T, source string) (string, error) {
	t.Helper()
	ks := newKeyspace(t)
	heads := 0
	err := ReadState(source, func(latest int64) error {
		heads++
		ks.Advance(latest)
		return nil
	}, func(chunk []byte) error {
		if heads != 1 {
			t.Errorf("the time was given %d times before the changes", heads)
		}
		return ks.Load(chunk)
	})
	return content(ks), err
}

func TestReadStateGivesWhatLoadLoads(t *testing.T) {
	dir, want := sample(t)
	for _, source := range []string{dir, filepath.Join(dir, FileName), filepath.Join("testdata", "format1.db")} {
		want := want
		if filepath.Base(source) == "format1.db" {
			var err error
			want, err = loads(t, source)
			must(t, err)
		}
		if got, err := readState(t, source); err != nil || got != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", source, err, got, want)
		}
	}
	if _, err := readState(t, t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestReadStateRefusesAStateInUse(t *testing.T) {
	dir := t.TempDir()
	f, ks := begin(t, dir, still())
	decide(t, ks, 20, 1)
	must(t, f.Save())
	if _, err := readState(t, dir); !errors.Is(err, ErrLocked) {
		t.Error(err)
	}
	must(t, f.Close(t.Context()))
	// The folder may be locked by who reads.
	lock, err := LockDir(dir)
	must(t, err)
	if got, err := readState(t, dir); err != nil || got != content(ks) {
		t.Error(err)
	}
	must(t, lock.Release())
}

// TestReadStatesCallerIsNotTheFile: what goes wrong in writing must not be blamed
// on what is read.
func TestReadStatesCallerIsNotTheFile(t *testing.T) {
	dir, _ := sample(t)
	own := errors.New("the disk of the copy is full")
	good := func([]byte) error { return nil }
	if err := ReadState(dir, func(int64) error { return own }, good); err != own {
		t.Error(err)
	}
	n := 0
	err := ReadState(dir, func(int64) error { return nil }, func([]byte) error {
		if n++; n == 2 {
			return own
		}
		return nil
	})
	if err != own || n != 2 {
		t.Error(n, err)
	}
}

func TestReadStateRefusesDamage(t *testing.T) {
	dir, want := sample(t)
	path := filepath.Join(dir, FileName)
	whole, err := os.ReadFile(path)
	must(t, err)
	rng := rand.New(rand.NewPCG(3, 4))
	bad := 0
	for i := range 600 {
		b := bytes.Clone(whole)
		b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
		must(t, os.WriteFile(path, b, 0o600))
		if got, err := readState(t, dir); err == nil && got != want {
			t.Fatalf("round %d: another state is given", i)
		} else if err != nil {
			if bad++; !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrForeign) || !refused(err, path) {
				t.Fatalf("round %d: %v", i, err)
			}
		}
	}
	if bad < 10 {
		t.Errorf("%d rounds of 600 did damage", bad)
	}
}
