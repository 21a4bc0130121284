package persist

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

func newLog(t tester, path string, o LogOptions) *Log {
	t.Helper()
	l, err := OpenLog(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// entry is an entry that depends on its index and term only.
func entry(index, term uint64, size int) *raft.Log {
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: randomBytes(index<<8|term, size)}
}

// entriesFrom are entries of one term, one after the other.
func entriesFrom(from, to, term uint64, size int) (es []*raft.Log) {
	for i := from; i <= to; i++ {
		es = append(es, entry(i, term, size))
	}
	return es
}

// sameLog compares a log with what it must hold.
func sameLog(t tester, l *Log, want map[uint64]*raft.Log) {
	t.Helper()
	first, last, size := uint64(0), uint64(0), int64(0)
	for i, e := range want {
		if first == 0 || i < first {
			first = i
		}
		last = max(last, i)
		size += int64(len(e.Data))
		var got raft.Log
		if err := l.GetLog(i, &got); err != nil || got.Index != i || got.Term != e.Term || got.Type != e.Type || !bytes.Equal(got.Data, e.Data) || !bytes.Equal(got.Extensions, e.Extensions) {
			t.Fatalf("entry %d is %+v, %v", i, got, err)
		}
	}
	a, errA := l.FirstIndex()
	b, errB := l.LastIndex()
	if a != first || b != last || errA != nil || errB != nil {
		t.Fatalf("the log has entries %d to %d, want %d to %d; %v, %v", a, b, first, last, errA, errB)
	}
	a, errA = l.store.FirstIndex()
	b, errB = l.store.LastIndex()
	if a != first || b != last || errA != nil || errB != nil {
		t.Fatalf("the file has entries %d to %d, want %d to %d; %v, %v", a, b, first, last, errA, errB)
	}
	// A little is about right.
	n := int64(len(want))
	if got := l.Bytes(); got < size+n*50 || got > size+n*130 {
		t.Fatalf("the log counts %d bytes, of %d entries with %d", got, n, size)
	}
	var e raft.Log
	for _, i := range []uint64{first - 1, last + 1} {
		if err := l.GetLog(i, &e); err != raft.ErrLogNotFound {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
}

// TestTheLogHoldsWhatWasStored does with a log what Raft does, restarts included.
func TestTheLogHoldsWhatWasStored(t *testing.T) {
	root := t.TempDir()
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		path := filepath.Join(root, fmt.Sprint(round))
		o := LogOptions{NoSync: true}
		l := newLog(t, path, o)
		defer func() { _ = l.Close() }()
		want := map[uint64]*raft.Log{}
		conf := map[string][]byte{}
		last, term := uint64(0), uint64(1)
		store := func(t *rapid.T) {
			n := uint64(rapid.IntRange(1, 400).Draw(t, "entries"))
			es := entriesFrom(last+1, last+n, term, rapid.SampledFrom([]int{0, 10, 3000}).Draw(t, "size"))
			es[0].Extensions = rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "extensions")
			if err := l.StoreLogs(es); err != nil {
				t.Fatal(err)
			}
			for _, e := range es {
				want[e.Index] = e
			}
			last += n
		}
		drop := func(t *rapid.T, lo, hi uint64) {
			if err := l.DeleteRange(lo, hi); err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if lo <= i && i <= hi {
					delete(want, i)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"store": store,
			"compact": func(t *rapid.T) {
				first, _ := l.FirstIndex()
				drop(t, first, first+uint64(rapid.IntRange(0, 700).Draw(t, "entries")))
			},
			"conflict": func(t *rapid.T) {
				if last > 0 {
					lo := last - min(last-1, uint64(rapid.IntRange(0, 700).Draw(t, "entries")))
					drop(t, lo, last)
					last, term = lo-1, term+1
				}
			},
			"install": func(t *rapid.T) { // a snapshot: then entries do not follow
				last += uint64(rapid.IntRange(1, 1000).Draw(t, "entries"))
				if rapid.Bool().Draw(t, "compact") {
					drop(t, 1, last)
				}
				store(t)
			},
			"vote": func(t *rapid.T) {
				key := rapid.SampledFrom([]string{"CurrentTerm", "LastVoteCand", "k"}).Draw(t, "key")
				conf[key] = rapid.SliceOf(rapid.Byte()).Draw(t, "value")
				if err := l.Set([]byte(key), conf[key]); err != nil {
					t.Fatal(err)
				}
			},
			"restart": func(t *rapid.T) {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l = newLog(t, path, o)
			},
			"": func(t *rapid.T) {
				sameLog(t, l, want)
				for key, value := range conf {
					if got, err := l.Get([]byte(key)); err != nil || !bytes.Equal(got, value) {
						t.Fatalf("%q is %x, %v", key, got, err)
					}
				}
			},
		})
	})
}

