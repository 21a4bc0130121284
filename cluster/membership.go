package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// A node that has been added copies the state as a non-voter. It is promoted when
// it has been within promoteWithin entries of the leader for promoteAfter: a
// voter that is far behind can only delay commits.
const (
	promoteWithin = 1000
	promoteAfter  = 5 * time.Second
)

// promoter remembers since when each non-voter has kept up.
type promoter struct{ since map[raft.ServerID]time.Time }

// tend is the leader's regular work on the membership: it promotes who has kept
// up, forgets members that have left, raises the format level when all know it,
// and finds time to be about once a second.
func (g *Group) tend(ctx context.Context, p *promoter) {
	config := g.raft.GetConfiguration().Configuration()
	m, _, _, _ := g.fsm.view()
	last := g.raft.LastIndex()
	now := time.Now()
	if p.since == nil {
		p.since = make(map[raft.ServerID]time.Time)
	}
	present := map[string]bool{}
	for _, s := range config.Servers {
		present[string(s.ID)] = true
		if s.Suffrage == raft.Voter || m.Members[string(s.ID)].Hold {
			delete(p.since, s.ID)
			continue
		}
		a := g.acks.of(s.ID)
		if a.seen.IsZero() || now.Sub(a.seen) > g.cfg.ElectionTimeout || a.lastLog+promoteWithin < last {
			delete(p.since, s.ID)
			continue
		}
		if p.since[s.ID].IsZero() {
			p.since[s.ID] = now
		}
		if now.Sub(p.since[s.ID]) < promoteAfter {
			continue
		}
		delete(p.since, s.ID)
		if err := g.raft.AddVoter(s.ID, s.Address, 0, adminTimeout).Error(); err != nil {
			g.log.Warn("a node that has caught up could not be made a voter; it is tried again", "node", nodeOf(string(s.ID)), "error", err)
			continue
		}
		g.log.Info("a node has caught up and votes from now on", "node", nodeOf(string(s.ID)))
	}
	for id := range m.Members {
		if !present[id] && id != string(g.id) {
			if err := g.order(ctx, entryForget, []byte(id)); err != nil {
				return
			}
		}
	}
	g.raiseLevel(ctx, m, config)
}

// raiseLevel raises the level at which the cluster writes, once every member,
// those without a vote included, has said that it knows a higher one.
func (g *Group) raiseLevel(ctx context.Context, m meta, config raft.Configuration) {
	level := g.maxLevel()
	for _, s := range config.Servers {
		level = min(level, m.Members[string(s.ID)].MaxLevel)
	}
	if level <= m.Settings.Level {
		return
	}
	s := m.Settings
	s.Level = level
	b, err := json.Marshal(s)
	if err == nil {
		err = g.order(ctx, entrySetting, b)
	}
	if err == nil {
		g.log.Info("all nodes know a newer format, which is written from now on: an older version of stint can no longer join", "level", level)
	}
}

// maxLevel is the newest level this node reads and writes.
func (g *Group) maxLevel() int { return g.fsm.level }

// self is what this node tells the others about itself.
func (g *Group) self() Member {
	m, _, _, _ := g.fsm.view()
	return Member{
		ID: string(g.id), Node: g.cfg.NodeID, Addr: g.addr(), Clients: g.cfg.Clients,
		MaxLevel: g.maxLevel(), Version: g.cfg.Version, Hold: m.Members[string(g.id)].Hold,
	}
}

// addr is the address of this node's Raft port, for others.
func (g *Group) addr() string {
	if g.cfg.Port == nil {
		return soloAddr
	}
	return g.cfg.Port.Advertise
}

// found brings what the cluster must agree on into the log, where the leader
// misses it: the settings of a new cluster, a state that is imported, and what
// this node says about itself.
func (g *Group) found(p *proposer) error {
	m, _, _, _ := g.fsm.view()
	if m.Settings.ClusterID == "" {
		b, err := json.Marshal(Settings{ClusterID: g.cluster(), Level: 1})
		if err != nil {
			return err
		}
		if err := p.order(order{kind: entrySetting, payload: b}); err != nil {
			return err
		}
	}
	if err := g.importState(p); err != nil {
		return err
	}
	self := g.self()
	if m.Members[string(g.id)].equal(self) {
		return nil
	}
	b, err := json.Marshal(self)
	if err != nil {
		return err
	}
	return p.order(order{kind: entryMember, payload: b})
}

// metaChanged is called when the log has changed meta or the membership.
func (g *Group) metaChanged() {
	if g.isReady() {
		g.follow()
	}
}

// noticeFollowing has the leader hear what this node says about itself, if the
// log says otherwise: its address or version may be new.
func (g *Group) noticeFollowing() {
	if g.calls == nil || time.Since(g.announced) < time.Second {
		return
	}
	g.mu.Lock()
	r := g.route
	g.mu.Unlock()
	if r.self || r.peer == "" {
		return
	}
	m, config, _, _ := g.fsm.view()
	member := false
	for _, s := range config.Servers {
		member = member || s.ID == g.id
	}
	self := g.self()
	if !member || m.Members[string(g.id)].equal(self) {
		return
	}
	g.announced = time.Now()
	if b, err := json.Marshal(self); err == nil {
		g.calls.Go(r.addr, string(r.peer), callAnnounce, b, func([]byte, error) {})
	}
}

// announce takes what a member says about itself, as the leader.
func (g *Group) announce(payload []byte) error {
	var m Member
	if err := json.Unmarshal(payload, &m); err != nil {
		return fmt.Errorf("an announcement cannot be read: %w", err)
	}
	if _, err := g.server(m.ID); err != nil {
		return err
	}
	known, _, _, _ := g.fsm.view()
	m.Hold = known.Members[m.ID].Hold
	if known.Members[m.ID].equal(m) {
		return nil
	}
	ctx, cancel := context.WithTimeout(g.ctx, adminTimeout)
	defer cancel()
	return g.announceMember(ctx, m)
}
