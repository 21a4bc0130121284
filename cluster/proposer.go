package cluster

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/store"
)

// proposer decides batches while this node leads. It belongs to one goroutine,
// and has one entry in flight: while that is committed the next batches gather,
// and so entries become as large as the load needs, without any waiting.
type proposer struct {
	g       *Group
	term    uint64
	n       uint64 // of the last entry that was proposed, or taken, in this term
	clock   *leaderClock
	overlay *engine.Overlay

	logged int64 // latest time in the log, unix ns: where the next leader begins at the least
	tasks  []*ticket
	set    []*ticket // run, and not answered
}

// Bounds of what is run at a time.
const (
	entryBytes = 1 << 20 // of effects, about: more is left for the next entry
	timeLag    = int64(time.Second)
)

// errDeposed ends a leadership whose end Raft has not told yet.
var errDeposed = errors.New("the leadership is over")

// serve decides until the leadership ends or an outcome is unknown.
func (p *proposer) serve(ctx context.Context) error {
	for {
		if p.tasks = p.g.take(p.tasks[:0]); len(p.tasks) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-p.g.work:
				continue
			case o := <-p.g.orders:
				o.done <- p.order(o)
				if p.g.raft.State() != raft.Leader {
					return errDeposed
				}
				continue
			}
		}
		select {
		case o := <-p.g.orders:
			o.done <- p.order(o)
		default:
		}
		if ctx.Err() != nil {
			p.g.untake(p.tasks)
			return ctx.Err()
		}
		rest, err := p.round(ctx, p.tasks)
		p.g.untake(rest)
		if len(rest) > 0 {
			select {
			case p.g.work <- struct{}{}:
			default:
			}
		}
		if err != nil {
			return err
		}
	}
}

// round runs tickets in order, has their effects committed or the leadership
// confirmed, and answers them. It returns those that are left for the next, or
// that surely were not applied and can be tried again.
func (p *proposer) round(ctx context.Context, tasks []*ticket) (rest []*ticket, err error) {
	g := p.g
	drained := time.Now()
	p.set = p.set[:0]
	data, now, rest := p.run(tasks)
	defer func() { clear(p.set) }()
	g.count.batches.Add(uint64(len(p.set)))
	switch {
	case data != nil:
		err = p.commit(data, now)
	case now > p.logged+timeLag:
		// The next leader must not decide before what was answered here.
		err = p.commit(p.entry(entryEffects, now, nil), now)
	default:
		if !g.confirm(ctx, p.term, drained) {
			err = errDeposed
		}
		g.count.confirmed.Add(1)
	}
	switch {
	case err == nil:
		for _, t := range p.set {
			t.finish(pending, store.Decided, "")
		}
	case errors.Is(err, errNotApplied):
		again := make([]*ticket, 0, len(p.set)+len(rest))
		for _, t := range p.set {
			if t.undo() {
				again = append(again, t)
			}
		}
		rest = append(again, rest...)
	default:
		for _, t := range p.set {
			g.giveUp(t, whyDeposed)
		}
	}
	return rest, err
}

// run runs tickets on the overlay, above the committed state, at one time, until
// their effects fill an entry. Those that were run are in p.set, pending. data is
// the entry, nil if there are no effects.
func (p *proposer) run(tasks []*ticket) (data []byte, now int64, rest []*ticket) {
	g := p.g
	g.fsm.mu.Lock()
	defer g.fsm.mu.Unlock()
	now = p.clock.now(g.fsm.ks.Latest())
	for again := true; again; {
		again = false
		tx := p.overlay.Begin(now)
		now = tx.Now()
		rest = nil
		for i, t := range tasks {
			if p.overlay.Size() >= entryBytes {
				rest = tasks[i:]
				break
			}
			if t == nil || t.state.Load() != running && !t.claim() {
				continue // its time was over
			}
			writes := p.overlay.Writes()
			if !g.runOne(tx, t) {
				// What a command has left behind when it panicked is not known:
				// the overlay is dropped, and the others are run again.
				t.finish(running, store.NotApplied, whyPanic)
				tasks[i] = nil
				again = true
				break
			}
			t.effects = p.overlay.Writes() != writes
		}
	}
	for _, t := range tasks[:len(tasks)-len(rest)] {
		if t != nil && t.state.CompareAndSwap(running, pending) {
			p.set = append(p.set, t)
		}
	}
	for i, t := range rest {
		if t != nil && t.state.Load() == running {
			rest[i].undo()
		}
	}
	if p.overlay.Writes() == 0 {
		return nil, now, rest
	}
	return p.overlay.Append(p.entry(entryEffects, now, make([]byte, 0, p.overlay.Size()+64))), now, rest
}

