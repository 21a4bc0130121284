package persist

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// TestAFullDiskIsToldApart fills a file system of its own, which only root may
// mount.
func TestAFullDiskIsToldApart(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Logf("a small file system cannot be mounted (%v): not tried", err)
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, LogFileName)
	l := newLog(t, path, LogOptions{})
	must(t, l.StoreLog(entry(1, 1, 1000)))

	s := newSnapshots(t, filepath.Join(dir, SnapshotDir), SnapshotOptions{})
	writeSnapshot(t, s, 1, 100_000)
	if _, err := tryWrite(s, 9, 8<<20); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a snapshot on a full disk: %v", err)
	}
	if got := files(t, s.dir); len(got) != 1 {
		t.Errorf("a snapshot that did not fit has left %q", got)
	}

	want := map[uint64]*raft.Log{1: entry(1, 1, 1000)}
	var err error
	for i := uint64(2); err == nil; i++ {
		e := entry(i, 1, 40<<10)
		if err = l.StoreLog(e); err == nil {
			want[i] = e
		}
		if i > 1000 {
			t.Fatal("40 MB fit onto a disk of 4 MiB")
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("an entry on a full disk: %v", err)
	}
	must(t, l.Close())
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	l = newLog(t, path, LogOptions{})
	sameLog(t, l, want)
	must(t, l.StoreLog(entry(uint64(len(want)+1), 1, 10)))
	must(t, l.Close())
	if got := listed(t, s, func(uint64) int { return 100_000 }); len(got) != 1 {
		t.Errorf("%v are listed", got)
	}
}
