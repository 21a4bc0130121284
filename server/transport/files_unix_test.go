//go:build unix

package transport

import (
	"math"
	"syscall"
)

// openFiles is how many files this process may have open. The runtime has
// raised it to the hard limit.
func openFiles() uint64 {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return math.MaxUint64
	}
	return uint64(r.Cur)
}
