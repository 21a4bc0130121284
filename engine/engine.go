// Package engine is the keyspace of a rate limiter: sharded tables of token
// buckets, leaky buckets and windows, and the transactions that decide on them.
//
// It is embeddable by itself. It has no clock, no goroutine, no I/O and no
// log: every transaction is given its time (unix nanoseconds), and whoever
// embeds the engine calls Sweep now and then and drains changes if they are to
// be kept. A Keyspace may be used from any number of goroutines; a Tx belongs
// to one.
package engine

import "github.com/stint-dev/stint/engine/limit"

// Tx is a transaction: reads, writes and decisions at one time.
type Tx struct {
	now int64
	v   limit.Value
}
