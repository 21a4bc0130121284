//go:build !linux

package command

// residentBytes is the resident set of the process, 0 if it is not known.
func residentBytes() int64 { return 0 }
