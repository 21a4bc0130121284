package local

import (
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/engine/limit"
)

// Clock is the time of a single node's decisions, unix ns. It is the wall
// clock, but never runs backwards: when the wall clock is behind (it was set
// back, or the state was written under a later one), time goes on from where
// it was at the speed of the monotonic clock, so no refill stands still. Any
// number of goroutines may use one.
type Clock struct {
	read  func() time.Time // wall and monotonic reading
	start time.Time        // where the monotonic reading counts from

	// offset + monotonic time since start is the time. It only grows: each
	// reading of the wall clock that is ahead raises it.
	offset atomic.Int64

	// frozen is the time the test clock stands at, or running.
	frozen atomic.Int64
}

// running is the value of Clock.frozen while the clock runs.
const running = -1

// NewClock makes a running clock that begins no earlier than latest, unix ns.
func NewClock(latest int64) *Clock { return newClock(latest, time.Now) }

func newClock(latest int64, read func() time.Time) *Clock {
	c := &Clock{read: read, start: read()}
	c.offset.Store(max(c.start.UnixNano(), latest))
	c.frozen.Store(running)
	return c
}

// Now is the time, unix ns within 0 … limit.MaxTime.
func (c *Clock) Now() int64 {
	if f := c.frozen.Load(); f != running {
		return f
	}
	now, _ := c.now()
	return now
}

// now reads the running clock, and how far it is ahead of the wall clock.
func (c *Clock) now() (now, ahead int64) {
	t := c.read()
	return c.advance(t.Sub(c.start), t.UnixNano())
}

// advance takes a reading: the monotonic time since the start and the wall
// clock's unix ns.
func (c *Clock) advance(elapsed time.Duration, wall int64) (now, ahead int64) {
	least := wall - int64(elapsed) // the offset that makes the time the wall clock's
	offset := c.offset.Load()
	for offset < least && !c.offset.CompareAndSwap(offset, least) {
		offset = c.offset.Load()
	}
	now = min(max(max(offset, least)+int64(elapsed), 0), limit.MaxTime)
	return now, now - wall
}

// Ahead is how far the running clock is ahead of the wall clock, because that
// was set back. It is 0 while the clock is frozen.
func (c *Clock) Ahead() time.Duration {
	if c.frozen.Load() != running {
		return 0
	}
	_, ahead := c.now()
	return time.Duration(max(ahead, 0))
}

// Freeze stops the clock at ns, which must be within 0 … limit.MaxTime. It may
// be called again to move it, backwards too.
func (c *Clock) Freeze(ns int64) { c.frozen.Store(ns) }

// Run lets a frozen clock run again, from the wall clock's time or from latest
// if that is later: so time goes on even if it was frozen in the future.
func (c *Clock) Run(latest int64) {
	t := c.read()
	c.advance(t.Sub(c.start), latest)
	c.frozen.Store(running)
}

// Reset makes the running clock the wall clock again, however far ahead it is.
func (c *Clock) Reset() {
	t := c.read()
	c.offset.Store(t.UnixNano() - int64(t.Sub(c.start)))
}
