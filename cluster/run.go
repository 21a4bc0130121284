package cluster

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/stint-dev/stint/engine/store"
)

// Run hands a batch in. It returns false, and calls b.Done later: when it is
// decided, or when that turns out to be impossible, or after DecisionTimeout.
func (g *Group) Run(b *store.Batch) bool {
	g.enter(&ticket{batch: b, arrived: time.Now(), before: len(b.Out), slow: g.isSlow(b)})
	return false
}

var _ store.Store = (*Group)(nil)

// isSlow says whether a batch is a read that may take long. Such a command comes
// alone.
func (g *Group) isSlow(b *store.Batch) bool {
	return len(b.Requests) == 1 && g.cfg.SlowRead != nil && g.cfg.SlowRead(b.Requests[0].Cmd)
}

// enter puts a ticket where it belongs now.
func (g *Group) enter(t *ticket) {
	g.mu.Lock()
	if g.closing {
		g.mu.Unlock()
		t.finish(queued, store.NotApplied, whyStopped)
		return
	}
	if len(g.waiting) >= maxWaiting {
		g.mu.Unlock()
		t.finish(queued, store.NotApplied, whyBusy)
		return
	}
	r := g.route
	switch {
	case r.self && t.slow:
		g.mu.Unlock()
		g.deadlines.add(t)
		g.readers.Go(func() { g.read(t) })
		return
	case r.self:
		g.waiting = append(g.waiting, t)
		g.mu.Unlock()
		g.deadlines.add(t)
		select {
		case g.work <- struct{}{}:
		default:
		}
		return
	case t.relayed:
		// It was sent here because this node was the leader. It is not sent on:
		// two nodes that take each other for the leader would play ball with it.
		g.mu.Unlock()
		t.finish(queued, store.NotApplied, whyForwarded)
		return
	case r.peer != "":
		g.mu.Unlock()
		g.deadlines.add(t)
		g.send(t, r)
		return
	}
	g.waiting = append(g.waiting, t)
	g.mu.Unlock()
	g.deadlines.add(t)
}

// maxWaiting bounds the batches that wait: each is a connection's only one.
const maxWaiting = 1 << 20

// route is where batches go.
type route struct {
	self bool          // this node decides
	peer raft.ServerID // another node does; empty if none is known
	addr string        // of its Raft port
}

// setRoute changes where batches go, and sends on what waits.
func (g *Group) setRoute(r route) {
	g.mu.Lock()
	if g.route == r {
		g.mu.Unlock()
		return
	}
	g.route = r
	waiting := g.waiting
	if r.self || r.peer == "" {
		waiting = nil // it stays where the proposer, or the next leader, finds it
		if r.self {
			waiting = g.takeSlow()
		}
	} else {
		g.waiting = nil
	}
	g.mu.Unlock()
	if r.self {
		for _, t := range waiting {
			g.readers.Go(func() { g.read(t) })
		}
		select {
		case g.work <- struct{}{}:
		default:
		}
		return
	}
	for _, t := range waiting {
		if t.relayed {
			t.finish(queued, store.NotApplied, whyForwarded)
			continue
		}
		g.send(t, r)
	}
}

// takeSlow takes the slow reads out of what waits. mu is held.
func (g *Group) takeSlow() (slow []*ticket) {
	rest := g.waiting[:0]
	for _, t := range g.waiting {
		if t.slow {
			slow = append(slow, t)
		} else {
			rest = append(rest, t)
		}
	}
	clear(g.waiting[len(rest):])
	g.waiting = rest
	return slow
}

// take takes what the proposer is to run next.
func (g *Group) take(into []*ticket) []*ticket {
	g.mu.Lock()
	defer g.mu.Unlock()
	into = append(into, g.waiting...)
	clear(g.waiting)
	g.waiting = g.waiting[:0]
	return into
}

// untake puts tickets back before all others.
func (g *Group) untake(ts []*ticket) {
	if len(ts) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(append(make([]*ticket, 0, len(ts)+len(g.waiting)), ts...), g.waiting...)
}

// overdue ends a ticket whose time is over. It returns false if that cannot be
// said now, because a goroutine is at work on it.
func (g *Group) overdue(t *ticket) bool {
	for {
		switch s := t.state.Load(); s {
		case done:
			return true
		case running:
			return false
		case queued:
			why := whyTime
			if !g.Serving() {
				why = whyNoLeader
			}
			if t.finish(queued, store.NotApplied, why) {
				g.count.notApplied.Add(1)
				return true
			}
		default:
			if g.giveUp(t, whyCommit) {
				return true
			}
		}
	}
}

// giveUp ends a pending ticket: what had no effects was not applied.
func (g *Group) giveUp(t *ticket, why string) bool {
	if t.effects {
		if t.finish(pending, store.Unknown, why) {
			g.count.unknown.Add(1)
			return true
		}
		return false
	}
	if t.finish(pending, store.NotApplied, why) {
		g.count.notApplied.Add(1)
		return true
	}
	return false
}
