//go:build !unix

package command

import "time"

// cpuTime is not known here.
func cpuTime() (sys, user time.Duration) { return 0, 0 }
