package main

import "golang.org/x/sys/unix"

// monotonic is the system's monotonic clock in microseconds since it started,
// which Go's own does not show; 0 if it cannot be read.
func monotonic() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return t.Nano() / 1000
}
