package persist

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

func newSnapshots(t *testing.T, dir string) *Snapshots {
	t.Helper()
	s, err := OpenSnapshots(dir, SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// writeSnapshot writes a snapshot of size random bytes and returns them.
func writeSnapshot(t *testing.T, s *Snapshots, index uint64, size int) (id string, content []byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(index, uint64(size)))
	content = make([]byte, size)
	for i := range content {
		content[i] = byte(rng.Uint32())
	}
	conf := raft.Configuration{Servers: []raft.Server{{ID: "n1.0", Address: "127.0.0.1:1"}}}
	sink, err := s.Create(1, index, 3, conf, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	for rest := content; len(rest) > 0; {
		n := min(1+rng.IntN(100_000), len(rest))
		if _, err := sink.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	return sink.ID(), content
}

func readSnapshot(s *Snapshots, id string) (*raft.SnapshotMeta, []byte, error) {
	meta, r, err := s.Open(id)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return meta, b, err
}

func TestASnapshotIsReadAsItWasWritten(t *testing.T) {
	for _, size := range []int{0, 1, snapshotChunk - 1, snapshotChunk, snapshotChunk + 1, 40 << 20} {
		s := newSnapshots(t, t.TempDir())
		id, want := writeSnapshot(t, s, 7, size)
		meta, got, err := readSnapshot(newSnapshots(t, s.dir), id)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: %d are read, %v", size, len(got), err)
		}
		if meta.Size != int64(size) || meta.Index != 7 || meta.Term != 3 || meta.ConfigurationIndex != 2 || meta.Configuration.Servers[0].ID != "n1.0" {
			t.Errorf("%d bytes: %+v", size, meta)
		}
	}
}

func TestTheNewestSnapshotsAreKept(t *testing.T) {
	s := newSnapshots(t, t.TempDir())
	for i := range uint64(5) {
		writeSnapshot(t, s, 10+i, 1000)
	}
	sink, err := s.Create(1, 99, 9, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write([]byte("unfinished")); err != nil {
		t.Fatal(err)
	}
	list, err := s.List()
	if err != nil || len(list) != 2 || list[0].Index != 14 || list[1].Index != 13 {
		t.Fatalf("%v, %v", list, err)
	}
	if err := sink.Cancel(); err != nil {
		t.Fatal(err)
	}
	if files, _ := os.ReadDir(s.dir); len(files) != 2 {
		t.Errorf("%d files are left", len(files))
	}
}

// TestADamagedSnapshotIsNeverAccepted flips bytes and cuts the file short.
func TestADamagedSnapshotIsNeverAccepted(t *testing.T) {
	s := newSnapshots(t, t.TempDir())
	id, want := writeSnapshot(t, s, 7, 3<<20)
	path := s.path(id)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 120 {
		b := bytes.Clone(whole)
		if i%4 == 0 {
			b = b[:rng.IntN(len(b))]
		} else {
			b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, got, err := readSnapshot(s, id); err == nil && !bytes.Equal(got, want) {
			t.Fatalf("round %d: another content is accepted", i)
		} else if err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatalf("round %d: %v", i, err)
		}
		if _, err := s.List(); err != nil {
			t.Fatal(err)
		}
	}
}

func newLog(t *testing.T, path string) *Log {
	t.Helper()
	l, err := OpenLog(path, LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTheLogCountsItsBytesAndDeletesInSteps(t *testing.T) {
	path := filepath.Join(t.TempDir(), LogFileName)
	l := newLog(t, path)
	store := func(from, to uint64, size int) {
		var es []*raft.Log
		for i := from; i <= to; i++ {
			es = append(es, &raft.Log{Index: i, Term: 1, Data: make([]byte, size)})
		}
		if err := l.StoreLogs(es); err != nil {
			t.Fatal(err)
		}
	}
	want := func(first, last uint64, bytes int64) {
		t.Helper()
		f, _ := l.FirstIndex()
		la, _ := l.LastIndex()
		if f != first || la != last || l.Bytes() < bytes || l.Bytes() > bytes+int64(last-first+1)*entryOverhead {
			t.Fatalf("the log has %d to %d and %d bytes, want %d to %d and about %d", f, la, l.Bytes(), first, last, bytes)
		}
	}
	store(5, 1004, 1000)
	want(5, 1004, 1_000_000)
	if err := l.DeleteRange(5, 604); err != nil {
		t.Fatal(err)
	}
	want(605, 1004, 400_000)
	if err := l.DeleteRange(705, 1004); err != nil {
		t.Fatal(err)
	}
	want(605, 704, 100_000)
	store(705, 710, 1000)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = newLog(t, path)
	want(605, 710, 106_000)
	if err := l.Set([]byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedLogIsRefusedInASentence(t *testing.T) {
	path := filepath.Join(t.TempDir(), LogFileName)
	l := newLog(t, path)
	for i := range uint64(50) {
		if err := l.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: make([]byte, 5000)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{1, 100, 5000, len(whole) / 3} {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := OpenLog(path, LogOptions{}); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut to %d bytes: %v", cut, err)
			if err == nil {
				l.Close()
			}
		}
	}
}

func TestReadStateGivesWhatLoadLoads(t *testing.T) {
	n := 0
	err := ReadState(t.TempDir(), func(int64) error { return nil }, func([]byte) error { n++; return nil })
	if err == nil || n > 0 {
		t.Errorf("an empty folder: %v", err)
	}
	if state, log, err := Holds(t.TempDir()); state || log || err != nil {
		t.Error(fmt.Sprint(state, log, err))
	}
}
