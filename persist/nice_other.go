//go:build !linux

package persist

// background is for Linux, where a thread has a priority of its own.
func background() {}
