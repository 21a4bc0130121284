package main

import (
	"log/slog"
	"strings"
	"time"

	"github.com/stint-dev/stint/cluster"
	"github.com/stint-dev/stint/server/command"
)

// raftPart shows a cluster.Group to the server, which does not know package
// cluster.
type raftPart struct {
	*cluster.Group
	cfg *Config
}

var (
	_ command.Cluster  = raftPart{}
	_ command.Debugger = raftPart{}
)

// Status is the node's part in the cluster, for RAFT and INFO.
func (p raftPart) Status() command.ClusterStatus {
	s := p.Group.Status()
	out := command.ClusterStatus{
		Node: s.Node, ID: s.ID, Cluster: s.Cluster, State: s.State, Alone: !p.cfg.clustered(),
		Serving: s.Serving, Why: s.Why, Term: s.Term,
		LastIndex: s.LastIndex, CommitIndex: s.CommitIndex, AppliedIndex: s.AppliedIndex,
		SnapshotIndex: s.SnapshotIndex, SnapshotBytes: s.SnapshotBytes, Snapshots: s.Snapshots,
		SnapshotFailures: s.SnapshotFailures, SnapshotTime: s.SnapshotTime,
		LogBytes: s.LogBytes, LogSlowest: s.LogSlowest, Level: s.Level, Voters: p.Voters(), Waiting: s.Waiting,
		Latest: s.Latest, ClockRefused: s.ClockRefused,
		Batches: s.Batches, Commands: s.Commands, Entries: s.Entries, EntryBytes: s.EntryBytes, Confirmed: s.Confirmed,
		Forwarded: s.Forwarded, ForwardLost: s.ForwardLost, Relayed: s.Relayed,
		NotApplied: s.NotApplied, Unknown: s.Unknown, FencedOff: s.Fenced,
	}
	for _, n := range s.Servers {
		out.Nodes = append(out.Nodes, clusterNode(n))
	}
	if s.Leader != nil {
		n := clusterNode(*s.Leader)
		out.Leader = &n
	}
	return out
}

func clusterNode(n cluster.Server) command.ClusterNode {
	return command.ClusterNode{
		Node: n.Node, ID: n.ID, Addr: n.Addr, Client: strings.Join(n.Clients, ","), Voter: n.Voter, Held: n.Held,
		Leader: n.Leader, Alive: n.Alive, Contact: n.Contact, Behind: n.Behind, Level: n.Level, Version: n.Version,
	}
}

// handOver hands the leadership over, if this node has it and another can take it.
func (n *node) handOver(within time.Duration, log *slog.Logger) {
	s := n.group.Status()
	if s.State != "leader" || n.group.Voters() < 2 {
		return
	}
	done := make(chan error, 1)
	go func() { done <- n.group.Transfer("") }()
	select {
	case err := <-done:
		if err != nil {
			log.Warn("the leadership could not be handed over: the others elect a leader when they miss this one", "error", err)
		}
	case <-time.After(within):
		log.Warn("the leadership was not handed over in time")
	}
}
