package command

import "sync"

// rate is how many commands run in a second, over the last moments. The zero
// value is ready; any number of goroutines may use one.
type rate struct {
	mu      sync.Mutex
	samples [rateSamples]struct{ at, count int64 } // a ring
	n       int                                    // samples taken so far
}

// rateSamples is over how many samples the rate is taken, as in Redis.
const rateSamples = 16

// sample notes the count at the time at (Ticks).
func (r *rate) sample(at, count int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n > 0 && count < r.samples[(r.n-1)%rateSamples].count {
		r.n = 0 // the counter was set back
	}
	s := &r.samples[r.n%rateSamples]
	s.at, s.count = at, count
	r.n++
}

// perSecond is the mean between the oldest sample and the latest.
func (r *rate) perSecond() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n < 2 {
		return 0
	}
	latest, oldest := r.samples[(r.n-1)%rateSamples], r.samples[0]
	if r.n > rateSamples {
		oldest = r.samples[r.n%rateSamples]
	}
	if latest.at <= oldest.at {
		return 0
	}
	return int64(float64(latest.count-oldest.count) * 1e9 / float64(latest.at-oldest.at))
}

// Sample notes how many commands were run by now, for the rate that INFO tells.
// Whoever runs now and then calls it, a few times a second.
func (s *Server) Sample() { s.rate.sample(Ticks(), s.Counters.Commands.Load()) }
