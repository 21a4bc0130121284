package persist

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"
)

// TestADamagedLogIsRefusedOrRight flips bytes and cuts the file short.
func TestADamagedLogIsRefusedOrRight(t *testing.T) {
	path := filepath.Join(t.TempDir(), LogFileName)
	l := newLog(t, path, LogOptions{})
	want := map[uint64]*raft.Log{}
	for i := range uint64(40) {
		e := entry(i+1, 1+i/10, []int{20, 700, 5000}[i%3])
		want[e.Index] = e
		must(t, l.StoreLog(e))
	}
	must(t, l.SetUint64([]byte("CurrentTerm"), 4))
	must(t, l.Set([]byte("LastVoteCand"), []byte("127.0.0.1:7401")))
	must(t, l.DeleteRange(1, 5))
	for i := range uint64(5) {
		delete(want, i+1)
	}
	must(t, l.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	rng := rand.New(rand.NewPCG(5, 6))
	accepted, rounds := 0, 600
	for i := range rounds {
		b := bytes.Clone(whole)
		switch i % 4 {
		case 0:
			b = b[:rng.IntN(len(b))]
		case 1, 2: // where the structure is
			b[rng.IntN(len(b)/pageSize)*pageSize+rng.IntN(96)] ^= byte(1 + rng.IntN(255))
		default:
			b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
		}
		must(t, os.WriteFile(path, b, 0o600))
		l, err := OpenLog(path, LogOptions{})
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrForeign) || !refused(err, path) {
				t.Fatalf("round %d: %v", i, err)
			}
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, b) {
				t.Fatalf("round %d: a log that is refused was written to", i)
			}
			continue
		}
		accepted++
		if len(l.entries) != len(want) {
			t.Fatalf("round %d: %d entries of %d are there", i, len(l.entries), len(want))
		}
		sameLog(t, l, want)
		if term, err := l.GetUint64([]byte("CurrentTerm")); term != 4 || err != nil {
			t.Fatalf("round %d: the term is %d, %v", i, term, err)
		}
		if vote, err := l.Get([]byte("LastVoteCand")); string(vote) != "127.0.0.1:7401" || err != nil {
			t.Fatalf("round %d: the vote is %q, %v", i, vote, err)
		}
		must(t, l.Close())
	}
	if accepted == 0 || accepted > rounds*2/3 {
		t.Errorf("%d of %d were accepted: the rounds damage too little or too much", accepted, rounds)
	}
}

func TestOtherFilesAreNotTakenForALog(t *testing.T) {
	write := func(b []byte) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { must(t, os.WriteFile(path, b, 0o600)) }
	}
	for name, c := range map[string]struct {
		make func(t *testing.T, path string)
		kind error
	}{
		"an empty file": {write(nil), ErrDamaged}, // a log is never empty: it would forget its votes
		"a text":        {write(bytes.Repeat([]byte("hello "), 5000)), ErrForeign},
		"a state file": {func(t *testing.T, path string) {
			dir, _ := sample(t)
			b, err := os.ReadFile(filepath.Join(dir, FileName))
			must(t, err)
			must(t, os.WriteFile(path, b, 0o600))
		}, ErrForeign},
		"a log of another program": {func(t *testing.T, path string) {
			boltFile(t, path, func(tx *bolt.Tx) error {
				_, err := tx.CreateBucket([]byte(logBucket))
				_, err2 := tx.CreateBucket([]byte(confBucket))
				return errors.Join(err, err2)
			})
		}, ErrForeign},
		"a newer format": {func(t *testing.T, path string) {
			l := newLog(t, path, LogOptions{})
			must(t, l.SetUint64(logFormatKey, logFormat+1))
			must(t, l.Close())
		}, ErrFormat},
		"a folder": {func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, ErrForeign},
	} {
		path := filepath.Join(t.TempDir(), LogFileName)
		c.make(t, path)
		if l, err := OpenLog(path, LogOptions{}); !errors.Is(err, c.kind) || !refused(err, path) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				l.Close()
			}
		}
	}
}

func TestALogInUseIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), LogFileName)
	l := newLog(t, path, LogOptions{})
	if _, err := OpenLog(path, LogOptions{}); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	must(t, l.Close())
}

// TestALogThatWasNotCompleteIsMadeAnew: a crash while it was made.
func TestALogThatWasNotCompleteIsMadeAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), LogFileName)
	must(t, os.WriteFile(path+newSuffix, []byte("half"), 0o600))
	l := newLog(t, path, LogOptions{})
	sameLog(t, l, nil)
	must(t, l.Close())
	if got := files(t, filepath.Dir(path)); len(got) != 1 {
		t.Errorf("the folder holds %q", got)
	}
}

// TestAFailedWriteIsToldBeforeTheFileIsReadAgain: bbolt's search for free pages
// after a failure may end the process.
func TestAFailedWriteIsToldBeforeTheFileIsReadAgain(t *testing.T) {
	var out bytes.Buffer
	lg := boltLogger{log: slog.New(slog.NewTextHandler(&out, nil)), path: "dir/raft.db"}
	lg.Errorf("writing data failed: %v", syscall.EIO)
	for _, want := range []string{"level=ERROR", "could not be written", "dir/raft.db", syscall.EIO.Error()} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %q", want, out.String())
		}
	}
}
