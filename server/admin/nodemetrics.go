package admin

import "time"

// failModes are the answers to decisions that cannot be made.
var failModes = []string{"error", "open", "closed", "local"}

// nodeMetrics are those that every node has.
var nodeMetrics = []metric[Stats]{
	{"build_info", "The version of the program; always 1.", gauge, []string{"version"},
		func(s *Stats) []sample { return []sample{{1, []string{s.Version}}} }},

	{"decisions_total", "Decisions of a cost above 0 that this node made, PEEK left out.", counter, []string{"result"},
		func(s *Stats) []sample {
			return []sample{{float64(s.Allowed), []string{"allowed"}}, {float64(s.Refused), []string{"refused"}}}
		}},
	{"failed_decisions_total", "Decisions that could not be made and that a failure mode answered.", counter, []string{"mode"},
		func(s *Stats) []sample {
			return []sample{
				{float64(s.Failed.Error), []string{"error"}}, {float64(s.Failed.Open), []string{"open"}},
				{float64(s.Failed.Closed), []string{"closed"}}, {float64(s.Failed.Local), []string{"local"}},
			}
		}},
	{"fail_mode_active", "1 for the failure mode that answers now because no decision can be made, else 0.", gauge, []string{"mode"},
		func(s *Stats) []sample {
			if !s.FailActive {
				return oneHot("", failModes)
			}
			return oneHot(s.FailMode, failModes)
		}},
	{"forgotten_units_total", "Units that FORCE asked for beyond what a limit can hold.", counter, nil,
		one(func(s *Stats) int64 { return s.Forgotten })},

	{"buckets", "Keys that are not full, in all databases.", gauge, nil,
		one(func(s *Stats) int64 { return s.Buckets })},
	{"expired_buckets_total", "Keys that were dropped because they were full again.", counter, nil,
		one(func(s *Stats) int64 { return s.Expired })},
	{"memory_bytes", "Bytes of the keys and their tables: what --max-memory bounds.", gauge, nil,
		one(func(s *Stats) int64 { return s.Memory })},
	{"memory_limit_bytes", "The bound of --max-memory; 0: none.", gauge, nil,
		one(func(s *Stats) int64 { return s.MaxMemory })},
	{"clock_ahead_seconds", "By how much the time of decisions is ahead of the wall clock, because that was set back.", gauge, nil,
		seconds(func(s *Stats) time.Duration { return s.ClockAhead })},

	{"commands_total", "Commands that were run, those that replied an error too.", counter, nil,
		one(func(s *Stats) int64 { return s.Commands })},
	{"commands_failed_total", "Calls that replied an error, by command.", counter, []string{"command"},
		func(s *Stats) []sample { return perCommand(s, func(c *CommandStats) int64 { return c.Failed }) }},
	{"commands_rejected_total", "Commands that were refused before they were run, by command.", counter, []string{"command"},
		func(s *Stats) []sample { return perCommand(s, func(c *CommandStats) int64 { return c.Rejected }) }},
	{"error_replies_total", "Error replies, by their first word.", counter, []string{"error"},
		func(s *Stats) []sample { return errorWords(s.Errors) }},
	{"auth_failures_total", "Wrong passwords.", counter, nil,
		one(func(s *Stats) int64 { return s.AuthFailures })},

	{"connections", "Connections of clients that are open.", gauge, nil,
		one(func(s *Stats) int64 { return s.Traffic.Clients })},
	{"connections_limit", "The bound of --max-clients.", gauge, nil,
		one(func(s *Stats) int64 { return s.Traffic.MaxClients })},
	{"connections_accepted_total", "Connections that were accepted.", counter, nil,
		one(func(s *Stats) int64 { return s.Traffic.Accepted })},
	{"connections_refused_total", "Connections that were turned away: too many, or protected mode.", counter, nil,
		one(func(s *Stats) int64 { return s.Traffic.Rejected })},
	{"connections_closed_total", "Connections that the server closed, by why.", counter, []string{"reason"},
		func(s *Stats) []sample {
			t := &s.Traffic
			return []sample{
				{float64(s.HTTPClosed), []string{"http"}},
				{float64(t.IdleClosed), []string{"idle"}},
				{float64(t.OutputClosed), []string{"output"}},
				{float64(t.Panics), []string{"panic"}},
				{float64(t.ProtocolErrors), []string{"protocol"}},
				{float64(t.TLSFailed), []string{"tls_handshake"}},
				{float64(t.TLSClosed), []string{"tls_on_plain_port"}},
			}
		}},
	{"accept_errors_total", "Connections that the system could not hand over.", counter, nil,
		one(func(s *Stats) int64 { return s.Traffic.AcceptErrors })},
	{"received_bytes_total", "Bytes that clients sent.", counter, nil,
		one(func(s *Stats) int64 { return s.Traffic.BytesIn })},
	{"sent_bytes_total", "Bytes that clients were sent.", counter, nil,
		one(func(s *Stats) int64 { return s.Traffic.BytesOut })},
	{"held_bytes", "Bytes held of large commands that are not complete, and of replies that clients have not taken.", gauge, []string{"direction"},
		func(s *Stats) []sample {
			return []sample{
				{float64(s.Traffic.HeldInput), []string{"input"}}, {float64(s.Traffic.HeldReplies), []string{"output"}},
			}
		}},
}

