package command

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// spikes holds what LATENCY tells of: for each kind of event, how long it took
// whenever that was long. The zero value notes nothing; any number of
// goroutines may use one.
type spikes struct {
	from    atomic.Int64 // notes what takes as many ns; 0: nothing
	flushes int64        // flushes seen so far; WatchFlush alone uses it

	mu     sync.Mutex
	events []*spikeEvent // by name; there are as many as the program has kinds
}

// maxSamples is how many samples of an event are kept, as in Redis.
const maxSamples = 160

// spikeEvent is one kind of event.
type spikeEvent struct {
	name    string
	worst   int64 // ms, since the last reset
	samples []sample
}

// sample is the longest of an event within one second.
type sample struct{ unix, ms int64 }

// add notes that the event took ms at that unix time.
func (s *spikes) add(name string, unix, ms int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := slices.BinarySearchFunc(s.events, name, func(e *spikeEvent, name string) int { return strings.Compare(e.name, name) })
	if !found {
		s.events = slices.Insert(s.events, i, &spikeEvent{name: name})
	}
	e := s.events[i]
	e.worst = max(e.worst, ms)
	if n := len(e.samples); n > 0 && e.samples[n-1].unix == unix {
		e.samples[n-1].ms = max(e.samples[n-1].ms, ms)
		return
	}
	if len(e.samples) == maxSamples {
		e.samples = slices.Delete(e.samples, 0, 1)
	}
	e.samples = append(e.samples, sample{unix, ms})
}

// list is a copy of the events, sorted by name.
func (s *spikes) list() []spikeEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]spikeEvent, len(s.events))
	for i, e := range s.events {
		out[i] = spikeEvent{e.name, e.worst, slices.Clone(e.samples)}
	}
	return out
}

// find is a copy of the event of that name, in any case; without samples if
// there is none.
func (s *spikes) find(name []byte) spikeEvent {
	for _, e := range s.list() {
		if foldEqual(name, e.name) {
			return e
		}
	}
	return spikeEvent{}
}

// reset forgets the events named, all if none is, and returns how many.
func (s *spikes) reset(names [][]byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.events)
	s.events = slices.DeleteFunc(s.events, func(e *spikeEvent) bool {
		return len(names) == 0 || slices.ContainsFunc(names, func(name []byte) bool { return foldEqual(name, e.name) })
	})
	return before - len(s.events)
}
