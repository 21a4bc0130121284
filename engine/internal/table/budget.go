package table

import "sync/atomic"

// Budget is the memory that all tables of a keyspace share, in bytes. It may
// be used from several goroutines at once.
type Budget struct {
	used atomic.Int64
	max  atomic.Int64
}

// NewBudget makes a budget of max bytes; 0 means no bound.
func NewBudget(max int64) *Budget {
	b := new(Budget)
	b.max.Store(max)
	return b
}

// SetMax changes the bound. What is reserved already stays, also above it.
func (b *Budget) SetMax(max int64) { b.max.Store(max) }

// Max is the bound in bytes, 0 if there is none.
func (b *Budget) Max() int64 { return b.max.Load() }

// Used is how many bytes are reserved.
func (b *Budget) Used() int64 { return b.used.Load() }

// Reserve takes n bytes, or none and reports false if that would pass the
// bound. Taking 0 always succeeds.
func (b *Budget) Reserve(n int64) bool {
	if n == 0 {
		return true
	}
	// Looking before adding: what is refused must not be in the way of a
	// smaller need meanwhile.
	for {
		used, max := b.used.Load(), b.max.Load()
		if max > 0 && n > max-used {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Force takes n bytes whatever the bound says: for the bookkeeping of what is
// there already.
func (b *Budget) Force(n int64) { b.used.Add(n) }

// Release gives n bytes back.
func (b *Budget) Release(n int64) { b.used.Add(-n) }

// account is one table's share of a budget, so that a table can be closed as
// a whole. Like the table it belongs to, it is for one goroutine at a time.
type account struct {
	budget *Budget
	bytes  int64
	short  int64 // bytes that the budget lacked for what it refused last
	force  bool  // loading: the bound does not hold
	closed bool  // everything was given back; nothing counts any more
}

// take reserves n bytes if the budget has them.
func (a *account) take(n int) bool {
	if a.force || a.closed {
		a.must(n)
		return true
	}
	if !a.budget.Reserve(int64(n)) {
		// Others may have given something back since.
		a.short = max(1, int64(n)-(a.budget.Max()-a.budget.Used()))
		return false
	}
	a.bytes += int64(n)
	return true
}

// must reserves n bytes, past the bound too.
func (a *account) must(n int) {
	if a.closed {
		return
	}
	a.budget.Force(int64(n))
	a.bytes += int64(n)
}

// give returns n bytes.
func (a *account) give(n int) {
	if a.closed {
		return
	}
	a.budget.Release(int64(n))
	a.bytes -= int64(n)
}

func (a *account) close() {
	a.give(int(a.bytes))
	a.closed = true
}
