package admin

import (
	"time"

	"github.com/stint-dev/stint/server/command"
)

// Source is what is shown. Its functions are called by many goroutines at once,
// must return within moments whatever the disk or the cluster does, and what
// they return is not changed afterwards.
type Source interface {
	// Stats is what this node counts.
	Stats() Stats
	// Cluster is how this node's cluster stands; nil: it is of no cluster.
	Cluster() *ClusterStats
	// Ready reports whether decisions can be made through this node now, and if
	// not says why in a sentence for people.
	Ready() (ok bool, why string)
}

// Stats are the figures of one node. Counters count since the start of the
// process or the last CONFIG RESETSTAT, those of decisions since the start.
type Stats struct {
	Version string // of the program

	Commands     int64 // run, those that replied an error too
	AuthFailures int64 // wrong passwords
	HTTPClosed   int64 // connections closed because they spoke HTTP to a client's port
	Errors       []ErrorCount
	PerCommand   []CommandStats
	Traffic      command.Traffic

	Allowed   int64 // decisions of a cost above 0, PEEK left out
	Refused   int64
	Forgotten int64 // units FORCE asked for beyond what a limit can hold
	Buckets   int64 // keys that are not full, all databases
	Expired   int64 // keys that were dropped because they were full again
	Memory    int64 // bytes of the keys and their tables
	MaxMemory int64 // bytes; 0: no bound

	// FailMode is how decisions are answered that cannot be made: error, open,
	// closed or local; empty: this node can always decide. FailActive says that
	// they are answered so now, Failed how many were.
	FailMode   string
	FailActive bool
	Failed     FailedDecisions

	ClockAhead time.Duration // of decisions before the wall clock

	Persist  *command.PersistInfo // nil: nothing is saved by flushes
	LastSave time.Time            // of the last flush that succeeded
	TLS      *command.TLSInfo     // nil: no address has TLS
}

// FailedDecisions counts the decisions that a failure mode answered.
type FailedDecisions struct{ Error, Open, Closed, Local int64 }

// ErrorCount is how many error replies began with a word.
type ErrorCount struct {
	Word  string // upper-case, like OOM
	Count int64
}

// CommandStats is what was counted of one command.
type CommandStats struct {
	Name     string // as INFO writes it, like config|get
	Calls    int64
	Failed   int64 // calls that replied an error
	Rejected int64 // refused before they were run: no calls
	Time     time.Duration
	// Times are the calls that took at most so long, those of shorter times
	// included, in ascending order of the time.
	Times []CallsWithin
}

// CallsWithin says that so many calls took at most Time.
type CallsWithin struct {
	Time  time.Duration
	Calls int64
}

// ClusterStats is how one node sees its cluster. Counters count since the start
// of the process, what this node did.
type ClusterStats struct {
	NodeID, ServerID, ClusterID string

	State       string // leader, follower, candidate, joining or stopped
	LeaderKnown bool
	Term        uint64

	LastIndex, CommitIndex, AppliedIndex uint64
	SnapshotIndex                        uint64
	SnapshotBytes                        int64
	SnapshotTime                         time.Time // zero: none is known
	SnapshotsTaken                       uint64
	SnapshotsFailing                     uint64 // failures since the last that succeeded
	LogBytes                             int64
	LogSlowest                           time.Duration // longest write of the log

	Voters, NonVoters int
	Unreachable       int           // voters that have not answered lately; below 0: not known here, a follower does not know
	LastContact       time.Duration // since the leader was heard; 0 on the leader
	FormatLevel       int

	Batches       uint64 // run by this node as the leader
	Decisions     uint64 // commands in them
	Entries       uint64 // proposed to the log
	EntryBytes    uint64
	Confirmations uint64 // of leadership, for batches that wrote nothing
	Fenced        uint64 // entries that took no effect: of a leader that was none any more
	Waiting       int    // batches that wait now

	Forwarded     uint64 // batches sent on to the leader
	ForwardLost   uint64 // … whose answer never came
	Relayed       uint64 // batches taken from other nodes
	NotApplied    uint64 // batches that surely were not decided
	Indeterminate uint64 // batches whose outcome nobody knows

	ClockAhead time.Duration // by which this node's clock was refused, ahead of the cluster's time; 0: it was not
}

// StatsOf reads what a server counts. Of Stats it fills all but FailMode,
// FailActive, Failed, Errors and PerCommand.
func StatsOf(s *command.Server) Stats {
	out := Stats{
		Version:      s.Version,
		Commands:     s.Counters.Commands.Load(),
		AuthFailures: s.Counters.AuthFailures.Load(),
		HTTPClosed:   s.Counters.CrossClosed.Load(),
	}
	if s.Traffic != nil {
		out.Traffic = s.Traffic()
	}
	if s.Keyspace != nil {
		k := s.Keyspace()
		for _, n := range k.Keys {
			out.Buckets += n
		}
		out.Allowed, out.Refused = k.Allowed, k.Refused
		out.Forgotten, out.Expired = k.Forgotten, k.Expired
		out.Memory, out.MaxMemory = k.Memory, k.MaxMemory
	}
	if s.ClockAhead != nil {
		out.ClockAhead = s.ClockAhead()
	}
	if s.Persist != nil {
		p := s.Persist.Info()
		out.Persist, out.LastSave = &p, s.Persist.LastSave()
	}
	if s.TLS != nil {
		t := s.TLS()
		out.TLS = &t
	}
	return out
}
