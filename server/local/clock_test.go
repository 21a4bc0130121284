package local

import (
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/engine/limit"
)

// hand is a pair of clocks that the test moves: the wall clock and the
// monotonic one. A time.Time made by adding to a reading of the real clock
// carries both, and Round(0) strips the monotonic one, so the two are moved
// apart by hand: newClock takes what it reads for granted.
type hand struct {
	base    time.Time // with a monotonic reading
	elapsed time.Duration
	step    time.Duration // of the wall clock against the monotonic one
}

// at returns the time of decisions as the clock under test would read it.
func (h *hand) at(c *Clock) int64 {
	now, _ := c.advance(h.elapsed, h.base.UnixNano()+int64(h.elapsed+h.step))
	return now
}

func newHand(latest int64) (*hand, *Clock) {
	h := &hand{base: time.Unix(1_900_000_000, 0)}
	return h, newClock(latest, func() time.Time { return h.base })
}

// TestTheClockNeverStandsStill fails when the clock runs backwards, stops
// because the wall clock is behind, or does not follow it when it is ahead.
func TestTheClockNeverStandsStill(t *testing.T) {
	h, c := newHand(0)
	start := h.base.UnixNano()
	for i, s := range []struct {
		elapsed, step, want time.Duration
	}{
		{0, 0, 0},
		{time.Second, 0, time.Second},
		{2 * time.Second, -time.Hour, 2 * time.Second},                                  // set back: goes on
		{3 * time.Second, -time.Hour, 3 * time.Second},                                  // at normal speed
		{4 * time.Second, 10 * time.Second, 14 * time.Second},                           // set forward: follows
		{5 * time.Second, 0, 15 * time.Second},                                          // corrected: goes on
		{15 * time.Second, 1 * time.Second, 25 * time.Second},                           // still behind
		{20 * time.Second, 10*time.Second + time.Millisecond, 30001 * time.Millisecond}, // has caught up
	} {
		h.elapsed, h.step = s.elapsed, s.step
		if got := time.Duration(h.at(c) - start); got != s.want {
			t.Errorf("reading %d: %v after the start, want %v", i, got, s.want)
		}
	}
}

// TestAClockThatBeginsBehindGoesOnFromTheLatestTime is the wall clock set back
// while the server was down.
func TestAClockThatBeginsBehindGoesOnFromTheLatestTime(t *testing.T) {
	latest := time.Unix(1_900_003_600, 0).UnixNano()
	h, c := newHand(latest)
	if got := h.at(c); got != latest {
		t.Errorf("begins at %d, want %d", got, latest)
	}
	if ahead := c.Ahead(); ahead != time.Hour {
		t.Errorf("is %v ahead, want 1h", ahead)
	}
	h.elapsed = 90 * time.Second
	if got, want := h.at(c), latest+int64(90*time.Second); got != want {
		t.Errorf("after 90 s it is %d, want %d", got, want)
	}
}

func TestTheClockKeepsWithinTheEnginesTime(t *testing.T) {
	h, c := newHand(limit.MaxTime - 5)
	h.elapsed = time.Hour
	if got := h.at(c); got != limit.MaxTime {
		t.Errorf("past the end of time it is %d", got)
	}
	early := newClock(0, func() time.Time { return time.Unix(-100, 0) })
	if got := early.Now(); got != 0 {
		t.Errorf("before 1970 it is %d, want 0", got)
	}
}

func TestFreezeMovesTheClockAndRunLetsItGo(t *testing.T) {
	h, c := newHand(0)
	for _, ns := range []int64{5, 1 << 61, 0, 7} {
		c.Freeze(ns)
		if got := c.Now(); got != ns || c.Ahead() != 0 {
			t.Errorf("frozen at %d it is %d, %v ahead", ns, got, c.Ahead())
		}
	}
	c.Run(0)
	if got := c.Now(); got != h.base.UnixNano() {
		t.Errorf("running again it is %d, want %d", got, h.base.UnixNano())
	}
}

// TestAClockFrozenInTheFutureGoesOnFromThere fails when time stands still after
// a frozen clock was let go, and when a reset does not bring it back.
func TestAClockFrozenInTheFutureGoesOnFromThere(t *testing.T) {
	h, c := newHand(0)
	future := h.base.Add(time.Hour).UnixNano()
	c.Freeze(future)
	c.Run(future)
	h.elapsed = time.Second
	if got, want := h.at(c), future+int64(time.Second); got != want {
		t.Errorf("a second later it is %d, want %d", got, want)
	}
	c.Reset()
	if got, want := c.Now(), h.base.UnixNano(); got != want {
		t.Errorf("after the reset it is %d, want %d", got, want)
	}
}

// TestTheClockIsMonotonicForManyReaders runs the real clock.
func TestTheClockIsMonotonicForManyReaders(t *testing.T) {
	c := NewClock(0)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := int64(0)
			for range 10_000 {
				now := c.Now()
				if now < last {
					t.Errorf("%d after %d", now, last)
					return
				}
				last = now
			}
		})
	}
	wg.Wait()
}
