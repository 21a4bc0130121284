//go:build unix

package command

import (
	"syscall"
	"time"
)

// cpuTime is how long the process ran in the kernel and in its own code.
func cpuTime() (sys, user time.Duration) {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0, 0
	}
	return time.Duration(usage.Stime.Nano()), time.Duration(usage.Utime.Nano())
}
