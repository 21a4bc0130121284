package cluster

import (
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/engine/limit"
)

// frozen is the test clock of a node: it stands at a time, or lets the real one
// run. Any goroutine may use it.
type frozenClock struct{ at atomic.Int64 }

// runs is the value of frozenClock.at while the real clock runs.
const runs = -1

func (f *frozenClock) now() (ns int64, frozen bool) {
	ns = f.at.Load()
	return ns, ns != runs
}

// leaderClock is the time of decisions for as long as this node leads: it begins
// at a time that was agreed on when the leadership began and goes on by the
// monotonic clock, whatever the wall clock does meanwhile. It belongs to the
// proposer.
type leaderClock struct {
	frozen *frozenClock
	wall   func() time.Time
	anchor int64     // unix ns
	start  time.Time // when that was, by the monotonic clock
}

// now is the time, or latest if that is later.
func (c *leaderClock) now(latest int64) int64 {
	if at, frozen := c.frozen.now(); frozen {
		return max(at, latest)
	}
	t := c.anchor + int64(c.wall().Sub(c.start))
	return min(max(t, latest, 0), limit.MaxTime)
}

// reset begins anew at the wall clock's time.
func (c *leaderClock) reset() {
	c.start = c.wall()
	c.anchor = c.start.UnixNano()
}

// reading is what a node says of its clocks when a leader begins.
type reading struct {
	Latest   int64 `json:"latest"`   // time of the latest entry it has applied, unix ns
	Expected int64 `json:"expected"` // that, and the monotonic time since
	Agreed   bool  `json:"agreed"`   // its wall clock said the same when it applied that entry: Expected is about right
	Wall     int64 `json:"wall"`     // its wall clock
}

// skewTolerance is how far a wall clock may be ahead of what is expected.
const skewTolerance = 5 * time.Second

// begin is the time at which a new leader begins, from its own reading and those
// of others; together they are a majority. By the log and the monotonic clocks
// of the nodes it is at least so late; that is about right where a node was up
// and applied the last entry when it was new. The own wall clock is used if it is
// not more than skewTolerance ahead of that. Where no node was up, as after a full
// restart, the clocks of the majority decide: the lower one of the two in the
// middle, because a clock that is ahead gives units away and one that is behind
// does not. ahead is by how much the own wall clock was refused.
func begin(own reading, others []reading) (now int64, ahead time.Duration) {
	least, live := own.Expected, own.Agreed
	walls := []int64{own.Wall}
	for _, r := range others {
		least = max(least, r.Expected)
		live = live || r.Agreed
		walls = append(walls, r.Wall)
	}
	expected := least
	if !live {
		expected = max(least, lowerMedian(walls))
	}
	if own.Wall <= expected+int64(skewTolerance) {
		return max(own.Wall, least), 0
	}
	return expected, time.Duration(own.Wall - expected)
}