// TestRaftKnowsWhatIsMissing: raft tells some errors by comparing them.
func TestRaftKnowsWhatIsMissing(t *testing.T) {
	l := newLog(t, filepath.Join(t.TempDir(), LogFileName), LogOptions{})
	if err := l.GetLog(1, new(raft.Log)); err != raft.ErrLogNotFound {
		t.Error(err)
	}
	if _, err := l.GetUint64([]byte("CurrentTerm")); err == nil || err.Error() != "not found" {
		t.Error(err)
	}
	must(t, l.SetUint64([]byte("CurrentTerm"), 1<<63+7))
	if n, err := l.GetUint64([]byte("CurrentTerm")); n != 1<<63+7 || err != nil {
		t.Error(n, err)
	}
	if err := l.Set([]byte("x"), []byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := l.GetUint64([]byte("x")); err == nil {
		t.Error("a byte is a number")
	}
	must(t, l.Close())
}

// TestADamagedVoteIsNoVote changes every byte of what is stored.
func TestADamagedVoteIsNoVote(t *testing.T) {
	l := newLog(t, filepath.Join(t.TempDir(), LogFileName), LogOptions{NoSync: true})
	key := []byte("CurrentTerm")
	must(t, l.SetUint64(key, 5))
	stored, err := l.store.Get(key)
	must(t, err)
	for i := range stored {
		bad := bytes.Clone(stored)
		bad[i] ^= 1
		for _, bad := range [][]byte{bad, stored[:i]} {
			must(t, l.store.Set(key, bad))
			if n, err := l.GetUint64(key); !errors.Is(err, ErrDamaged) {
				t.Errorf("%x is read as %d, %v", bad, n, err)
			}
		}
	}
	must(t, l.store.Set([]byte("another"), stored))
	if _, err := l.GetUint64([]byte("another")); !errors.Is(err, ErrDamaged) {
		t.Errorf("a value under another key: %v", err)
	}
	must(t, l.Close())
}

// TestAnEntryStoredTwiceCountsOnce: the second takes the place of the first.
func TestAnEntryStoredTwiceCountsOnce(t *testing.T) {
	l := newLog(t, filepath.Join(t.TempDir(), LogFileName), LogOptions{NoSync: true})
	must(t, l.StoreLogs(entriesFrom(1, 3, 1, 10_000)))
	must(t, l.StoreLog(entry(2, 2, 10)))
	sameLog(t, l, map[uint64]*raft.Log{1: entry(1, 1, 10_000), 2: entry(2, 2, 10), 3: entry(3, 1, 10_000)})
	must(t, l.Close())
}

// TestStoringLeavesTheEntriesAlone: raft sends them to others meanwhile.
func TestStoringLeavesTheEntriesAlone(t *testing.T) {
	l := newLog(t, filepath.Join(t.TempDir(), LogFileName), LogOptions{})
	ext := make([]byte, 1, 100)
	e := &raft.Log{Index: 1, Data: []byte("data"), Extensions: ext}
	must(t, l.StoreLog(e))
	if len(e.Extensions) != 1 || !bytes.Equal(ext[:100], make([]byte, 100)) {
		t.Errorf("an entry that was stored has extensions %x", e.Extensions[:10])
	}
	must(t, l.Close())
}

// TestACrashWhileEntriesAreDeletedLeavesNoGap looks at the file after every
// transaction.
func TestACrashWhileEntriesAreDeletedLeavesNoGap(t *testing.T) {
	const n = 2000
	for name, c := range map[string]struct {
		lo, hi uint64
		size   int
		top    bool // what is left is the low end
		steps  int  // at least
	}{
		"compaction":              {1, 1500, 10, false, 1500 / deleteEntries},
		"compaction, large":       {1, 1500, 5000, false, 1500 * 5000 / deleteBytes},
		"conflict":                {301, n, 10, true, 1700 / deleteEntries},
		"conflict of all, large":  {1, n, 5000, true, n * 5000 / deleteBytes},
		"beyond the ends":         {0, 1 << 62, 10, true, n / deleteEntries},
		"nothing":                 {n + 1, n + 100, 10, true, 0},
		"nothing, the wrong way":  {5, 4, 10, false, 0},
		"one entry in the middle": {5, 5, 10, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), LogFileName)
			steps := 0
			left := n
			o := LogOptions{NoSync: true, commit: func(do func() error) error {
				err := do()
				image := newLog(t, copyFile(t, path), LogOptions{NoSync: true})
				first, last := image.bounds()
				if first != 0 && !image.holds(first, last) && c.lo != c.hi {
					t.Errorf("after step %d there is a gap between %d and %d", steps, first, last)
				}
				if c.top && first > 1 || !c.top && last != n {
					t.Errorf("after step %d entries %d to %d are left", steps, first, last)
				}
				if gone := left - len(image.entries); gone > deleteEntries || gone < 1 || gone > 1 && gone*c.size > deleteBytes {
					t.Errorf("step %d has deleted %d entries", steps, gone)
				}
				left = len(image.entries)
				steps++
				must(t, image.Close())
				return err
			}}
			l := newLog(t, path, LogOptions{NoSync: true})
			must(t, l.StoreLogs(entriesFrom(1, n, 1, c.size)))
			must(t, l.Close())
			l = newLog(t, path, o)
			must(t, l.DeleteRange(c.lo, c.hi))
			if steps < c.steps {
				t.Errorf("%d steps, want at least %d", steps, c.steps)
			}
			if want := n - max(0, int(min(c.hi, n))-int(max(c.lo, 1))+1); left != want {
				t.Errorf("%d entries are left, want %d", left, want)
			}
			must(t, l.Close())
		})
	}
}

