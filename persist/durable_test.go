package persist

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// recording is a disk that notes what is done, with names below root.
func recording(root string, placed func(tmp string) error) (*durable, func(what, path string), *[]string) {
	var steps []string
	note := func(what, path string) {
		name, err := filepath.Rel(root, path)
		if err != nil {
			name = path
		}
		if strings.HasSuffix(name, newSuffix) {
			name = "unfinished" // it has a random part
		}
		steps = append(steps, what+" "+name)
	}
	return &durable{
		sync: func(f *os.File) error { note("sync", f.Name()); return onDisk.sync(f) },
		place: func(tmp, dest string) error {
			note("place", dest)
			return errors.Join(placed(tmp), onDisk.place(tmp, dest))
		},
		syncFolder: func(dir string) error { note("folder", dir); return onDisk.syncFolder(dir) },
	}, note, &steps
}

// whole is nil if a file is a complete state file.
func whole(path string) error {
	r, err := openReader(path, false)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.verify()
	return err
}

func TestANewStateIsOnDiskBeforeItsName(t *testing.T) {
	root := t.TempDir()
	disk, note, steps := recording(root, whole)
	o := still()
	o.disk = disk
	o.commit = func(do func() error) error { note("write", root); return do() }
	st, err := Open(filepath.Join(root, "a", "b"), o)
	must(t, err)
	must(t, st.Close())
	if want := []string{"folder a", "folder .", "write .", "place a/b/" + FileName, "folder a/b"}; !slices.Equal(*steps, want) {
		t.Fatalf("a new state in new folders took the steps\n%q, want\n%q", *steps, want)
	}
}

func TestABackupIsOnDiskBeforeItsName(t *testing.T) {
	dir, _ := sample(t)
	root := t.TempDir()
	disk, _, steps := recording(root, whole)
	_, err := backup(dir, filepath.Join(root, "copy.db"), *disk)
	must(t, err)
	if want := []string{"sync unfinished", "place copy.db", "folder ."}; !slices.Equal(*steps, want) {
		t.Fatalf("a backup took the steps\n%q, want\n%q", *steps, want)
	}
}

// TestADiskThatFailsLeavesNothing fails each step in turn.
func TestADiskThatFailsLeavesNothing(t *testing.T) {
	dir, _ := sample(t)
	fails := map[string]func(d *durable){
		"sync":   func(d *durable) { d.sync = func(*os.File) error { return errDisk } },
		"place":  func(d *durable) { d.place = func(string, string) error { return errDisk } },
		"folder": func(d *durable) { d.syncFolder = func(string) error { return errDisk } },
	}
	for name, fail := range fails {
		disk := onDisk
		fail(&disk)
		root := t.TempDir()
		dest := filepath.Join(root, "copy.db")
		if _, err := backup(dir, dest, disk); !errors.Is(err, errDisk) {
			t.Errorf("%s: backup: %v", name, err)
		}
		if left, _ := os.ReadDir(root); name != "folder" && len(left) > 0 {
			t.Errorf("%s: a backup that failed has left %v", name, left)
		}
		if name == "sync" {
			continue // of a new state bbolt syncs itself
		}
		o := still()
		o.disk = &disk
		if st, err := Open(root, o); !errors.Is(err, errDisk) {
			t.Errorf("%s: a new state: %v", name, err)
			if err == nil {
				st.Close()
			}
		}
		if _, err := os.Lstat(filepath.Join(root, FileName)); err == nil {
			t.Errorf("%s: a state that was not made is left", name)
		}
	}
}

func TestALockThatIsReleasedNamesNobody(t *testing.T) {
	dir := t.TempDir()
	st, err := Open(dir, still())
	must(t, err)
	lock := filepath.Join(dir, lockName)
	if b, err := os.ReadFile(lock); err != nil || len(b) == 0 {
		t.Fatalf("the lock in use holds %q, %v", b, err)
	}
	must(t, st.Close())
	if b, err := os.ReadFile(lock); err != nil || len(b) > 0 {
		t.Fatalf("the released lock holds %q, %v", b, err)
	}
}
