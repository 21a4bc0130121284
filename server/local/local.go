// Package local is the store of a single node: it decides a batch at once, in
// the memory of this process, at one reading of its own clock. Whether the
// state outlives the process is not its business: that is a drain of the same
// keyspace by someone else.
package local

import (
	"sync"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/store"
)

// Store is a store.Store on one keyspace. Any number of goroutines may run
// batches on it; a command on one key is atomic,
// one on several (DEL, UNLINK, EXISTS) takes them one after the other, and a
// batch is not atomic.
type Store struct {
	ks    *engine.Keyspace
	clock *Clock
	exec  store.Executor
	txs   sync.Pool
}

var _ store.Store = (*Store)(nil)

// New makes a store that runs requests through exec.
func New(ks *engine.Keyspace, clock *Clock, exec store.Executor) *Store {
	return &Store{ks: ks, clock: clock, exec: exec}
}

// Run decides the whole batch before it returns true.
func (s *Store) Run(b *store.Batch) bool {
	tx, _ := s.txs.Get().(*engine.Tx)
	if tx == nil {
		tx = new(engine.Tx)
	}
	s.ks.BeginInto(tx, s.clock.Now())
	done := false
	defer func() {
		// A command that panics ends its connection and nothing else: the
		// lock of its shard is released, the transaction is not used again.
		tx.End()
		if done {
			s.txs.Put(tx)
		}
	}()
	b.Out = s.exec.Execute(tx, b.Requests, b.Out)
	done = true
	return true
}

// FreezeClock stops the clock of decisions at ns, unix time.
func (s *Store) FreezeClock(ns int64) { s.clock.Freeze(ns) }

// RunClock lets the clock of decisions run again.
func (s *Store) RunClock() { s.clock.Run(s.ks.Latest()) }

// Reset empties the keyspace and forgets the latest time seen.
func (s *Store) Reset() error {
	s.ks.Reset()
	s.clock.Reset()
	return nil
}