// copyFile copies a file that is in use.
func copyFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	other := filepath.Join(t.TempDir(), filepath.Base(path))
	must(t, os.WriteFile(other, b, 0o600))
	return other
}

// TestACrashLeavesWhatWasStored: the file as it is after each write holds all that
// was told to be stored, and before, no part of it.
func TestACrashLeavesWhatWasStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), LogFileName)
	want := map[uint64]*raft.Log{}
	check := func() {
		image := newLog(t, copyFile(t, path), LogOptions{})
		sameLog(t, image, want)
		must(t, image.Close())
	}
	first := true
	o := LogOptions{commit: func(do func() error) error {
		if first { // of the new file, which has no name yet
			first = false
			if err := do(); err != nil {
				return err
			}
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the log has a name before it is complete: %v", err)
			}
			return nil
		}
		check()
		return do()
	}}
	l := newLog(t, path, o)
	last := uint64(0)
	for i := range uint64(20) {
		es := entriesFrom(last+1, last+i%4+1, i, int(i*i*i*3))
		last += uint64(len(es))
		must(t, l.StoreLogs(es))
		for _, e := range es {
			want[e.Index] = e
		}
		check()
	}
	must(t, l.Close())
}

// TestNothingIsWrittenAfterAFailure: the system may have dropped what it could not
// write, and the next sync would say that all is well.
func TestNothingIsWrittenAfterAFailure(t *testing.T) {
	full := errors.New("file resize error: truncate x: " + syscall.ENOSPC.Error()) // as bbolt words it
	fail := false
	path := filepath.Join(t.TempDir(), LogFileName)
	l := newLog(t, path, LogOptions{commit: func(do func() error) error {
		if fail {
			return full
		}
		return do()
	}})
	must(t, l.StoreLogs(entriesFrom(1, 3, 1, 100)))
	fail = true
	if err := l.StoreLog(entry(4, 1, 100)); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	fail = false
	for what, err := range map[string]error{
		"StoreLog":    l.StoreLog(entry(4, 1, 100)),
		"Set":         l.Set([]byte("k"), nil),
		"SetUint64":   l.SetUint64([]byte("k"), 1),
		"DeleteRange": l.DeleteRange(1, 2),
	} {
		if !errors.Is(err, full) {
			t.Errorf("%s after a failure: %v", what, err)
		}
	}
	want := map[uint64]*raft.Log{}
	for _, e := range entriesFrom(1, 3, 1, 100) {
		want[e.Index] = e
	}
	sameLog(t, l, want)
	must(t, l.Close())
	l = newLog(t, path, LogOptions{})
	sameLog(t, l, want)
	must(t, l.Close())
}

