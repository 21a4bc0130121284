package persist

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// testing.T and rapid.T.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func newSnapshots(t tester, dir string, o SnapshotOptions) *Snapshots {
	t.Helper()
	s, err := OpenSnapshots(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var someNodes = raft.Configuration{Servers: []raft.Server{
	{ID: "n1.00000000000000aa", Address: "127.0.0.1:7401"},
	{Suffrage: raft.Nonvoter, ID: "n2.00000000000000bb", Address: "node-2.example:7401"},
}}

// randomBytes are the same for the same seed.
func randomBytes(seed uint64, size int) []byte {
	var key [32]byte
	order.PutUint64(key[:], seed)
	b := make([]byte, size)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
	return b
}

// writeTo writes content to a sink in writes of all sizes.
func writeTo(sink raft.SnapshotSink, seed uint64, content []byte) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	for len(content) > 0 {
		n := min(1+rng.IntN(1<<rng.IntN(21)), len(content))
		if m, err := sink.Write(content[:n]); err != nil || m != n {
			return fmt.Errorf("%d of %d bytes: %w", m, n, err)
		}
		content = content[n:]
	}
	return nil
}

// tryWrite writes a snapshot whose content is random, with index as the seed.
func tryWrite(s *Snapshots, index uint64, size int) (id string, err error) {
	sink, err := s.Create(1, index, 3, someNodes, index-1, nil)
	if err != nil {
		return "", err
	}
	if err := writeTo(sink, index, randomBytes(index, size)); err != nil {
		return "", errors.Join(err, sink.Cancel())
	}
	return sink.ID(), sink.Close()
}

func writeSnapshot(t tester, s *Snapshots, index uint64, size int) (id string) {
	t.Helper()
	id, err := tryWrite(s, index, size)
	if err != nil {
		t.Fatal(err)
	}
	return id
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

// listed are the indexes of the snapshots, each of which must be as it was
// written, of its size.
func listed(t tester, s *Snapshots, size func(index uint64) int) (indexes []uint64) {
	t.Helper()
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		meta, b, err := readSnapshot(s, m.ID)
		if err != nil || fmt.Sprint(meta) != fmt.Sprint(m) || !bytes.Equal(b, randomBytes(m.Index, size(m.Index))) || m.Size != int64(len(b)) ||
			m.Version != 1 || m.Term != 3 || m.ConfigurationIndex != m.Index-1 || fmt.Sprint(m.Configuration) != fmt.Sprint(someNodes) {
			t.Fatalf("snapshot %d is not what was written: %+v, %d bytes, %v", m.Index, m, len(b), err)
		}
		indexes = append(indexes, m.Index)
	}
	return indexes
}