// entry appends the head of the next entry.
func (p *proposer) entry(kind entryKind, now int64, dst []byte) []byte {
	return appendEntryHead(dst, kind, p.term, p.n+1, now)
}

// runOne runs a batch; it returns false if that panicked.
func (g *Group) runOne(tx *engine.Tx, t *ticket) (ok bool) {
	b := t.batch
	b.Out = b.Out[:t.before]
	defer func() {
		if v := recover(); v != nil {
			g.log.Error("a command has panicked: this is a fault of the program; its connection gets an error", "panic", v, "stack", string(debug.Stack()))
			b.Out = b.Out[:t.before]
		}
	}()
	b.Out = g.cfg.Executor.Execute(tx, b.Requests, b.Out)
	g.count.commands.Add(uint64(len(b.Requests)))
	return true
}

// errNotApplied: an entry surely has not been applied and never will be.
var errNotApplied = errors.New("the entry was not applied")

// commit proposes an entry and waits until it was applied here. An error that is
// not errNotApplied leaves open whether it was, or will be.
func (p *proposer) commit(data []byte, now int64) error {
	g := p.g
	if g.bug == bugEarlyReply {
		for _, t := range p.set {
			if t != nil { // an order's entry has no batches
				t.finish(pending, store.Decided, "")
			}
		}
	}
	f := g.raft.Apply(data, enqueueTimeout)
	if g.bug == bugEarlyDrop {
		p.dropEarly(f)
		return nil
	}
	switch err := g.await(f); {
	case err == nil:
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return errNotApplied
	default:
		return err
	}
	if _, refused := f.Response().(refusedEntry); refused {
		return errNotApplied
	}
	p.n++
	p.logged = max(p.logged, now)
	g.count.entries.Add(1)
	g.count.entryBytes.Add(uint64(len(data)))
	return nil
}

// await waits for a future of Raft's, or until Raft has stopped: then some are never
// answered.
func (g *Group) await(f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-g.halted:
		return raft.ErrRaftShutdown
	}
}

// dropEarly is a seeded fault: the next batch does not see this one's effects.
func (p *proposer) dropEarly(f raft.ApplyFuture) {
	set := append([]*ticket(nil), p.set...)
	p.set = p.set[:0]
	p.n++
	go func() {
		if f.Error() == nil {
			for _, t := range set {
				t.finish(pending, store.Decided, "")
			}
		}
	}()
}

// enqueueTimeout bounds the wait for Raft to take an entry.
const enqueueTimeout = 5 * time.Second

// order is an entry that is not a batch's.
type order struct {
	kind    entryKind
	payload []byte
	done    chan error
}

func (p *proposer) order(o order) error {
	p.g.fsm.mu.Lock()
	now := p.clock.now(p.g.fsm.ks.Latest())
	p.g.fsm.mu.Unlock()
	err := p.commit(append(p.entry(o.kind, now, nil), o.payload...), now)
	if o.kind == entryReset && err == nil {
		p.logged = 0
		p.clock.reset()
	}
	return err
}

// read runs a slow read beside the proposer, on committed state only, which is
// why it is atomic for each key it visits only.
func (g *Group) read(t *ticket) {
	term := g.term.Load()
	if !t.claim() {
		return
	}
	begun := time.Now()
	ok := term != 0
	if ok {
		tx := g.fsm.ks.Begin(g.fsm.ks.Latest())
		ok = g.runOne(tx, t)
		tx.End()
	}
	t.state.Store(pending)
	if !ok {
		g.giveUp(t, whyDeposed)
		return
	}
	ctx, cancel := context.WithTimeout(g.ctx, g.cfg.DecisionTimeout)
	defer cancel()
	if g.term.Load() == term && g.confirm(ctx, term, begun) {
		t.finish(pending, store.Decided, "")
		return
	}
	g.giveUp(t, whyDeposed)
}
