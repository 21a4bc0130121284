//go:build !linux

package main

// monotonic is 0: the service managers of other systems do not ask for it.
func monotonic() int64 { return 0 }
