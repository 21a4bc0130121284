package main

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/server"
	"github.com/stint-dev/stint/server/admin"
	"github.com/stint-dev/stint/server/command"
)

// operators is what --admin-addr serves; nil without it.
type operators struct {
	srv    *admin.Server
	source *adminSource
}

// stopAdmin bounds the wait for requests at the end.
const stopAdmin = 500 * time.Millisecond

// startAdmin serves --admin-addr, if it is given.
func startAdmin(ctx context.Context, cfg *Config, srv *server.Server, st *state, log *slog.Logger) (*operators, error) {
	if cfg.AdminAddr == "" {
		return nil, nil
	}
	source := &adminSource{info: srv.Info(), clustered: st.node != nil}
	a, err := admin.New(admin.Config{Source: source, Addr: cfg.AdminAddr, Log: log})
	if err != nil {
		return nil, err
	}
	if err := a.Start(ctx); err != nil {
		return nil, err
	}
	if host, _, err := net.SplitHostPort(cfg.AdminAddr); err == nil && !loopback(host) {
		log.Warn("everyone who can reach this address may read the metrics: it has no password", "addr", cfg.AdminAddr)
	}
	log.Info("serving metrics and health", "url", "http://"+a.Addr().String()+"/")
	return &operators{a, source}, nil
}

// stopping has /readyz say so.
func (o *operators) stopping() {
	if o != nil {
		o.source.stopping.Store(true)
	}
}

func (o *operators) stop() {
	if o == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopAdmin)
	defer cancel()
	_ = o.srv.Shutdown(ctx)
}

// adminSource shows a server to package admin.
type adminSource struct {
	info      *command.Server
	clustered bool
	stopping  atomic.Bool
}

func (s *adminSource) Stats() admin.Stats {
	out := admin.StatsOf(s.info)
	if s.clustered {
		f := &s.info.Fallback
		out.FailMode, out.FailActive = f.Mode.String(), f.Active()
		out.Failed = admin.FailedDecisions{
			Error: f.Answered[command.FailError].Load(), Open: f.Answered[command.FailOpen].Load(),
			Closed: f.Answered[command.FailClosed].Load(), Local: f.Answered[command.FailLocal].Load(),
		}
	}
	return out
}

func (s *adminSource) Cluster() *admin.ClusterStats {
	if !s.clustered {
		return nil
	}
	c := s.info.Cluster.Status()
	out := &admin.ClusterStats{
		NodeID: c.Node, ServerID: c.ID, ClusterID: c.Cluster, State: c.State, LeaderKnown: c.Leader != nil, Term: c.Term,
		LastIndex: c.LastIndex, CommitIndex: c.CommitIndex, AppliedIndex: c.AppliedIndex, SnapshotIndex: c.SnapshotIndex,
		SnapshotBytes: c.SnapshotBytes, SnapshotTime: c.SnapshotTime, SnapshotsTaken: c.Snapshots, SnapshotsFailing: c.SnapshotFailures,
		LogBytes: c.LogBytes, LogSlowest: c.LogSlowest, Unreachable: -1, FormatLevel: c.Level,
		Batches: c.Batches, Decisions: c.Commands, Entries: c.Entries, EntryBytes: c.EntryBytes, Confirmations: c.Confirmed,
		Fenced: c.FencedOff, Waiting: c.Waiting, Forwarded: c.Forwarded, ForwardLost: c.ForwardLost, Relayed: c.Relayed,
		NotApplied: c.NotApplied, Indeterminate: c.Unknown, ClockAhead: c.ClockRefused,
	}
	if c.State == "leader" {
		out.Unreachable = 0
	}
	for _, n := range c.Nodes {
		if !n.Voter {
			out.NonVoters++
			continue
		}
		out.Voters++
		if out.Unreachable >= 0 && !n.Alive {
			out.Unreachable++
		}
		if n.Leader && n.Contact > 0 && c.State != "leader" {
			out.LastContact = n.Contact
		}
	}
	return out
}

// Ready says whether decisions can be made here.
func (s *adminSource) Ready() (ok bool, why string) {
	if s.stopping.Load() {
		return false, "the server is stopping"
	}
	if !s.clustered {
		return true, ""
	}
	c := s.info.Cluster.Status()
	return c.Serving, c.Why
}
