package persist

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
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
type folderLock struct {
	file   *os.File
	signed bool // the number of this process is in it
}

// lockFolder takes the lock of a folder, or returns ErrLocked at once. Without
// create, a folder without a lock file has no user, and the lock is nil.
func lockFolder(dir string, create bool) (*folderLock, error) {
	path := filepath.Join(dir, lockName)
	for range lockTries {
		lock, err := tryLock(dir, path, create)
		if lock == nil || err != nil {
			return nil, err
		}
		// Between opening and locking it the file may have been removed, and
		// then the next one to come locks another.
		if found, err := os.Lstat(path); err == nil {
			if have, err := lock.file.Stat(); err == nil && os.SameFile(found, have) {
				lock.sign()
				return lock, nil
			}
		}
		_ = lock.release()
	}
	return nil, fmt.Errorf("lock the state folder %s: its lock file is removed again and again", dir)
}

// lockTries bounds the attempts to lock a file that is still there afterwards.
const lockTries = 10

// tryLock opens the lock file and locks it.
func tryLock(dir, path string, create bool) (*folderLock, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &fileError{
			fact:   fmt.Sprintf("%s is not a lock file of stint: it is no regular file; it was not touched", path),
			advice: "choose another folder with --dir, or move it away",
			tool:   "name the " + FileName + " of a server's folder, the folder, or a backup",
			kind:   ErrForeign, cause: fs.ErrInvalid,
		}
	}
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
	return &folderLock{file: f}, nil
}

// sign writes the number of this process into the lock file, for people and for
// the sentence above; the lock does not depend on it. A file with anything else
// in it is someone's, and keeps it.
func (l *folderLock) sign() {
	if info, err := l.file.Stat(); err != nil || info.Size() > 0 && readPid(l.file) <= 0 {
		return
	}
	if err := l.file.Truncate(0); err == nil {
		_, _ = l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		l.signed = true
	}
}

func (l *folderLock) release() error {
	if l == nil || l.file == nil {
		return nil
	}
	if l.signed {
		_ = l.file.Truncate(0)
	}
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
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}