// TestEntriesAreStoredWhileOthersAreDeleted as raft does it: a snapshot's
// goroutine deletes.
func TestEntriesAreStoredWhileOthersAreDeleted(t *testing.T) {
	l := newLog(t, filepath.Join(t.TempDir(), LogFileName), LogOptions{NoSync: true})
	must(t, l.StoreLogs(entriesFrom(1, 3000, 1, 10)))
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(3001); i <= 3500; i++ {
			if err := l.StoreLog(entry(i, 2, 10)); err != nil {
				t.Error(err)
				return
			}
			var e raft.Log
			if err := l.GetLog(i, &e); err != nil {
				t.Error(err)
			}
			l.Bytes()
		}
	})
	wg.Go(func() {
		if err := l.DeleteRange(1, 2900); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	want := map[uint64]*raft.Log{}
	for _, e := range append(entriesFrom(2901, 3000, 1, 10), entriesFrom(3001, 3500, 2, 10)...) {
		want[e.Index] = e
	}
	sameLog(t, l, want)
	must(t, l.Close())
}

// TestAnOlderSnapshotIsUsedOnlyIfTheLogReachesBack: without the entries in
// between, the node would forget what it has acknowledged.
func TestAnOlderSnapshotIsUsedOnlyIfTheLogReachesBack(t *testing.T) {
	type span [2]uint64
	for name, c := range map[string]struct {
		entries  []span
		good     []uint64 // snapshots, oldest first
		damaged  []uint64 // newer than those
		want     []uint64 // listed
		advising bool
	}{
		"a new node":                         {},
		"no snapshot yet":                    {entries: []span{{1, 9}}},
		"no snapshot, and entries missing":   {entries: []span{{5, 9}}, advising: true},
		"all is well":                        {[]span{{95, 120}}, []uint64{50, 100}, nil, []uint64{100}, false},
		"the log reaches further back":       {[]span{{40, 120}}, []uint64{50, 100}, nil, []uint64{100, 50}, false},
		"the log was emptied":                {nil, []uint64{50, 100}, nil, []uint64{100}, false},
		"installed, the log is older":        {[]span{{40, 70}}, []uint64{50, 100}, nil, []uint64{100}, false},
		"installed, then entries":            {[]span{{40, 70}, {101, 120}}, []uint64{50, 100}, nil, []uint64{100}, false},
		"entries after the snapshot missing": {[]span{{105, 120}}, []uint64{50, 100}, nil, nil, true},
		"damaged, the log reaches back":      {[]span{{51, 120}}, []uint64{50}, []uint64{100}, []uint64{50}, false},
		"damaged, and a gap of one":          {[]span{{52, 120}}, []uint64{50}, []uint64{100}, nil, true},
		"damaged, the log ends before":       {[]span{{40, 99}}, []uint64{50}, []uint64{100}, nil, true},
		"damaged, the log has a gap":         {[]span{{40, 70}, {101, 120}}, []uint64{50}, []uint64{100}, nil, true},
		"damaged, the log is empty":          {nil, []uint64{50}, []uint64{100}, nil, true},
		"all are damaged":                    {[]span{{40, 120}}, nil, []uint64{50, 100}, nil, true},
		"all are damaged, the log is whole":  {[]span{{1, 120}}, nil, []uint64{50, 100}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := newLog(t, filepath.Join(dir, LogFileName), LogOptions{NoSync: true})
			for _, s := range c.entries {
				must(t, l.StoreLogs(entriesFrom(s[0], s[1], 1, 1)))
			}
			s := newSnapshots(t, filepath.Join(dir, SnapshotDir), SnapshotOptions{})
			for _, i := range c.good {
				writeSnapshot(t, s, i, 10)
			}
			for _, i := range c.damaged {
				n, err := parseSnapshotName(writeSnapshot(t, s, i, 10))
				must(t, err)
				must(t, os.Truncate(s.path(n), 10_000))
			}
			err := s.Check(l)
			if c.advising {
				if err == nil || !strings.Contains(err.Error(), "let it join again") {
					t.Errorf("the sentence is: %v", err)
				}
			} else if got := listed(t, s, func(uint64) int { return 10 }); err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%v are listed, want %v; %v", got, c.want, err)
			}
			must(t, l.Close())
		})
	}
}
