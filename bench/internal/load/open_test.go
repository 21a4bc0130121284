package load

import (
	"slices"
	"testing"
	"time"
)

func TestScheduleIsEvenAndSharedByTheLoops(t *testing.T) {
	var all []time.Duration
	for i := range 3 {
		s := newSchedule(&Config{Rate: 1000, Loops: 3, Duration: 10 * time.Millisecond}, i)
		for at, more := s.peek(); more; at, more = s.peek() {
			all = append(all, at)
			s.skip()
		}
	}
	slices.Sort(all)
	var want []time.Duration
	for k := range 10 { // nothing at 10 ms: there the time is over
		want = append(want, time.Duration(k)*time.Millisecond)
	}
	if !slices.Equal(all, want) {
		t.Errorf("%v, want %v", all, want)
	}

	// Far out nothing has added up: a rate that no whole ns divides.
	s := schedule{rate: 3, loops: 1, next: 3_000_000_000, total: 3_000_000_001}
	if at, more := s.peek(); !more || at != 1_000_000_000*time.Second {
		t.Errorf("request 3,000,000,000 at %v, %v", at, more)
	}
	if s.skip(); s.next != 3_000_000_001 {
		t.Errorf("next is %d", s.next)
	}
	if _, more := s.peek(); more {
		t.Error("there is a request beyond the last")
	}
}

func TestQueueKeepsOrderAndForgetsWhatIsGone(t *testing.T) {
	var q queue
	in, out := time.Duration(0), time.Duration(0)
	for round := range 1000 {
		for range 3 {
			q.push(in)
			in++
		}
		for range 2 + round%3 { // 3 on average, so the queue stays short
			if out == in {
				break
			}
			if got := q.pop(); got != out {
				t.Fatalf("%d came instead of %d", got, out)
			}
			out++
		}
	}
	if cap(q.list) > 64 {
		t.Errorf("%d places for a queue of %d", cap(q.list), in-out)
	}
}
