package command

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
	"github.com/stint-dev/stint/engine/store"
	"github.com/stint-dev/stint/server/resp"
)

// FailMode is how decisions are answered that cannot be made.
type FailMode uint8

const (
	FailError  FailMode = iota // CLUSTERDOWN
	FailOpen                   // allowed
	FailClosed                 // refused, with a wait of a second
	FailLocal                  // by this node's share of the limit, in its own memory
)

// FailModes are their names.
var FailModes = []string{"error", "open", "closed", "local"}

func (m FailMode) String() string { return FailModes[m] }

// Fallback answers decisions that cannot be made, and surely were not. It may be
// used from any goroutine; the zero value answers nothing.
type Fallback struct {
	Mode   FailMode
	Voters func() int       // nodes that share a limit in mode local
	State  *engine.Keyspace // what was last agreed on, which mode local goes on from
	Clock  func() int64     // unix ns

	// Changed, if not nil, is told when a failure mode begins, with why, and when
	// it ends, with how many decisions it has answered.
	Changed func(active bool, why string, answered int64)

	Answered [4]atomic.Int64 // by mode
	active   atomic.Bool
	last     atomic.Int64 // when a decision could not be made last, unix ns

	mu    sync.Mutex
	since int64 // answers before this outage
	exec  *Executor
	ks    *engine.Keyspace // of this outage
	nodes int64
}

// Active says whether decisions are answered by a failure mode now.
func (f *Fallback) Active() bool { return f.active.Load() }

// total is how many decisions were answered.
func (f *Fallback) total() (n int64) {
	for i := range f.Answered {
		n += f.Answered[i].Load()
	}
	return n
}

// begin notes that no decision can be made.
func (f *Fallback) begin(why string) {
	f.last.Store(f.Clock())
	if f.active.Swap(true) {
		return
	}
	f.mu.Lock()
	f.since = f.total()
	f.ks, f.exec = nil, nil // an answer may have come between the end and here
	f.mu.Unlock()
	if f.Changed != nil {
		f.Changed(true, why, 0)
	}
}

// calm is how long no decision may have failed before an outage is over, ns. Under
// too much load some are made and others not: each of these moments by itself would
// be a line in the log, and a fresh share of every limit.
const calm = int64(time.Second)

// End notes that a decision was made. When none has failed for a second the outage
// is over, and what was decided locally counts no more. It costs a comparison while
// all is well.
func (f *Fallback) End() {
	if !f.active.Load() {
		return
	}
	if since := f.Clock() - f.last.Load(); since >= 0 && since < calm || !f.active.Swap(false) {
		return
	}
	f.mu.Lock()
	answered := f.total() - f.since
	f.ks, f.exec = nil, nil
	f.mu.Unlock()
	if f.Changed != nil {
		f.Changed(false, "", answered)
	}
}

// Takes says whether a command is one that the mode answers.
func (f *Fallback) Takes(cmd int32) bool {
	if f.Mode == FailError {
		return false
	}
	switch At(cmd).Name {
	case "throttle", "leak", "window", "cl.throttle":
		return true
	}
	return false
}

// Failed counts a command that is answered with an error, for why.
func (f *Fallback) Failed(why string) {
	f.begin(why)
	f.Answered[FailError].Add(1)
}

// Answer appends the mode's answer to a decision: the reply as it would be, or the
// error that its arguments deserve.
func (f *Fallback) Answer(r store.Request, why string, out []byte) []byte {
	f.begin(why)
	f.Answered[f.Mode].Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	before := len(out)
	if f.Mode == FailLocal {
		out, err := f.local(r, out)
		if err != nil {
			return appendLine(out[:before], ErrDown(why))
		}
		return out
	}
	// An empty keyspace tells what the arguments mean.
	ks, err := engine.New(engine.Options{Shards: 1})
	if err != nil {
		return appendLine(out, ErrDown(why))
	}
	tx := ks.Begin(f.Clock())
	reply := new(Executor).Execute(tx, []store.Request{r}, nil)
	tx.End()
	n, ok := resp.ParseInts5(reply)
	if !ok {
		return append(out, reply...)
	}
	w := resp.Writer{B: out, Proto: r.Proto}
	cell := At(r.Cmd).Name == "cl.throttle"
	switch {
	case f.Mode == FailOpen && cell:
		w.Ints5(0, n[1], 0, -1, 0)
	case f.Mode == FailOpen:
		w.Ints5(1, n[1], 0, 0, 0)
	case cell:
		w.Ints5(1, n[1], 0, 1, 0)
	default:
		w.Ints5(0, n[1], 0, 1000, 0)
	}
	return w.B
}

// local decides by the share of the limit. mu is held.
func (f *Fallback) local(r store.Request, out []byte) ([]byte, error) {
	if f.ks == nil {
		ks, err := engine.New(engine.Options{Shards: 1, MaxMemory: localMemory})
		if err != nil {
			return out, err
		}
		f.ks, f.exec, f.nodes = ks, &Executor{share: f}, max(1, int64(f.Voters()))
	}
	tx := f.ks.Begin(f.Clock())
	defer tx.End()
	return f.exec.Execute(tx, []store.Request{r}, out), nil
}

// localMemory bounds what is decided locally in one outage, bytes.
const localMemory = 256 << 20

// bucket is the share of a bucket's limit. A key that this outage knows nothing of
// begins with its share of what was used, as last agreed on.
func (f *Fallback) bucket(c *Ctx, kind limit.Kind, l limit.BucketLimit) limit.BucketLimit {
	l = l.Share(f.nodes)
	if used := f.seed(c, kind); used > 0 {
		if kind == limit.KindLeak {
			// A leaky bucket takes no more than it holds.
			_, _ = c.Tx.Leak(c.Args[1], l, min(used, l.Capacity), limit.Consume)
		} else {
			_, _ = c.Tx.Throttle(c.Args[1], l, used, limit.Force)
		}
	}
	return l
}

// window is bucket for windows.
func (f *Fallback) window(c *Ctx, kind limit.Kind, l limit.WindowLimit) limit.WindowLimit {
	l = l.Share(f.nodes)
	if used := f.seed(c, kind); used > 0 {
		_, _ = c.Tx.Window(kind, c.Args[1], l, used, limit.Force)
	}
	return l
}

// seed is the share of what the key has used, 0 if there is a local state already.
// That is full again only when what it began with has run out everywhere: a share
// refills by its share of the rate.
func (f *Fallback) seed(c *Ctx, kind limit.Kind) int64 {
	if _, ok := c.Tx.Inspect(c.Args[1]); ok {
		return 0
	}
	tx := f.State.Begin(c.Tx.Now())
	defer tx.End()
	tx.Select(c.DB)
	i, ok := tx.Inspect(c.Args[1])
	if !ok || i.Kind != kind || i.Used <= 0 {
		return 0
	}
	return (i.Used + f.nodes - 1) / f.nodes
}

func appendLine(out []byte, line string) []byte {
	w := resp.Writer{B: out}
	w.Error(line)
	return w.B
}
