package cluster

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Server is one member of the cluster, as seen from here.
type Server struct {
	Node, ID string
	Addr     string   // of its Raft port
	Clients  []string // where it serves clients, if it has said so
	Voter    bool
	Held     bool // stays without a vote until it is promoted by hand
	Leader   bool
	Alive    bool          // it has answered lately; known to the leader only
	Contact  time.Duration // since it has answered the leader; below 0: not known here
	Behind   uint64        // entries it lacks; known to the leader only
	Level    int
	Version  string
}

// Status is how this node and its cluster are.
type Status struct {
	Node, ID, Cluster string
	State             string // leader, follower, candidate, joining, stopped
	Ready             bool   // takes part in Raft
	Serving           bool   // decisions can be made through this node
	Why               string // if not
	Term              uint64
	LastIndex         uint64
	CommitIndex       uint64
	AppliedIndex      uint64
	SnapshotIndex     uint64
	SnapshotBytes     int64
	SnapshotTime      time.Time // zero: none was taken or seen since the start
	Snapshots         uint64    // taken since the start
	SnapshotFailures  uint64    // since the last that succeeded
	LogBytes          int64
	LogSlowest        time.Duration // longest write since the start
	Level             int
	Servers           []Server
	Leader            *Server // nil: none is known
	Latest            int64   // unix ns: latest time in the log that was applied
	ClockRefused      time.Duration
	Waiting           int // batches that wait to be run or sent on
	LastContact       time.Duration

	Batches, Commands, Entries, EntryBytes, Confirmed uint64
	Forwarded, ForwardLost, Relayed                   uint64
	NotApplied, Unknown, Fenced                       uint64
}

// Status tells how this node is. It holds no lock for long.
func (g *Group) Status() Status {
	m, config, _, _ := g.fsm.view()
	s := Status{
		Node: g.cfg.NodeID, ID: string(g.id), Cluster: g.cluster(), State: "joining",
		LogBytes: g.cfg.Log.Bytes(), Level: m.Settings.Level, Latest: g.fsm.ks.Latest(),
		SnapshotIndex: g.snapshot.index.Load(), SnapshotBytes: g.snapshot.size.Load(),
		Snapshots: g.snapshot.taken.Load(), SnapshotFailures: g.snapshot.failing.Load(),
		ClockRefused: time.Duration(g.skew.Load()),
		Batches:      g.count.batches.Load(), Commands: g.count.commands.Load(), Entries: g.count.entries.Load(),
		EntryBytes: g.count.entryBytes.Load(), Confirmed: g.count.confirmed.Load(),
		Forwarded: g.count.forwarded.Load(), ForwardLost: g.count.forwardLost.Load(), Relayed: g.count.relayed.Load(),
		NotApplied: g.count.notApplied.Load(), Unknown: g.count.unknown.Load(), Fenced: g.fsm.fenced.Load(),
	}
	if at := g.snapshot.at.Load(); at != 0 {
		s.SnapshotTime = time.Unix(0, at)
	}
	g.mu.Lock()
	s.Waiting = len(g.waiting)
	s.Serving = !g.closing && (g.route.self || g.route.peer != "")
	if g.closing {
		s.Why = whyStopped
	}
	g.mu.Unlock()
	if !g.isReady() {
		s.Why = "this node is not yet part of a cluster"
		return s
	}
	s.Ready = true
	switch g.raft.State() {
	case raft.Leader:
		s.State = "leader"
	case raft.Follower:
		s.State = "follower"
	case raft.Candidate:
		s.State = "candidate"
	case raft.Shutdown:
		s.State = "stopped"
	}
	if !s.Serving && s.Why == "" {
		s.Why = whyNoLeader
	}
	s.Term, s.LastIndex, s.CommitIndex, s.AppliedIndex = g.raft.CurrentTerm(), g.raft.LastIndex(), g.raft.CommitIndex(), g.fsm.index.Load()
	if at := g.raft.LastContact(); !at.IsZero() && s.State != "leader" {
		s.LastContact = time.Since(at)
	}
	if g.disk != nil {
		s.LogSlowest = time.Duration(g.disk.slow.Load())
	}
	if latest := g.raft.GetConfiguration().Configuration(); len(latest.Servers) > 0 {
		config = latest
	}
	_, leader := g.raft.LeaderWithID()
	for _, c := range config.Servers {
		member := m.Members[string(c.ID)]
		v := Server{
			Node: nodeOf(string(c.ID)), ID: string(c.ID), Addr: string(c.Address), Clients: slices.Clone(member.Clients),
			Voter: c.Suffrage == raft.Voter, Held: member.Hold, Leader: c.ID == leader, Contact: -1,
			Level: member.MaxLevel, Version: member.Version,
		}
		switch a := g.acks.of(c.ID); {
		case c.ID == g.id:
			v.Alive, v.Contact = true, 0
		case s.State == "leader" && !a.seen.IsZero():
			v.Contact = time.Since(a.seen)
			v.Alive = v.Contact < 2*g.cfg.ElectionTimeout
			v.Behind = s.LastIndex - min(a.lastLog, s.LastIndex)
		case c.ID == leader && s.LastContact > 0:
			v.Contact = s.LastContact
			v.Alive = v.Contact < 2*g.cfg.ElectionTimeout
		}
		s.Servers = append(s.Servers, v)
		if v.Leader {
			s.Leader = &v
		}
	}
	return s
}

// Voters is how many nodes vote, by the last membership that was committed.
func (g *Group) Voters() int {
	_, config, _, _ := g.fsm.view()
	return len(voters(config))
}

// FreezeClock stops the clock of this node's decisions at ns, unix time: they
// happen there, or at the latest time of the log if that is later.
func (g *Group) FreezeClock(ns int64) { g.frozen.at.Store(ns) }

// RunClock lets the clock run again.
func (g *Group) RunClock() { g.frozen.at.Store(runs) }

// Reset empties the whole cluster and forgets the latest time seen.
func (g *Group) Reset() error { return g.admin(command{Do: "reset"}) }

// ClockAhead is by how much this node's wall clock was refused when it began to
// lead, because it is ahead of the time of the cluster.
func (g *Group) ClockAhead() time.Duration { return time.Duration(g.skew.Load()) }
