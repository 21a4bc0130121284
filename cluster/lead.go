package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// lowerMedian is the lower one of the two in the middle.
func lowerMedian(ns []int64) int64 {
	slices.Sort(ns)
	return ns[(len(ns)-1)/2]
}

// watchLeadership is the goroutine that leads whenever Raft says that this node
// is the leader, and stops when it no longer is. Raft waits for whoever reads
// notify, so nothing here takes long.
func (g *Group) watchLeadership(notify <-chan bool) {
	stop, led := func() {}, make(chan struct{})
	close(led)
	defer func() {
		stop()
		<-led
	}()
	for {
		select {
		case <-g.ctx.Done():
			return
		case leader := <-notify:
			stop()
			if leader {
				stop, led = g.leadBehind(led)
			}
		}
	}
}

// leadBehind leads on a goroutine of its own, after the leadership before has
// ended: stop ends it, and led is closed then.
func (g *Group) leadBehind(before <-chan struct{}) (stop func(), led chan struct{}) {
	ctx, cancel := context.WithCancel(g.ctx)
	led = make(chan struct{})
	g.leads.Go(func() {
		defer close(led)
		<-before
		g.lead(ctx)
	})
	return cancel, led
}

// leadPause is the rest before leading is tried again in the same leadership.
const leadPause = 20 * time.Millisecond

// lead leads until ctx ends or Raft says that another one does. Whenever the
// outcome of an entry is unknown it begins anew, with a barrier: behind that
// everything has been applied that ever will be.
func (g *Group) lead(ctx context.Context) {
	for ctx.Err() == nil && g.raft.State() == raft.Leader {
		err := g.leadOnce(ctx)
		g.routing.Lock()
		g.term.Store(0)
		g.routing.Unlock()
		g.follow()
		if err != nil && ctx.Err() == nil && !errors.Is(err, errDeposed) {
			g.log.Debug("leading is interrupted", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(leadPause):
		}
	}
}

// leadOnce prepares a leadership and serves. A leadership is a term: what is done
// to prepare it counts only if the term is still the same at its end.
func (g *Group) leadOnce(ctx context.Context) error {
	term := g.raft.CurrentTerm()
	if err := g.await(g.raft.Barrier(enqueueTimeout)); err != nil {
		return err
	}
	if g.raft.CurrentTerm() != term || g.raft.State() != raft.Leader {
		return errDeposed
	}
	clock, err := g.leaderClock(ctx, term)
	if err != nil {
		return err
	}
	_, _, last, _ := g.fsm.view()
	p := &proposer{g: g, term: term, clock: clock, overlay: g.fsm.ks.NewOverlay(), logged: g.fsm.ks.Latest()}
	if last.Term == term {
		p.n = last.N
	}
	if err := g.found(p); err != nil {
		return err
	}
	g.routing.Lock()
	g.term.Store(term)
	g.setRoute(route{self: true})
	g.routing.Unlock()
	g.log.Info("this node is the leader", "term", term)
	upkeep, cancel := context.WithCancel(ctx)
	g.readers.Go(func() { g.leaderUpkeep(upkeep) })
	err = p.serve(ctx)
	cancel()
	g.log.Info("this node is no longer the leader", "term", term)
	return err
}

// leaderClock agrees with a majority on the time to begin at.
func (g *Group) leaderClock(ctx context.Context, term uint64) (*leaderClock, error) {
	c := &leaderClock{frozen: &g.frozen, wall: g.cfg.Now}
	config := g.raft.GetConfiguration().Configuration()
	need := len(voters(config))/2 + 1
	own := g.reading()
	var others []reading
	for len(others)+1 < need {
		if ctx.Err() != nil || g.raft.CurrentTerm() != term || g.raft.State() != raft.Leader {
			return nil, errDeposed
		}
		if others = g.askClocks(ctx, config, need-1); len(others)+1 < need {
			select {
			case <-ctx.Done():
			case <-time.After(leadPause):
			}
		}
		own = g.reading()
	}
	at, ahead := begin(own, others)
	c.start, c.anchor = g.cfg.Now(), at
	g.skew.Store(int64(ahead))
	if ahead > 0 {
		g.log.Error("the wall clock of this node is refused: it is ahead of the time of the cluster, which goes on without it",
			"ahead", ahead.Round(time.Millisecond), "advice", "set the clock of this machine")
	}
	return c, nil
}

// reading is what this node's clocks say.
func (g *Group) reading() reading {
	_, _, _, p := g.fsm.view()
	now := g.cfg.Now()
	return reading{Latest: p.latest, Expected: p.expected(now), Agreed: p.agreed, Wall: now.UnixNano()}
}

// follow has batches sent to the leader that Raft knows, or wait until it knows
// one.
func (g *Group) follow() {
	g.routing.Lock()
	defer g.routing.Unlock()
	if g.term.Load() != 0 {
		return
	}
	addr, id := g.raft.LeaderWithID()
	if id == "" || id == g.id {
		g.setRoute(route{})
		return
	}
	g.setRoute(route{peer: id, addr: hostOf(string(addr))})
}

// watchLeader is the goroutine that follows Raft's news about the leader.
func (g *Group) watchLeader(news <-chan raft.Observation) {
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-news:
			g.follow()
		}
	}
}