func files(t tester, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestASnapshotIsReadAsItWasWritten(t *testing.T) {
	for _, size := range []int{0, 1, snapshotChunk - 1, snapshotChunk, snapshotChunk + 1, snapshotBatch, snapshotSync + snapshotBatch + 5} {
		s := newSnapshots(t, filepath.Join(t.TempDir(), "[a]", SnapshotDir), SnapshotOptions{})
		writeSnapshot(t, s, 7, size)
		s = newSnapshots(t, s.dir, SnapshotOptions{}) // a restart
		if got := listed(t, s, func(uint64) int { return size }); !slices.Equal(got, []uint64{7}) {
			t.Fatalf("%d bytes: %v are listed", size, got)
		}
	}
}

// TestSnapshotsInAnyOrder writes, cancels, abandons and lists, with restarts.
func TestSnapshotsInAnyOrder(t *testing.T) {
	root := t.TempDir()
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		dir := filepath.Join(root, fmt.Sprint(round))
		retain := rapid.IntRange(1, 3).Draw(t, "retain")
		open := func() *Snapshots { return newSnapshots(t, dir, SnapshotOptions{Retain: retain}) }
		s := open()
		sizes := map[uint64]int{}
		var want []uint64 // newest first
		index := uint64(1)
		defer os.RemoveAll(dir)
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				index += uint64(rapid.IntRange(1, 1000).Draw(t, "entries"))
				sizes[index] = rapid.IntRange(0, 600_000).Draw(t, "size")
				writeSnapshot(t, s, index, sizes[index])
				want = append([]uint64{index}, want...)
				want = want[:min(len(want), retain)]
			},
			"cancel": func(t *rapid.T) {
				sink, err := s.Create(1, index+1, 3, someNodes, 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				_ = writeTo(sink, 1, make([]byte, rapid.IntRange(0, 600_000).Draw(t, "size")))
				for range 2 {
					if err := sink.Cancel(); err != nil {
						t.Fatal(err)
					}
				}
				if err := sink.Close(); err == nil {
					t.Fatal("a cancelled snapshot was completed")
				}
				if _, err := sink.Write([]byte("x")); err == nil {
					t.Fatal("a cancelled snapshot is written to")
				}
			},
			"restart": func(t *rapid.T) { s = open() },
			"": func(t *rapid.T) {
				if got := listed(t, s, func(i uint64) int { return sizes[i] }); !slices.Equal(got, want) {
					t.Fatalf("%v are listed, want %v", got, want)
				}
				if got := files(t, dir); len(got) != len(want) {
					t.Fatalf("the folder holds %q for %v", got, want)
				}
			},
		})
	})
}

// crashImage copies a folder as a crash would leave it.
func crashImage(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range files(t, dir) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		must(t, os.WriteFile(filepath.Join(to, name), b, 0o600))
	}
	return to
}

// TestACrashAtAnyStepLeavesWholeSnapshots looks at the folder before and after
// every transaction, sync and rename: there is the snapshot of before, or both,
// and a file gets its name after all of it was synced.
func TestACrashAtAnyStepLeavesWholeSnapshots(t *testing.T) {
	const size = 2*snapshotSync + 1000
	dir := t.TempDir()
	writeSnapshot(t, newSnapshots(t, dir, SnapshotOptions{}), 5, 10_000)
	var steps []string
	look := func(step string) {
		steps = append(steps, step)
		s := newSnapshots(t, crashImage(t, dir), SnapshotOptions{})
		got := listed(t, s, func(i uint64) int {
			if i == 5 {
				return 10_000
			}
			return size
		})
		if want := []uint64{5}; !slices.Equal(got, want) && !slices.Equal(got, []uint64{9, 5}) {
			t.Errorf("after %q: %v", steps, got)
		}
		if got := files(t, s.dir); slices.ContainsFunc(got, func(n string) bool { return strings.HasSuffix(n, newSuffix) }) {
			t.Errorf("after %q what is unfinished stays: %q", steps, got)
		}
	}
	disk := &durable{
		sync: func(f *os.File) error { look("sync"); return f.Sync() },
		place: func(tmp, dest string) error {
			look("place")
			defer look("placed")
			return os.Rename(tmp, dest)
		},
		syncFolder: func(dir string) error { look("folder"); return syncFolder(dir) },
	}
	o := SnapshotOptions{disk: disk, commit: func(do func() error) error {
		err := do()
		look("write")
		return err
	}}
	if _, err := tryWrite(newSnapshots(t, dir, o), 9, size); err != nil {
		t.Fatal(err)
	}
	look("done")
	syncs := 0
	for i, step := range steps {
		if step == "sync" {
			syncs++
		}
		if step == "place" && !slices.Equal(steps[i-1:], []string{"sync", "place", "placed", "folder", "done"}) {
			t.Errorf("the snapshot gets its name in the wrong order: %q", steps)
		}
	}
	if syncs != 3 {
		t.Errorf("%d syncs of %d bytes, want one each %d and one at the end", syncs, size, snapshotSync)
	}
}

