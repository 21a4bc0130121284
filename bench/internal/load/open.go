package load

import (
	"runtime"
	"time"
)

// maxRate is the fastest open loop, in requests per second.
const maxRate = 10_000_000

// maxWaiting is how many requests of one loop may wait for a reply before the
// run ends: past it the server does not keep up, and nothing is measured but
// how long that has been so.
const maxWaiting = 1 << 20

// schedule tells when the requests of one of several loops are to be sent:
// request k of them all, counted from 0, at k/rate after the start, and it is
// loop k mod loops that sends it.
type schedule struct {
	rate  float64 // of all loops together, per second
	loops int64
	next  int64         // number of this loop's next request
	total int64         // requests of all loops; 0: as many as fit into length
	until time.Duration // nothing is to be sent from then on; 0: no end but total
}

func newSchedule(c *Config, loop int) schedule {
	return schedule{rate: c.Rate, loops: int64(c.Loops), next: int64(loop), total: c.Requests, until: c.Duration}
}

// peek is when the next request is to be sent, counted from the start; false
// when there is none.
func (s *schedule) peek() (time.Duration, bool) {
	// From the number and not from the one before: nothing adds up.
	at := time.Duration(float64(s.next) * float64(time.Second) / s.rate)
	if s.total > 0 && s.next >= s.total || s.until > 0 && at >= s.until {
		return 0, false
	}
	return at, true
}

func (s *schedule) skip() { s.next += s.loops }

// queue holds when the requests of a connection were to be sent, oldest first.
type queue struct {
	list []time.Duration
	head int
}

func (q *queue) push(at time.Duration) {
	// What is gone is cut off when it is half of the list: each entry is moved
	// once at most for each that came.
	if 2*q.head >= len(q.list) {
		q.list, q.head = q.list[:copy(q.list, q.list[q.head:])], 0
	}
	q.list = append(q.list, at)
}

// pop must not be called on an empty queue.
func (q *queue) pop() time.Duration {
	at := q.list[q.head]
	q.head++
	return at
}

// runOpen is the open loop: whatever is due is sent, on one connection after
// the other, if need be behind requests that have no reply yet. It ends when
// the schedule does and everything sent is answered, and returns nil when it
// was stopped from outside.
func (l *loop) runOpen(start time.Time) error {
	// Only a thread of its own may change its timers. It is not unlocked: the
	// thread ends with the goroutine, and nobody inherits them.
	runtime.LockOSThread()
	preciseTimers()
	l.start = start
	s := newSchedule(l.config, l.index)
	waiting, turn := 0, 0
	for last := time.Duration(0); ; {
		now := time.Since(start)
		at, more := s.peek()
		for ; more && at <= now; at, more = s.peek() {
			s.skip()
			if waiting++; waiting > l.maxWaiting {
				return errBehind
			}
			if err := l.arrive(turn, at); err != nil {
				return err
			}
			turn = (turn + 1) % len(l.conns)
		}
		if !more && waiting == 0 {
			return nil
		}
		pause := 100 * time.Millisecond
		if more {
			pause = min(pause, at-time.Since(start))
		}
		ready, err := l.poll.waitExactly(pause)
		if err != nil {
			return err
		}
		if l.stop.Load() {
			return nil
		}
		before := l.replies
		for e := range ready {
			i, writable := l.poll.event(e)
			if writable {
				if err := l.flush(i); err != nil {
					return err
				}
			}
			if _, err := l.receive(l.conns[i]); err != nil {
				return err
			}
		}
		waiting -= int(l.replies - before)
		if now = time.Since(start); waiting == 0 || l.replies > before {
			last = now
		} else if now-last > l.config.Timeout {
			return errTimeout
		}
	}
}

// arrive sends one request on connection i, or keeps it for when the socket
// takes more.
func (l *loop) arrive(i int, at time.Duration) error {
	c := l.conns[i]
	c.out.setKey(0, l.keys.next())
	if len(c.rest) == 0 {
		c.rest = c.buffer[:0]
	}
	c.rest = append(c.rest, c.out.bytes...)
	if cap(c.rest) > cap(c.buffer) {
		c.buffer = c.rest
	}
	c.due.push(at)
	c.waiting++
	if c.full {
		return nil
	}
	return l.flush(i)
}
