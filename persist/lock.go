package persist

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// lockName is the lock file within a state folder. It stays when the process
// ends: a lock file that is removed can be locked twice, once by who opened it
// before. The lock itself is the system's and ends with the process.
const lockName = "lock"

// folderLock keeps other processes out of a state folder.
type folderLock struct{ file *os.File }

// lockFolder takes the lock of a folder, or returns ErrLocked at once. Without
// create, a folder without a lock file has no user, and the lock is nil.
func lockFolder(dir string, create bool) (*folderLock, error) {
	path := filepath.Join(dir, lockName)
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		if !create && errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("open the lock of the state folder: %w", err)
	}
	if err := lockFile(f, true); err != nil {
		defer f.Close()
		if !errors.Is(err, ErrLocked) {
			return nil, fmt.Errorf("lock the state folder %s: %w", dir, err)
		}
		who := "another process"
		if pid := readPid(f); pid > 0 {
			who = fmt.Sprintf("process %d", pid)
		}
		return nil, locked(dir, who, err)
	}
	// For people and for the sentence above; the lock does not depend on it.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &folderLock{f}, nil
}

func (l *folderLock) release() error {
	if l == nil || l.file == nil {
		return nil
	}
	_ = l.file.Truncate(0)
	err := l.file.Close() // which unlocks
	l.file = nil
	return err
}

// readPid is the process number in a lock file, 0 if there is none.
func readPid(f *os.File) int {
	b := make([]byte, 32)
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	return pid
}
