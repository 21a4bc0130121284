package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// acks remembers, for each node, the latest moment at which a request was sent
// that it has answered as a follower of this leader. Raft's own VerifyLeader
// counts answers to requests that were sent before it was asked, and those of
// non-voters: both prove nothing about now.
type acks struct {
	mu   sync.Mutex
	last map[raft.ServerID]ack
	news chan struct{} // closed when last changes
}

type ack struct {
	term    uint64
	sent    time.Time // of the request; with a monotonic reading
	seen    time.Time // when the answer came
	lastLog uint64    // the node's last index, as it said
}

func newAcks() *acks {
	return &acks{last: make(map[raft.ServerID]ack), news: make(chan struct{})}
}

// note takes an answer to AppendEntries.
func (a *acks) note(id raft.ServerID, sent time.Time, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.last[id]
	if resp.Term == req.Term {
		was.seen, was.lastLog = time.Now(), resp.LastLog
	}
	if resp.Success && resp.Term == req.Term && (req.Term > was.term || req.Term == was.term && sent.After(was.sent)) {
		was.term, was.sent = req.Term, sent
		close(a.news)
		a.news = make(chan struct{})
	}
	a.last[id] = was
}

// of is what was noted of a node.
func (a *acks) of(id raft.ServerID) ack {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last[id]
}

// forget drops what was noted of nodes that keep does not name.
func (a *acks) forget(keep func(raft.ServerID) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.last {
		if !keep(id) {
			delete(a.last, id)
		}
	}
}

// majority says whether most voters, self among them, have answered in term a
// request sent at or after since; news is closed when that may have changed.
func (a *acks) majority(voters []raft.ServerID, self raft.ServerID, term uint64, since time.Time) (ok bool, news <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, isVoter := 0, false
	for _, id := range voters {
		switch l := a.last[id]; {
		case id == self:
			n++
			isVoter = true
		case l.term == term && !l.sent.Before(since):
			n++
		}
	}
	return isVoter && n > len(voters)/2, a.news
}

// voters lists who votes in a configuration.
func voters(c raft.Configuration) (ids []raft.ServerID) {
	for _, s := range c.Servers {
		if s.Suffrage == raft.Voter {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// confirm waits until it is certain that this node was the leader of term at
// some moment at or after since: then everything that was committed before since
// was visible here. It returns false if it is not, or ctx ends first.
func (g *Group) confirm(ctx context.Context, term uint64, since time.Time) bool {
	asked := false
	for {
		if g.bug == bugVerifyLeader {
			return g.raft.VerifyLeader().Error() == nil
		}
		ok, news := g.acks.majority(voters(g.raft.GetConfiguration().Configuration()), g.id, term, since)
		if ok {
			return g.raft.CurrentTerm() == term
		}
		if g.raft.CurrentTerm() != term || g.raft.State() != raft.Leader {
			return false
		}
		if !asked {
			// It makes Raft send heartbeats at once; its own verdict is not used.
			g.raft.VerifyLeader()
			asked = true
		}
		timer := time.NewTimer(confirmAgain)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-news:
		case <-timer.C:
			asked = false
		}
		timer.Stop()
	}
}

// confirmAgain is after how long heartbeats are asked for once more: a node that
// has not answered may have been unreachable for a moment.
const confirmAgain = 100 * time.Millisecond
