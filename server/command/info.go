package command

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/stint-dev/stint/engine"
)

var infoCommands = []Command{{
	Name: "info", Group: "server", Since: "0.1.0",
	Syntax:  "[section ...]",
	Summary: "Replies what the server is and does, as lines name:value under headings",
	Arity:   -1, Conn: info,
}}

// infoSections are the headings of INFO in order, with what stands under them.
// Those that are asked for have one line for each command: they are shown when
// they are named, or with all, as in Redis.
var infoSections = []struct {
	title string
	asked bool
	write func(*infoWriter, *Server)
}{
	{"Server", false, infoServer},
	{"Clients", false, infoClients},
	{"Memory", false, infoMemory},
	{"Persistence", false, infoPersistence},
	{"Stats", false, infoStats},
	{"Replication", false, infoReplication},
	{"CPU", false, infoCPU},
	{"TLS", false, infoTLS},
	{"Errorstats", false, infoErrorstats},
	{"Commandstats", true, infoCommandstats},
	{"Latencystats", true, infoLatencystats},
	{"Cluster", false, infoCluster},
	{"Keyspace", false, infoKeyspace},
}

// infoWriter collects the lines of INFO.
type infoWriter struct {
	strings.Builder
	stats *engine.Stats // nil until a section asks
}

// keyspace counts the keyspace once for all the sections: it looks at every
// shard.
func (w *infoWriter) keyspace(s *Server) engine.Stats {
	if w.stats == nil {
		stats := s.keyspace()
		w.stats = &stats
	}
	return *w.stats
}

// line writes name:value. The value never breaks the line.
func (w *infoWriter) line(name string, value any) {
	w.WriteString(name)
	w.WriteByte(':')
	w.WriteString(oneLine(fmt.Sprint(value)))
	w.WriteString("\r\n")
}

// oneLine replaces line breaks by spaces.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return ' '
		}
		return r
	}, s)
}

// truth is 1 or 0, as INFO writes truth values.
func truth(v bool) int {
	if v {
		return 1
	}
	return 0
}

func info(c *ConnCtx) {
	c.W.Verbatim("txt", Info(c.Server, c.Args[1:]))
}

// Info is the text that INFO replies for the sections named, in any case. all
// and everything mean all of them; default, or none named, all but those with a
// line for each command.
func Info(s *Server, sections [][]byte) string {
	usual, all := len(sections) == 0, false
	for _, name := range sections {
		usual = usual || foldEqual(name, "default")
		all = all || foldEqual(name, "all") || foldEqual(name, "everything")
	}
	var w infoWriter
	for _, section := range infoSections {
		wanted := all || usual && !section.asked
		for i := 0; !wanted && i < len(sections); i++ {
			wanted = foldEqual(sections[i], section.title)
		}
		if !wanted {
			continue
		}
		if w.Len() > 0 {
			w.WriteString("\r\n")
		}
		w.WriteString("# " + section.title + "\r\n")
		section.write(&w, s)
	}
	return w.String()
}

func infoServer(w *infoWriter, s *Server) {
	now := s.now()
	up := int64(max(0, now.Sub(s.Started)).Seconds())
	w.line("redis_version", RedisVersion)
	w.line("redis_mode", "standalone")
	w.line("stint_version", s.Version)
	w.line("go_version", runtime.Version())
	w.line("os", runtime.GOOS+" "+runtime.GOARCH)
	w.line("arch_bits", 32<<(^uint(0)>>63))
	w.line("process_id", os.Getpid())
	w.line("run_id", s.RunID)
	w.line("tcp_port", s.Port)
	w.line("server_time_usec", now.UnixMicro())
	w.line("clock_ns", s.clock())
	if s.ClockAhead != nil {
		w.line("clock_ahead_ms", s.ClockAhead().Milliseconds())
	}
	w.line("uptime_in_seconds", up)
	w.line("uptime_in_days", up/(24*60*60))
}

func infoClients(w *infoWriter, s *Server) {
	t := s.traffic()
	w.line("connected_clients", t.Clients)
	w.line("maxclients", t.MaxClients)
	w.line("blocked_clients", 0)
	w.line("clients_input_bytes", t.HeldInput)
	w.line("clients_output_bytes", t.HeldReplies)
}

// Names of what the runtime measures, in bytes.
const (
	metricTotal    = "/memory/classes/total:bytes"
	metricReleased = "/memory/classes/heap/released:bytes"
	metricObjects  = "/memory/classes/heap/objects:bytes"
)