// TestADiskThatFailsLeavesNoSnapshot fails every step in turn.
func TestADiskThatFailsLeavesNoSnapshot(t *testing.T) {
	full := &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	failed := 0
	for at := 1; ; at++ {
		n := 0
		step := func() error {
			if n++; n == at {
				return full
			}
			return nil
		}
		o := SnapshotOptions{commit: func(do func() error) error { return errors.Join(step(), do()) }}
		if at%2 == 0 { // nothing is done, or all of it and then it fails
			o.commit = func(do func() error) error {
				if err := step(); err != nil {
					return err
				}
				return do()
			}
		}
		o.disk = &durable{
			sync: func(f *os.File) error { return errors.Join(step(), f.Sync()) },
			place: func(tmp, dest string) error {
				if err := step(); err != nil {
					return err
				}
				return os.Rename(tmp, dest)
			},
			syncFolder: func(dir string) error { return errors.Join(step(), syncFolder(dir)) },
		}
		dir := t.TempDir()
		s := newSnapshots(t, dir, o)
		_, err := tryWrite(s, 9, snapshotSync+snapshotBatch)
		if n < at {
			if err != nil || len(files(t, dir)) != 1 {
				t.Fatalf("nothing failed: %v", err)
			}
			break
		}
		failed++
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("step %d failed and the snapshot says %v", at, err)
		}
		if left := files(t, dir); len(left) > 0 {
			t.Errorf("step %d failed and has left %q", at, left)
		}
	}
	if failed < 10 {
		t.Errorf("only %d steps were there to fail", failed)
	}
}

// TestWritesEndWhenTheDiskHasFailed: who writes gigabytes to a sink that is
// broken learns of it before the end, also who waits for the disk meanwhile.
func TestWritesEndWhenTheDiskHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		o := SnapshotOptions{commit: func(func() error) error { <-gate; return errDisk }}
		s := newSnapshots(t, t.TempDir(), o)
		sink, err := s.Create(1, 9, 3, someNodes, 1, nil)
		must(t, err)
		done := make(chan error, 1)
		go func() {
			var err error
			for n := 0; err == nil && n < 100_000; n++ {
				_, err = sink.Write(make([]byte, 32<<10))
			}
			done <- err
		}()
		synctest.Wait() // all buffers are full
		close(gate)
		if err := <-done; !errors.Is(err, errDisk) || !errors.Is(sink.Close(), errDisk) {
			t.Error(err)
		}
		if left := files(t, s.dir); len(left) > 0 {
			t.Errorf("%q is left", left)
		}
	})
}

// TestADamagedSnapshotIsNeverAccepted flips bytes and cuts the file short.
func TestADamagedSnapshotIsNeverAccepted(t *testing.T) {
	var log bytes.Buffer
	s := newSnapshots(t, t.TempDir(), SnapshotOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	writeSnapshot(t, s, 3, 100)
	id := writeSnapshot(t, s, 7, 3*snapshotChunk+100)
	n, err := parseSnapshotName(id)
	must(t, err)
	path := s.path(n)
	whole, err := os.ReadFile(path)
	must(t, err)
	want := randomBytes(7, 3*snapshotChunk+100)
	rng := rand.New(rand.NewPCG(1, 2))
	accepted, unlisted := 0, 0
	for i := range 400 {
		b := bytes.Clone(whole)
		switch i % 4 {
		case 0:
			b = b[:rng.IntN(len(b))]
		case 1: // where the structure is
			b[rng.IntN(len(b)/pageSize)*pageSize+rng.IntN(64)] ^= byte(1 + rng.IntN(255))
		default:
			b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
		}
		must(t, os.WriteFile(path, b, 0o600))
		_, got, err := readSnapshot(s, id)
		switch {
		case err == nil && !bytes.Equal(got, want), !bytes.HasPrefix(want, got):
			t.Fatalf("round %d: another content is given, %v", i, err)
		case err == nil:
			accepted++ // the flip was in what is not used
		case !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "move it away"):
			t.Fatalf("round %d: %v", i, err)
		}
		list, err := s.List()
		must(t, err)
		if len(list) == 1 && list[0].Index == 3 {
			unlisted++
		} else if len(list) != 2 {
			t.Fatalf("round %d: %d are listed", i, len(list))
		}
	}
	if accepted > 200 || unlisted < 50 {
		t.Errorf("%d of 400 were accepted and %d not listed: the rounds damage too little", accepted, unlisted)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("a damaged snapshot is logged %d times:\n%s", n, log.String())
	}
	// It does not count as one that is kept.
	must(t, os.WriteFile(path, whole[:len(whole)/2], 0o600))
	writeSnapshot(t, s, 9, 50)
	list, err := s.List()
	must(t, err)
	if len(list) != 2 || list[0].Index != 9 || list[1].Index != 3 {
		t.Errorf("beside a damaged one %d are listed", len(list))
	}
	writeSnapshot(t, s, 10, 50)
	if got := files(t, s.dir); len(got) != 2 {
		t.Errorf("a damaged snapshot older than all others stays: %q", got)
	}
}

