package persist

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/stint-dev/stint/engine"
)

// DirLock is the lock of a folder that no State has opened: a cluster's node's.
type DirLock struct{ lock *folderLock }

// LockDir locks a folder, which is made if there is none, until Release or the
// end of the process. The error wraps ErrLocked, at once, if another process uses
// it, as a single node or as one of a cluster.
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
// cluster's node, both or nothing. A folder that is not there holds nothing.
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

// ReadState reads a single node's state file, or the one in a folder, that no
// server uses. It gives head the latest time of any decision in it, unix ns, once,
// and then changes its chunks in order, as package engine encodes them: who loads
// one after the other has the state. Each is verified, as Load does, before it is
// given; a chunk is valid during the call. What came before an error must not be
// used.
//
// Errors are as Load's, ErrLocked, or what head or changes returned.
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
	var theirs error // which does not blame the file
	err = r.chunks(func(p chunkPlace, payload []byte) error {
		if err := engine.VisitChunk(payload, func(*engine.Change) error { return nil }); err != nil {
			return damaged("chunk %d of %s: %w", p.index, p, err)
		}
		theirs = changes(payload)
		return theirs
	})
	if theirs != nil {
		return theirs
	}
	return refuse(path, err)
}