// perCommand is a count of each command that was called or rejected.
func perCommand(s *Stats, read func(*CommandStats) int64) []sample {
	out := make([]sample, 0, len(s.PerCommand))
	for i := range s.PerCommand {
		c := &s.PerCommand[i]
		out = append(out, sample{float64(read(c)), []string{c.Name}})
	}
	return out
}

// flushMetrics are those of a node that flushes its state; Persist is not nil.
var flushMetrics = []metric[Stats]{
	{"flush_interval_seconds", "Time between two flushes, --interval.", gauge, nil,
		seconds(func(s *Stats) time.Duration { return s.Persist.Interval })},
	{"flushes_total", "Flushes that wrote something.", counter, nil,
		one(func(s *Stats) int64 { return s.Persist.Flushes })},
	{"flush_failures_total", "Flushes, or parts of a new base, that failed.", counter, nil,
		one(func(s *Stats) int64 { return s.Persist.Failures })},
	{"flush_failing", "Failures since all was well; 0: it is.", gauge, nil,
		one(func(s *Stats) int64 { return s.Persist.Failing })},
	{"flush_last_success_timestamp_seconds", "When the last flush succeeded, unix time; 0: none has.", gauge, nil,
		one(func(s *Stats) float64 { return unix(s.LastSave) })},
	{"flush_last_duration_seconds", "How long the last flush that succeeded took.", gauge, nil,
		seconds(func(s *Stats) time.Duration { return s.Persist.LastDuration })},
	{"flush_last_keys", "Changed keys in the last flush that succeeded.", gauge, nil,
		one(func(s *Stats) int64 { return s.Persist.LastKeys })},
	{"flush_last_bytes", "Bytes that the last flush that succeeded wrote.", gauge, nil,
		one(func(s *Stats) int64 { return s.Persist.LastBytes })},
	{"unflushed_changes", "Changes that are not on disk, about.", gauge, nil,
		one(func(s *Stats) int64 { return s.Persist.Changed })},
	{"state_file_bytes", "Size of the state file.", gauge, nil,
		one(func(s *Stats) int64 { return s.Persist.FileBytes })},
	{"compactions_total", "How often the whole state was written anew.", counter, nil,
		one(func(s *Stats) int64 { return s.Persist.Compactions })},
	{"compacting", "Whether the whole state is being written anew.", gauge, nil,
		one(func(s *Stats) float64 { return truth(s.Persist.Compacting) })},
}

// tlsMetrics are those of a node with a certificate; TLS is not nil.
var tlsMetrics = []metric[Stats]{
	{"tls_certificate_expiry_timestamp_seconds", "When the certificate that clients see ends, unix time.", gauge, nil,
		one(func(s *Stats) float64 { return unix(s.TLS.ValidUntil) })},
}