// TestAChunkOfAnotherSnapshotIsNoticed puts a chunk of the same place and length
// into a file.
func TestAChunkOfAnotherSnapshotIsNoticed(t *testing.T) {
	s := newSnapshots(t, t.TempDir(), SnapshotOptions{})
	file := func(index uint64) (*snapshotReader, []byte) {
		n, err := parseSnapshotName(writeSnapshot(t, s, index, 3*snapshotChunk))
		must(t, err)
		r, err := openSnapshot(s.path(n), n)
		must(t, err)
		must(t, r.Close())
		b, err := os.ReadFile(r.path)
		must(t, err)
		return r, b
	}
	ra, a := file(1)
	rb, b := file(2)
	from, to := ra.values[1], rb.values[1]
	own := bytes.Clone(b)
	copy(b[to.Offset:], a[from.Offset:][:from.Size])
	must(t, os.WriteFile(rb.path, b, 0o600))
	if _, got, err := readSnapshot(s, rb.head.name.String()); !errors.Is(err, ErrDamaged) || len(got) != snapshotChunk || !strings.Contains(err.Error(), "of another snapshot") {
		t.Errorf("%d bytes are read, %v", len(got), err)
	}
	// And one of the same, elsewhere.
	copy(own[to.Offset:], own[rb.values[2].Offset:][:to.Size])
	must(t, os.WriteFile(rb.path, own, 0o600))
	if _, got, err := readSnapshot(s, rb.head.name.String()); !errors.Is(err, ErrDamaged) || len(got) != snapshotChunk {
		t.Errorf("%d bytes are read, %v", len(got), err)
	}
}

// TestTheWholeIsCheckedBeforeItsLastByte: who reads as many bytes as there are,
// and not up to the end of the file, must not miss that they are wrong.
func TestTheWholeIsCheckedBeforeItsLastByte(t *testing.T) {
	s := newSnapshots(t, t.TempDir(), SnapshotOptions{})
	n, err := parseSnapshotName(writeSnapshot(t, s, 2, 2*snapshotChunk))
	must(t, err)
	r, err := openSnapshot(s.path(n), n)
	must(t, err)
	defer r.Close()
	r.head.sum++
	got, err := io.ReadFull(r, make([]byte, 2*snapshotChunk))
	if got != snapshotChunk || !errors.Is(err, ErrDamaged) {
		t.Errorf("%d bytes, %v", got, err)
	}
}