// infoMemory tells two kinds of figures apart: used_memory is what maxmemory
// bounds, the tables of keys; used_memory_rss is what the process has from the
// system, or where that is not known about what the runtime has.
func infoMemory(w *infoWriter, s *Server) {
	stats := w.keyspace(s)
	samples := []metrics.Sample{{Name: metricTotal}, {Name: metricReleased}, {Name: metricObjects}}
	metrics.Read(samples)
	bytes := func(i int) uint64 {
		if samples[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return samples[i].Value.Uint64()
	}
	w.line("used_memory", stats.Memory)
	w.line("used_memory_human", humanBytes(stats.Memory))
	rss := residentBytes()
	if rss == 0 {
		rss = int64(bytes(0) - bytes(1))
	}
	w.line("used_memory_rss", rss)
	if stats.Memory > 0 {
		w.line("mem_fragmentation_ratio", fmt.Sprintf("%.2f", float64(rss)/float64(stats.Memory)))
	}
	w.line("used_memory_heap", bytes(2))
	w.line("maxmemory", stats.MaxMemory)
	w.line("maxmemory_human", humanBytes(stats.MaxMemory))
	w.line("maxmemory_policy", "noeviction")
	infoRuntime(w)
}

// humanBytes writes a size for people, with Redis's units.
func humanBytes(n int64) string {
	const units = "BKMGTP"
	f, u := float64(n), 0
	for f >= 1024 && u < len(units)-1 {
		f /= 1024
		u++
	}
	if u == 0 {
		return fmt.Sprintf("%dB", n)
	}
	return fmt.Sprintf("%.2f%c", f, units[u])
}

// infoPersistence uses Redis's names for the state file where they fit: it
// takes the place of the RDB file, and there is no append-only file.
func infoPersistence(w *infoWriter, s *Server) {
	var p PersistInfo
	p.Durability = "none"
	if s.Persist != nil {
		p = s.Persist.Info()
	} else if s.Cluster != nil {
		p.Durability = "strict"
	}
	status := "ok"
	if p.Failing > 0 {
		status = "err"
	}
	w.line("loading", 0)
	w.line("async_loading", 0)
	w.line("rdb_changes_since_last_save", p.Changed)
	w.line("rdb_bgsave_in_progress", truth(p.Saving))
	w.line("rdb_last_save_time", lastSave(s))
	w.line("rdb_last_bgsave_status", status)
	w.line("rdb_last_bgsave_time_sec", lastSeconds(p))
	w.line("rdb_current_bgsave_time_sec", -1)
	w.line("rdb_saves", p.Flushes)
	w.line("aof_enabled", 0)
	w.line("aof_rewrite_in_progress", 0)
	w.line("durability", p.Durability)
	w.line("flush_interval_ms", p.Interval.Milliseconds())
	w.line("flush_last_duration_us", p.LastDuration.Microseconds())
	w.line("flush_last_keys", p.LastKeys)
	w.line("flush_last_bytes", p.LastBytes)
	w.line("flush_count", p.Flushes)
	w.line("flush_failures", p.Failures)
	w.line("flush_failing", p.Failing)
	w.line("flush_last_error", p.LastError)
	w.line("state_file_bytes", p.FileBytes)
	w.line("compacting", truth(p.Compacting))
	w.line("compactions", p.Compactions)
}

// lastSeconds is how long the last save took in whole seconds, -1 before the
// first.
func lastSeconds(p PersistInfo) int64 {
	if p.Flushes == 0 {
		return -1
	}
	return int64(p.LastDuration / time.Second)
}

func infoStats(w *infoWriter, s *Server) {
	t := s.traffic()
	w.line("total_connections_received", t.Accepted)
	w.line("total_commands_processed", s.Counters.Commands.Load())
	w.line("instantaneous_ops_per_sec", s.rate.perSecond())
	w.line("total_net_input_bytes", t.BytesIn)
	w.line("total_net_output_bytes", t.BytesOut)
	w.line("rejected_connections", t.Rejected)
	w.line("expired_keys", w.keyspace(s).Expired)
	w.line("evicted_keys", 0)
	w.line("decisions_allowed", w.keyspace(s).Allowed)
	w.line("decisions_refused", w.keyspace(s).Refused)
	w.line("pubsub_channels", 0)
	w.line("pubsub_patterns", 0)
	w.line("acl_access_denied_auth", s.Counters.AuthFailures.Load())
	w.line("client_output_buffer_limit_disconnections", t.OutputClosed)
	w.line("protocol_errors", t.ProtocolErrors)
	w.line("tls_on_plain_port_closed", t.TLSClosed)
	w.line("idle_connections_closed", t.IdleClosed)
	w.line("accept_errors", t.AcceptErrors)
	w.line("total_error_replies", s.errors.total())
	w.line("slowlog_len", s.slow.len())
	w.line("latency_events", len(s.spikes.list()))
	w.line("http_connections_closed", s.Counters.CrossClosed.Load())
	w.line("connection_panics", t.Panics)
	w.line("forgotten_units", w.keyspace(s).Forgotten)
}

func infoReplication(w *infoWriter, _ *Server) {
	// A client that finds a master sends it all commands, which every node takes.
	w.line("role", "master")
	w.line("connected_slaves", 0)
	w.line("master_repl_offset", 0)
}

func infoCPU(w *infoWriter, _ *Server) {
	sys, user := cpuTime()
	w.line("used_cpu_sys", fmt.Sprintf("%.6f", sys.Seconds()))
	w.line("used_cpu_user", fmt.Sprintf("%.6f", user.Seconds()))
}

func infoCluster(w *infoWriter, s *Server) {
	w.line("cluster_enabled", 0) // Redis Cluster: there are no slots
	if s.Cluster == nil {
		return
	}
	w.line("fail_mode", s.Fallback.Mode)
	w.line("fail_mode_active", truth(s.Fallback.Active()))
	for i, name := range FailModes {
		w.line("failed_decisions_"+name, s.Fallback.Answered[i].Load())
	}
	w.line("commands_not_decided", s.Undecided.NotApplied.Load())
	w.line("commands_indeterminate", s.Undecided.Unknown.Load())
	status := s.Cluster.Status()
	for _, l := range append(status.lines(), status.nodeLines()...) {
		name, value, _ := strings.Cut(l, ":")
		w.line("raft_"+name, value)
	}
}

// infoKeyspace counts the keys that are not full. Every one of them runs out.
func infoKeyspace(w *infoWriter, s *Server) {
	for db, n := range w.keyspace(s).Keys {
		if n > 0 {
			w.line(fmt.Sprintf("db%d", db), fmt.Sprintf("keys=%d,expires=%d,avg_ttl=0", n, n))
		}
	}
}
