package load

import (
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// loop is one thread's part of a run: its connections, its budget and what it
// counted. Only its own goroutine touches it while it runs.
type loop struct {
	config  *Config
	index   int // of the run's loops
	stop    *atomic.Bool
	poll    poller
	conns   []*conn
	keys    keySource
	start   time.Time
	unsent  int64     // requests still to be sent; unused when the run is bounded by time
	end     time.Time // nothing is sent from then on; zero when the run is bounded by count
	replies int64
	refused int64
	latency *hdrhistogram.Histogram

	maxWaiting int // of an open loop; lower in tests
}

// conn is one connection. A pipeline is sent whole, and the next one only when
// every reply to it is there.
type conn struct {
	fd      int
	out     *pipeline
	rest    []byte // of out, not sent yet
	full    bool   // the socket took no more; the poller says when it does
	in      []byte
	filled  int // bytes of in
	waiting int // replies still to come
	sent    time.Time
	due     queue  // open loop: when the requests without a reply were to be sent
	buffer  []byte // open loop: what rest is kept in
}

// newLoop makes loop number i of the run and opens its connections.
func newLoop(c *Config, i int, stop *atomic.Bool) (*loop, error) {
	l := &loop{
		config:  c,
		index:   i,
		stop:    stop,
		latency: newHistogram(),

		maxWaiting: maxWaiting,
	}
	var first int64
	first, l.unsent = share(c.Requests, i, c.Loops)
	l.keys = newKeySource(c, i, first)
	if err := l.poll.open(); err != nil {
		return nil, err
	}
	_, conns := share(int64(c.Conns), i, c.Loops)
	for range conns {
		fd, err := dial(c.Addr)
		if err != nil {
			l.close()
			return nil, err
		}
		l.conns = append(l.conns, &conn{fd: fd, out: encode(c.Command, c.Pipeline), in: make([]byte, maxReply)})
		if err := l.poll.add(fd, len(l.conns)-1); err != nil {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

func (l *loop) close() {
	for _, c := range l.conns {
		closeFD(c.fd)
	}
	l.conns = nil
	l.poll.close()
}

// run is the closed loop: it sends and receives until the budget is used up and
// everything sent is answered. It returns nil when it was stopped from outside.
func (l *loop) run(start time.Time) error {
	l.start = start
	if l.config.Duration > 0 {
		l.end = start.Add(l.config.Duration)
	}
	busy := 0
	for i := range l.conns {
		sent, err := l.send(i, start)
		if err != nil {
			return err
		}
		if sent {
			busy++
		}
	}
	for last := start; busy > 0; {
		ready, err := l.poll.wait(100 * time.Millisecond)
		if err != nil {
			return err
		}
		if l.stop.Load() {
			return nil
		}
		if ready > 0 {
			last = time.Now()
		} else if time.Since(last) > l.config.Timeout {
			return errTimeout
		}
		for e := range ready {
			i, writable := l.poll.event(e)
			if writable {
				if err := l.flush(i); err != nil {
					return err
				}
			}
			done, err := l.receive(l.conns[i])
			if err != nil {
				return err
			}
			if !done {
				continue
			}
			now := time.Now()
			l.record(now.Sub(l.conns[i].sent))
			sent, err := l.send(i, now)
			if err != nil {
				return err
			}
			if !sent {
				busy--
			}
		}
	}
	return nil
}

// send starts the next pipeline of connection i; false when the budget is used
// up.
func (l *loop) send(i int, now time.Time) (bool, error) {
	c := l.conns[i]
	n := l.config.Pipeline
	if l.end.IsZero() {
		n = int(min(int64(n), l.unsent))
		l.unsent -= int64(n)
	} else if !now.Before(l.end) {
		n = 0
	}
	if n == 0 {
		return false, nil
	}
	for command := range n {
		c.out.setKey(command, l.keys.next())
	}
	c.rest = c.out.bytes[:n*c.out.size]
	c.waiting = n
	c.sent = now
	return true, l.flush(i)
}

// record counts a latency; one out of the histogram's range as its greatest.
func (l *loop) record(d time.Duration) {
	_ = l.latency.RecordValue(int64(min(d, maxLatency)))
}

// flush sends what the socket takes, and asks to be told when it takes more.
func (l *loop) flush(i int) error {
	c := l.conns[i]
	n, err := write(c.fd, c.rest)
	if err != nil {
		return err
	}
	c.rest = c.rest[n:]
	if full := len(c.rest) > 0; full != c.full {
		c.full = full
		return l.poll.wantWrite(c.fd, i, full)
	}
	return nil
}

// receive reads once and counts the replies; true when the pipeline is
// answered in full.
func (l *loop) receive(c *conn) (bool, error) {
	n, err := read(c.fd, c.in[c.filled:])
	if err != nil {
		return false, err
	}
	if n == 0 {
		return false, nil // nothing there after all
	}
	c.filled += n
	now := time.Duration(0) // of the open loop
	if l.config.Rate > 0 {
		now = time.Since(l.start)
	}
	from := 0
	for c.waiting > 0 {
		r, size := nextReply(c.in[from:c.filled])
		if size < 0 {
			return false, errNotReply
		}
		if size == 0 {
			break
		}
		if r.failure != nil {
			return false, &ServerError{Text: string(r.failure)}
		}
		from += size
		c.waiting--
		l.replies++
		if l.config.Rate > 0 {
			l.record(now - c.due.pop())
		}
		if r.hasFirst && (l.config.Verdict == RefusedIfZero && r.first == 0 || l.config.Verdict == RefusedIfOne && r.first == 1) {
			l.refused++
		}
	}
	if c.waiting == 0 {
		if from < c.filled {
			return false, errNotReply // more than was asked for
		}
		c.filled = 0
		return true, nil
	}
	c.filled = copy(c.in, c.in[from:c.filled])
	if c.filled == len(c.in) {
		return false, errTooLong
	}
	return false, nil
}
