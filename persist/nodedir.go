package persist

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// DirLock is the lock of a folder that no State has opened.
type DirLock struct{ lock *folderLock }

// LockDir locks a folder, which is made if there is none. The error wraps
// ErrLocked if another process uses it.
func LockDir(dir string) (*DirLock, error) {
	if err := makeFolder(dir, &onDisk); err != nil {
		return nil, err
	}
	lock, err := lockFolder(dir, true)
	if err != nil {
		return nil, err
	}
	return &DirLock{lock}, nil
}

// Release gives the folder back.
func (l *DirLock) Release() error { return l.lock.release() }

// Holds says what a folder holds: a single node's state file, the log of a
// cluster's node, both or nothing.
func Holds(dir string) (state, log bool, err error) {
	for name, there := range map[string]*bool{FileName: &state, LogFileName: &log} {
		_, err := os.Lstat(filepath.Join(dir, name))
		if err == nil {
			*there = true
		} else if !errors.Is(err, fs.ErrNotExist) {
			return false, false, fmt.Errorf("look into the folder %s: %w", dir, err)
		}
	}
	return state, log, nil
}

// ReadState gives the state file of a single node, or of a folder, that no server
// uses to the functions: first the latest time of any decision in it, unix ns, and
// then its changes in order, as package engine encodes them, all verified. Errors
// are as Load's, or the functions'.
func ReadState(source string, head func(latest int64) error, changes func(chunk []byte) error) error {
	path, err := stateFile(source)
	if err != nil {
		return err
	}
	r, err := openReader(path, true)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := head(r.hdr.latest); err != nil {
		return err
	}
	return refuse(path, r.chunks(func(_ chunkPlace, payload []byte) error { return changes(payload) }))
}

// syncFolderOf makes the name of a file durable.
func syncFolderOf(path string) error {
	if err := onDisk.syncFolder(filepath.Dir(path)); err != nil {
		return fmt.Errorf("make the name of %s durable: %w", path, err)
	}
	return nil
}
