//go:build !race

package table

// The race detector makes sync.Pool forget at random, so allocations are
// counted only without it.
func init() { countAllocs = true }
