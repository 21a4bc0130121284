package server

import "time"

// Upkeep's bounds: full buckets are forgotten every upkeepEvery in steps of
// sweepSteps, with rests of at most sweepRest between, and sweepFor of work at
// most, so that it never takes more than a tenth of a processor.
const (
	upkeepEvery = 100 * time.Millisecond
	sweepFor    = 10 * time.Millisecond
	sweepRest   = 2 * time.Millisecond
	sweepSteps  = 64
)

// clockTolerance is how far the clock of decisions may be ahead of the wall
// clock without a word.
const clockTolerance = 5 * time.Second

// flushEvery is after how many rounds the last flush is looked at: there is
// seldom more than one in that time.
const flushEvery = 10

// upkeep is the goroutine of what has to happen now and then: it forgets full
// buckets, watches the clock, and notes for LATENCY what took long: a sweep, a
// flush, or a pause of the whole process, which makes a round come late.
func (s *Server) upkeep() {
	ticker := time.NewTicker(upkeepEvery)
	defer ticker.Stop()
	warned := false
	ended := time.Now()
	for round := 0; ; round++ {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		begun := time.Now()
		s.info.Spike("pause", begun.Sub(ended)-upkeepEvery)
		s.sweep()
		s.info.Spike("sweep", time.Since(begun))
		s.info.Sample()
		if round%flushEvery == 0 {
			s.info.WatchFlush()
		}
		warned = s.watchClock(warned)
		ended = time.Now()
	}
}

// sweep forgets full buckets. After each step it rests for as long as that took:
// decisions that want the same processor wait for a step, not for all of them.
func (s *Server) sweep() {
	for worked := time.Duration(0); worked < sweepFor; {
		begun := time.Now()
		if !s.cfg.Keyspace.Sweep(sweepSteps) {
			return
		}
		took := time.Since(begun)
		worked += took
		time.Sleep(min(took, sweepRest))
	}
}

// watchClock says once that the wall clock is behind, and once that it has
// caught up: until then decisions go by the monotonic clock.
func (s *Server) watchClock(warned bool) bool {
	ahead := s.clock.Ahead()
	switch {
	case !warned && ahead > clockTolerance:
		s.cfg.Log.Warn("the wall clock was set back: decisions go on by the monotonic clock from the latest time seen",
			"ahead", ahead.Round(time.Millisecond))
		return true
	case warned && ahead <= clockTolerance:
		s.cfg.Log.Info("the wall clock has caught up with the time of decisions")
		return false
	}
	return warned
}