func TestASnapshotUnderAnothersNameIsRefused(t *testing.T) {
	s := newSnapshots(t, t.TempDir(), SnapshotOptions{})
	n, err := parseSnapshotName(writeSnapshot(t, s, 2, 100))
	must(t, err)
	other := n
	other.index = 900
	must(t, os.Rename(s.path(n), s.path(other)))
	if _, _, err := s.Open(other.String()); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	for _, id := range []string{"", "..", "../" + other.String(), n.String() + "0", strings.ToUpper("00000000000000aa-0000000000000001-0000000000000001")} {
		if _, _, err := s.Open(id); !errors.Is(err, errSnapshotName) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestAHeadIsReadAsItWasWrittenOrRefused(t *testing.T) {
	h := snapshotHead{name: snapshotName{1, 2, 3}, conf: someNodes}
	b := h.append(nil)
	if got, err := parseSnapshotHead(b); err != nil || fmt.Sprint(*got) != fmt.Sprint(h) {
		t.Errorf("%+v, %v", got, err)
	}
	for i := range b {
		for _, wrong := range []byte{b[i] ^ 1, b[i] ^ 0x80} {
			c := bytes.Clone(b)
			c[i] = wrong
			if _, err := parseSnapshotHead(c); !errors.Is(err, ErrDamaged) {
				t.Errorf("byte %d is wrong: %v", i, err)
			}
		}
		if _, err := parseSnapshotHead(b[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	order.PutUint32(b[12:], snapshotFormat+1)
	order.PutUint32(b[8:], checksum(b[12:]))
	_, err := parseSnapshotHead(b)
	if err = refuseSnapshot("x", err); !errors.Is(err, ErrFormat) || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "use the version") {
		t.Error(err)
	}
	long := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(strings.Repeat("x", 256))}}}
	if _, err := newSnapshots(t, t.TempDir(), SnapshotOptions{}).Create(1, 1, 1, long, 1, nil); err == nil {
		t.Error("an ID that does not fit is cut short")
	}
}

func FuzzSnapshotHead(f *testing.F) {
	h := snapshotHead{name: snapshotName{1, 2, 3}, conf: someNodes}
	f.Add(h.append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 16 {
			copy(b, snapshotMagic[:])
			order.PutUint32(b[8:], checksum(b[12:])) // so that all comes to be parsed
		}
		if h, err := parseSnapshotHead(b); err == nil && !bytes.Equal(h.append(nil), b) {
			t.Fatalf("%x is read as %+v", b, h)
		}
	})
}

// TestSnapshotsAreReadWhileOthersAreMade runs everything at once.
func TestSnapshotsAreReadWhileOthersAreMade(t *testing.T) {
	s := newSnapshots(t, t.TempDir(), SnapshotOptions{})
	const size, rounds = 300_000, 60
	writeSnapshot(t, s, 1, size)
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				list, err := s.List()
				if err != nil || len(list) == 0 {
					t.Errorf("%d are listed, %v", len(list), err)
					return
				}
				m, b, err := readSnapshot(s, list[0].ID)
				if err != nil && !errors.Is(err, os.ErrNotExist) || err == nil && !bytes.Equal(b, randomBytes(m.Index, size)) {
					t.Errorf("%d bytes, %v", len(b), err)
					return
				}
			}
		})
	}
	for i := range uint64(rounds) {
		writeSnapshot(t, s, 2+i, size)
	}
	done()
	wg.Wait()
}

// TestASnapshotTakesLittleMemory: a sink holds some chunks and no more, however
// slow the disk is.
func TestASnapshotTakesLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		o := SnapshotOptions{commit: func(do func() error) error { <-gate; return do() }}
		s := newSnapshots(t, t.TempDir(), o)
		sink, err := s.Create(1, 9, 3, someNodes, 1, nil)
		must(t, err)
		var written atomic.Int64
		done := make(chan error, 1)
		go func() {
			block := make([]byte, snapshotChunk)
			for range 200 {
				if _, err := sink.Write(block); err != nil {
					done <- err
					return
				}
				written.Add(1)
			}
			done <- nil
		}()
		synctest.Wait() // both goroutines wait for the disk
		if n := written.Load(); n != snapshotBuffers {
			t.Errorf("%d chunks are held while the disk does nothing, want %d", n, snapshotBuffers)
		}
		close(gate)
		must(t, <-done)
		must(t, sink.Close())
	})
}
