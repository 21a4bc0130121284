package persist

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockByte lies past anything that is read: Windows locks bytes against reading
// too, and a lock file's number must stay readable.
const lockByte = 1 << 30

// lockFile locks an open file without waiting, for this handle alone if
// exclusive. ErrLocked: someone else has it.
func lockFile(f *os.File, exclusive bool) error {
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{Offset: lockByte})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

// letGo unlocks and closes a file: a closed handle holds no lock.
func letGo(f *os.File) { f.Close() }

// syncFolder has nothing to do: names are durable with the file system's own
// journal.
func syncFolder(string) error { return nil }
