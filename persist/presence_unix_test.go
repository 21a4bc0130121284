//go:build unix

package persist

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestWhatIsNoFileIsRefusedAtOnce fails when something that is no file, and may
// block who opens it, is opened.
func TestWhatIsNoFileIsRefusedAtOnce(t *testing.T) {
	// The path of a socket must be short.
	folder, err := os.MkdirTemp("", "stint")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	pipe, socket := filepath.Join(folder, "pipe"), filepath.Join(folder, "socket")
	must(t, syscall.Mkfifo(pipe, 0o600))
	l, err := net.Listen("unix", socket)
	must(t, err)
	defer l.Close()
	for name, target := range map[string]string{"pipe": pipe, "socket": socket, "device": os.DevNull, "folder": folder} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, FileName)
			must(t, os.Symlink(target, path))
			refused := func(what string, f func() error) {
				t.Helper()
				within(t, what, func() {
					if err := f(); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "no regular file") {
						t.Errorf("%s: %v", what, err)
					}
				})
			}
			refused("start", func() error { return second(Open(dir, still())) })
			refused("inspect of the folder", func() error { return Inspect(dir, &bytes.Buffer{}, InspectOptions{}) })
			refused("backup of the folder", func() error { return second(Backup(dir, filepath.Join(t.TempDir(), "b"))) })
			if name != "folder" {
				refused("inspect", func() error { return Inspect(path, &bytes.Buffer{}, InspectOptions{}) })
				refused("backup", func() error { return second(Backup(path, filepath.Join(t.TempDir(), "b"))) })
			}

			// The same under the lock's name.
			dir = t.TempDir()
			path = filepath.Join(dir, lockName)
			must(t, os.Symlink(target, path))
			refused("start with such a lock", func() error { return second(Open(dir, still())) })
		})
	}
}

// TestAPipeInTheStatesPlaceDoesNotHangAFlush puts one there while in use.
func TestAPipeInTheStatesPlaceDoesNotHangAFlush(t *testing.T) {
	var disk trouble
	o := still()
	o.commit = disk.commit
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	f, k := start(t, dir, o)
	k.set("a", 1)
	must(t, os.Remove(path))
	must(t, syscall.Mkfifo(path, 0o600))
	within(t, "a save", func() {
		if err := f.Save(); !errors.Is(err, ErrReplaced) {
			t.Errorf("saved to a pipe: %v", err)
		}
	})
	must(t, os.Remove(path))
	closed(t, f)
	got, _ := peek(t, dir)
	same(t, got, k, len(k.cuts))
}
