// Package load is a load generator for servers that speak the Redis protocol,
// over a fixed number of connections, in one of two shapes.
//
// A closed loop keeps a pipeline of fixed depth in flight on each connection:
// it finds out how much a server can do. When the server stalls, the loop
// stalls with it and sends less, so its percentiles leave out the requests that
// would have had to wait (coordinated omission).
//
// An open loop sends at a fixed rate, whatever the server does, as independent
// callers would. Latency is counted from the instant at which the request was to
// be sent: a stall of 100 ms shows in every request that fell into it.
//
// It is for measuring, so it is cheap: commands are encoded once, replies are
// counted and not decoded, and one thread serves many connections, because the
// generator shares the machine with the server it measures. It is not a client
// library: any error reply ends the run.
package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// maxReply is the longest reply that is understood, in bytes.
const maxReply = 64 << 10

// maxKeys is the number of keys that 12 digits can tell apart.
const maxKeys = 1_000_000_000_000

// Verdict says how a refusal looks in the reply's first integer.
type Verdict uint8

const (
	NeverRefused  Verdict = iota // no reply is a refusal (INCR)
	RefusedIfZero                // 0 refuses (THROTTLE and the Lua script)
	RefusedIfOne                 // 1 refuses (CL.THROTTLE)
)

// Config describes a run. It is bounded by Requests or by Duration: one of
// them is 0.
type Config struct {
	Addr       string        // host:port, or unix:/path
	Command    []string      // the command; Placeholder becomes a key number
	Conns      int           // connections
	Pipeline   int           // commands in flight on each
	Loops      int           // threads that serve the connections
	Keys       int64         // key numbers are 0 to Keys-1
	First      int64         // is added to every key number
	Sequential bool          // every key once in turn, instead of at random
	Zipf       float64       // exponent s: key number i is as frequent as 1/(i+1)^s; 0: all alike
	Rate       float64       // requests per second of an open loop; 0: a closed loop
	Requests   int64         // replies after which the run ends
	Duration   time.Duration // time after which nothing more is sent
	Timeout    time.Duration // longest wait for any reply; default 10 s
	Seed       uint64        // of the random keys
	Verdict    Verdict
}

// Validate returns a sentence if the run cannot be made.
func (c Config) Validate() error {
	switch {
	case len(c.Command) == 0:
		return errors.New("no command was given")
	case c.Conns < 1 || c.Pipeline < 1 || c.Loops < 1:
		return errors.New("connections, pipeline depth and loops must be at least 1")
	case c.Loops > c.Conns:
		return fmt.Errorf("%d loops need as many connections, there are %d", c.Loops, c.Conns)
	case c.Keys < 1 || c.First < 0 || c.Keys > maxKeys-c.First:
		return fmt.Errorf("the number of keys must be 1 to %d, with the first's", int64(maxKeys))
	case c.Zipf < 0 || c.Zipf > maxZipf || math.IsNaN(c.Zipf):
		return fmt.Errorf("the zipf exponent must be 0 to %d", maxZipf)
	case c.Zipf > 0 && (c.Sequential || c.Keys > maxZipfKeys):
		return fmt.Errorf("zipf keys are drawn at random from %d at most", maxZipfKeys)
	case c.Rate < 0 || c.Rate > maxRate || math.IsNaN(c.Rate):
		return fmt.Errorf("the rate must be 0 to %d a second", maxRate)
	case c.Rate > 0 && c.Pipeline > 1:
		return errors.New("an open loop sends single commands: the pipeline depth must be 1")
	case (c.Requests > 0) == (c.Duration > 0):
		return errors.New("a run needs either a number of requests or a duration")
	case c.Requests < 0 || c.Duration < 0 || c.Timeout < 0:
		return errors.New("requests, duration and time-out cannot be negative")
	}
	return nil
}

// Result is what a run measured.
type Result struct {
	Requests int64         // replies that came
	Refused  int64         // replies that refused
	Elapsed  time.Duration // from the first send to the last reply
	latency  *hdrhistogram.Histogram
}

// Rate is the replies per second.
func (r *Result) Rate() float64 { return float64(r.Requests) / r.Elapsed.Seconds() }

// RefusedShare is the share of refusals, 0 to 1.
func (r *Result) RefusedShare() float64 { return float64(r.Refused) / float64(max(r.Requests, 1)) }

// Add adds another run to this one: requests and time to the sums, latencies to
// the same percentiles.
func (r *Result) Add(other *Result) {
	r.Requests += other.Requests
	r.Refused += other.Refused
	r.Elapsed += other.Elapsed
	r.latency.Merge(other.latency)
}

// Latency is the given percentile (0 to 100). In a closed loop it is of the
// round trips: the time from sending a pipeline to having its last reply. In an
// open loop it is from the instant a request was to be sent to having its reply.
func (r *Result) Latency(percentile float64) time.Duration {
	return time.Duration(r.latency.ValueAtPercentile(percentile))
}

// maxLatency is the longest latency that is told apart.
const maxLatency = time.Minute

// Latencies are recorded in ns with three digits, up to maxLatency.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1_000, int64(maxLatency), 3)
}

// ServerError is an error reply. It ends the run.
type ServerError struct{ Text string }

func (e *ServerError) Error() string { return "the server replied with an error: " + e.Text }

var (
	errNotReply = errors.New("the server sent bytes that are no reply")
	errTooLong  = errors.New("the server sent a reply longer than 64 KiB")
	errClosed   = errors.New("the server closed the connection")
	errTimeout  = errors.New("the server did not answer in time")
	errBehind   = errors.New("the server does not keep up with the rate of the open loop: more than 1048576 requests wait for a reply")
)

// Run makes the run. All connections are open before the clock starts. It ends
// early with ctx's error when ctx is done, and with the first error of any
// connection.
func Run(ctx context.Context, c Config) (*Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	var stop atomic.Bool // polled by the loops: ctx is done, or another loop failed
	defer context.AfterFunc(ctx, func() { stop.Store(true) })()

	loops := make([]*loop, 0, c.Loops)
	defer func() {
		for _, l := range loops {
			l.close()
		}
	}()
	for i := range c.Loops {
		l, err := newLoop(&c, i, &stop)
		if err != nil {
			return nil, err
		}
		loops = append(loops, l)
	}

	errs := make([]error, len(loops))
	start := time.Now()
	var wg sync.WaitGroup
	for i, l := range loops {
		wg.Go(func() {
			run := l.run
			if c.Rate > 0 {
				run = l.runOpen
			}
			if errs[i] = run(start); errs[i] != nil {
				stop.Store(true)
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	total := &Result{Elapsed: elapsed, latency: newHistogram()}
	for _, l := range loops {
		total.Requests += l.replies
		total.Refused += l.refused
		total.latency.Merge(l.latency)
	}
	return total, nil
}

// share is loop i's part of total when n loops divide it: the parts differ by
// one at most and add up to the whole. from is what the loops before it have.
func share(total int64, i, n int) (from, part int64) {
	from = total/int64(n)*int64(i) + min(total%int64(n), int64(i))
	part = total / int64(n)
	if int64(i) < total%int64(n) {
		part++
	}
	return from, part
}
