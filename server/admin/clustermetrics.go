package admin

import "time"

// raftStates are what a node of a cluster can be.
var raftStates = []string{"leader", "follower", "candidate", "joining", "stopped"}

// clusterMetrics are those of a node that is part of a cluster, or asks to be.
var clusterMetrics = []metric[ClusterStats]{
	{"raft_info", "Who this node is in its cluster; always 1.", gauge, []string{"node", "server", "cluster"},
		func(c *ClusterStats) []sample { return []sample{{1, []string{c.NodeID, c.ServerID, c.ClusterID}}} }},
	{"raft_state", "1 for what this node is now, 0 for what it could be.", gauge, []string{"state"},
		func(c *ClusterStats) []sample { return oneHot(c.State, raftStates) }},
	{"raft_is_leader", "Whether this node takes itself for the leader. A node that is cut off may, for an election time-out.", gauge, nil,
		one(func(c *ClusterStats) float64 { return truth(c.State == "leader") })},
	{"raft_leader_known", "Whether this node knows a leader.", gauge, nil,
		one(func(c *ClusterStats) float64 { return truth(c.LeaderKnown) })},
	{"raft_term", "The term: one more with each election. Growing steadily means that elections fail.", gauge, nil,
		one(func(c *ClusterStats) uint64 { return c.Term })},
	{"raft_voters", "Members that vote.", gauge, nil,
		one(func(c *ClusterStats) int { return c.Voters })},
	{"raft_nonvoters", "Members without a vote.", gauge, nil,
		one(func(c *ClusterStats) int { return c.NonVoters })},
	{"raft_voters_unreachable", "Voters that have not answered lately; the leader alone has this metric.", gauge, nil,
		func(c *ClusterStats) []sample {
			if c.Unreachable < 0 {
				return nil
			}
			return []sample{{value: float64(c.Unreachable)}}
		}},
	{"raft_last_contact_seconds", "Time since this node heard the leader; 0 on the leader.", gauge, nil,
		seconds(func(c *ClusterStats) time.Duration { return c.LastContact })},
	{"raft_format_level", "The format that the cluster writes its log and snapshots in.", gauge, nil,
		one(func(c *ClusterStats) int { return c.FormatLevel })},

	{"raft_last_index", "Index of the last entry in this node's log.", gauge, nil,
		one(func(c *ClusterStats) uint64 { return c.LastIndex })},
	{"raft_commit_index", "Index of the last entry that this node knows to be committed.", gauge, nil,
		one(func(c *ClusterStats) uint64 { return c.CommitIndex })},
	{"raft_applied_index", "Index of the last entry in this node's state.", gauge, nil,
		one(func(c *ClusterStats) uint64 { return c.AppliedIndex })},
	{"raft_log_bytes", "Bytes of the entries in this node's log.", gauge, nil,
		one(func(c *ClusterStats) int64 { return c.LogBytes })},
	{"raft_log_slowest_write_seconds", "The longest write of the log since the start.", gauge, nil,
		seconds(func(c *ClusterStats) time.Duration { return c.LogSlowest })},

	{"raft_snapshot_index", "Index that the newest snapshot ends with.", gauge, nil,
		one(func(c *ClusterStats) uint64 { return c.SnapshotIndex })},
	{"raft_snapshot_bytes", "Size of the newest snapshot.", gauge, nil,
		one(func(c *ClusterStats) int64 { return c.SnapshotBytes })},
	{"raft_snapshot_age_seconds", "Age of the newest snapshot; absent if none is known since the start.", gauge, nil,
		func(c *ClusterStats) []sample {
			if c.SnapshotTime.IsZero() {
				return nil
			}
			return []sample{{value: max(0, time.Since(c.SnapshotTime).Seconds())}}
		}},
	{"raft_snapshots_total", "Snapshots that this node took.", counter, nil,
		one(func(c *ClusterStats) uint64 { return c.SnapshotsTaken })},
	{"raft_snapshots_failing", "Snapshots that failed since the last that succeeded; 0: all is well.", gauge, nil,
		one(func(c *ClusterStats) uint64 { return c.SnapshotsFailing })},

	{"raft_batches_total", "Batches of commands that this node ran as the leader.", counter, nil,
		one(func(c *ClusterStats) uint64 { return c.Batches })},
	{"raft_decisions_total", "Commands in those batches.", counter, nil,
		one(func(c *ClusterStats) uint64 { return c.Decisions })},
	{"raft_entries_total", "Entries that this node proposed to the log.", counter, nil,
		one(func(c *ClusterStats) uint64 { return c.Entries })},
	{"raft_entry_bytes_total", "Bytes of those entries.", counter, nil,
		one(func(c *ClusterStats) uint64 { return c.EntryBytes })},
	{"raft_confirmations_total", "How often leadership was confirmed for batches that wrote nothing.", counter, nil,
		one(func(c *ClusterStats) uint64 { return c.Confirmations })},
	{"raft_fenced_entries_total", "Entries that took no effect, of a leader that was none any more.", counter, nil,
		one(func(c *ClusterStats) uint64 { return c.Fenced })},
	{"raft_waiting_batches", "Batches that wait to be run or sent on.", gauge, nil,
		one(func(c *ClusterStats) int { return c.Waiting })},

	{"raft_forwarded_batches_total", "Batches that this node sent on to the leader.", counter, nil,
		one(func(c *ClusterStats) uint64 { return c.Forwarded })},
	{"raft_forwards_lost_total", "Batches that were sent on and whose answer never came.", counter, nil,
		one(func(c *ClusterStats) uint64 { return c.ForwardLost })},
	{"raft_relayed_batches_total", "Batches that this node took from others as the leader.", counter, nil,
		one(func(c *ClusterStats) uint64 { return c.Relayed })},
	{"raft_not_applied_batches_total", "Batches that surely were not decided.", counter, nil,
		one(func(c *ClusterStats) uint64 { return c.NotApplied })},
	{"raft_indeterminate_batches_total", "Batches whose outcome nobody knows: their replies were INDETERMINATE.", counter, nil,
		one(func(c *ClusterStats) uint64 { return c.Indeterminate })},

	{"raft_clock_ahead_seconds", "By how much this node's clock was ahead of the cluster's time when it was refused; 0: it was not.", gauge, nil,
		seconds(func(c *ClusterStats) time.Duration { return c.ClockAhead })},
}
