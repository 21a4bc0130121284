package persist

import (
	"syscall"

	bolt "go.etcd.io/bbolt"
)

// unmap takes the pages of the first size bytes of the file, which must be
// mapped, out of this process's resident set. They stay in the system's cache, and looking at one
// again costs a page fault. bbolt's map is shared and only read, so nothing is
// lost.
func unmap(db *bolt.DB, size int64) error {
	at := db.Info().Data
	n := uintptr(size) &^ (uintptr(syscall.Getpagesize()) - 1)
	if n == 0 {
		return nil
	}
	if _, _, e := syscall.Syscall(syscall.SYS_MADVISE, at, n, syscall.MADV_DONTNEED); e != 0 {
		return e
	}
	return nil
}
