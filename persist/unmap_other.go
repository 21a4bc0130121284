//go:build !linux

package persist

import bolt "go.etcd.io/bbolt"

// unmap does nothing here: the pages of a file that were looked at go when the
// system needs their memory.
func unmap(*bolt.DB, int64) error { return nil }
