//go:build unix

package main

import "syscall"

// openFiles is how many files this process may have open, 0 if unknown. The
// runtime has raised it to the hard limit.
func openFiles() uint64 {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return uint64(r.Cur)
}
