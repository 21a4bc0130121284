package cluster

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/engine/store"
)

// ticket is one batch on its way to a decision. Whoever brings its state to done
// calls back, once; until then the batch's memory belongs to who has the state.
type ticket struct {
	batch   *store.Batch
	arrived time.Time
	before  int  // bytes of batch.Out that are not the batch's own
	slow    bool // a read that may take long: it runs beside the proposer
	relayed bool // came from another node: it is not sent on
	effects bool // it has changed something; set before the state is pending

	state atomic.Int32
}

// States of a ticket.
const (
	queued  = int32(iota) // waits to be run or sent on
	running               // someone is at work on the batch; it cannot be ended
	pending               // run, or sent on: its outcome is waited for
	done
)

// claim takes a queued ticket to work on. It fails if its time was over.
func (t *ticket) claim() bool { return t.state.CompareAndSwap(queued, running) }

// finish answers a ticket that is in the given state, if it still is.
func (t *ticket) finish(from int32, o store.Outcome, why string) bool {
	if !t.state.CompareAndSwap(from, done) {
		return false
	}
	b := t.batch
	b.Outcome, b.Why = o, why
	if o != store.Decided {
		b.Out = b.Out[:t.before]
	}
	t.batch = nil
	b.Done(b)
	return true
}

// undo makes a ticket that was run, or is being run, a queued one again: what it
// did is surely not applied. It fails if its time was over.
func (t *ticket) undo() bool {
	if t.state.Load() != running && !t.state.CompareAndSwap(pending, running) {
		return false
	}
	t.batch.Out = t.batch.Out[:t.before]
	t.effects = false
	t.state.Store(queued)
	return true
}

// Reasons that a client may read.
const (
	whyNoLeader  = "no leader is known: the nodes that can be reached are no majority, or are about to elect one"
	whyTime      = "the time for a decision is over"
	whyCommit    = "it was not confirmed by a majority in time"
	whyLost      = "the leader was lost before it had answered"
	whyDeposed   = "this node has lost its leadership"
	whyStopped   = "this node is stopping"
	whyForwarded = "the node it was sent to is no longer the leader"
	whyBusy      = "too much waits for a decision"
	whyTooLarge  = "it is too large to be sent to the leader: ask the leader itself"
	whyPanic     = "the command has failed: this is a fault of the program"
)

// deadlines ends tickets whose time is over. They come in the order of their
// arrival and have the same time, so it is a queue.
type deadlines struct {
	after time.Duration
	over  func(*ticket) bool // false: not now, look again soon

	mu    sync.Mutex
	queue []*ticket
	first int

	wake chan struct{}
	stop chan struct{}
	wg   sync.WaitGroup
}

func newDeadlines(after time.Duration, over func(*ticket) bool) *deadlines {
	d := &deadlines{after: after, over: over, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	d.wg.Go(d.run)
	return d
}

func (d *deadlines) add(t *ticket) {
	d.mu.Lock()
	if d.first > len(d.queue)/2 {
		n := copy(d.queue, d.queue[d.first:])
		clear(d.queue[n:])
		d.queue, d.first = d.queue[:n], 0
	}
	d.queue = append(d.queue, t)
	one := len(d.queue)-d.first == 1
	d.mu.Unlock()
	if one {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

// run looks at the head of the queue several times in the length of a deadline:
// a timer for each ticket would cost more than the ticket.
func (d *deadlines) run() {
	step := max(d.after/16, time.Millisecond)
	timer := time.NewTimer(step)
	defer timer.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-d.wake:
		}
		for more := true; more; {
			timer.Reset(step)
			select {
			case <-d.stop:
				return
			case <-timer.C:
			}
			more = d.look(time.Now())
		}
	}
}

// look ends what is over and reports whether anything is left.
func (d *deadlines) look(now time.Time) bool {
	d.mu.Lock()
	var ripe []*ticket
	for d.first < len(d.queue) {
		t := d.queue[d.first]
		if t.state.Load() != done && now.Sub(t.arrived) < d.after {
			break
		}
		if t.state.Load() != done {
			ripe = append(ripe, t)
		}
		d.queue[d.first] = nil
		d.first++
	}
	d.mu.Unlock()
	var again []*ticket
	for _, t := range ripe {
		if !d.over(t) && t.state.Load() != done {
			again = append(again, t)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(again) > 0 {
		d.queue = append(again, d.queue[d.first:]...)
		d.first = 0
	}
	return d.first < len(d.queue)
}

func (d *deadlines) close() {
	close(d.stop)
	d.wg.Wait()
}
