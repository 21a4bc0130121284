package command

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/engine"
)

// infoLines are the lines of INFO by name, without headings.
func infoLines(t *testing.T, text string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\r\n"), "\r\n") {
		if line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.ContainsAny(line, "\r\n") {
			t.Errorf("no name:value: %q", line)
		}
		if _, twice := out[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		out[name] = value
	}
	return out
}

func TestInfoFigures(t *testing.T) {
	s := newServer()
	s.Counters.Commands.Store(41)
	s.Counters.AuthFailures.Store(42)
	s.Counters.CrossClosed.Store(43)
	s.Persist = &fakePersist{last: start.Add(time.Hour), err: errors.New("x"), info: PersistInfo{
		Durability: "interval", Interval: 1500 * time.Millisecond, Saving: true, LastDuration: 2_345_678 * time.Microsecond,
		LastKeys: 51, LastBytes: 52, Flushes: 53, Failures: 54, Failing: 55, LastError: "disk\r\nfull", FileBytes: 56, Compacting: true, Compactions: 59, Changed: 57,
	}}
	got := infoLines(t, callFlat(t, s, newConn(s), "INFO"))
	for name, want := range map[string]string{
		"redis_version": "7.4.0", "redis_mode": "standalone", "stint_version": "1.2.3", "run_id": s.RunID, "tcp_port": "6390",
		"server_time_usec": strconv.FormatInt(now.UnixMicro(), 10), "clock_ns": "1700000123456789012",
		"uptime_in_seconds": "259205", "uptime_in_days": "3",
		"connected_clients": "31", "maxclients": "32", "blocked_clients": "0",
		"used_memory": "5242880", "used_memory_human": "5.00M", "maxmemory": "1073741824", "maxmemory_human": "1.00G", "maxmemory_policy": "noeviction",
		"loading": "0", "rdb_changes_since_last_save": "57", "rdb_bgsave_in_progress": "1", "rdb_last_save_time": "1700003600",
		"rdb_last_bgsave_status": "err", "rdb_last_bgsave_time_sec": "2", "rdb_saves": "53", "aof_enabled": "0",
		"durability": "interval", "flush_interval_ms": "1500", "flush_last_duration_us": "2345678", "flush_last_keys": "51", "flush_last_bytes": "52",
		"flush_count": "53", "flush_failures": "54", "flush_failing": "55", "flush_last_error": "disk  full", "state_file_bytes": "56", "compacting": "1", "compactions": "59",
		"total_connections_received": "33", "total_commands_processed": "41", "rejected_connections": "34",
		"total_net_input_bytes": "35", "total_net_output_bytes": "36", "protocol_errors": "37", "client_output_buffer_limit_disconnections": "38",
		"connection_panics": "39", "idle_connections_closed": "40", "tls_on_plain_port_closed": "44", "accept_errors": "45", "clients_input_bytes": "46", "clients_output_bytes": "47",
		"total_error_replies": "0", "slowlog_len": "0", "latency_events": "0", "instantaneous_ops_per_sec": "0", "acl_access_denied_auth": "42", "http_connections_closed": "43", "forgotten_units": "77", "expired_keys": "99", "evicted_keys": "0",
		"role": "master", "connected_slaves": "0", "cluster_enabled": "0",
		"db0": "keys=11,expires=11,avg_ttl=0", "db15": "keys=22,expires=22,avg_ttl=0",
	} {
		if got[name] != want {
			t.Errorf("%s:%s, want %s", name, got[name], want)
		}
	}
	if _, there := got["db1"]; there {
		t.Error("an empty database is listed")
	}
	for _, name := range []string{"used_memory_rss", "used_memory_heap", "process_id"} {
		if n, err := strconv.ParseInt(got[name], 10, 64); err != nil || n <= 0 {
			t.Errorf("%s:%s", name, got[name])
		}
	}
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		if f, err := strconv.ParseFloat(got[name], 64); err != nil || f < 0 {
			t.Errorf("%s:%s", name, got[name])
		}
	}
}

func TestInfoWithoutPersistence(t *testing.T) {
	got := infoLines(t, Info(&Server{Started: start}, nil))
	for name, want := range map[string]string{
		"durability": "none", "rdb_last_bgsave_status": "ok", "rdb_last_bgsave_time_sec": "-1", "rdb_last_save_time": "1700000000", "loading": "0", "used_memory_human": "0B",
	} {
		if got[name] != want {
			t.Errorf("%s:%s, want %s", name, got[name], want)
		}
	}
}

func TestInfoSections(t *testing.T) {
	s := newServer()
	headings := func(args ...string) string {
		var out []string
		for line := range strings.SplitSeq(callFlat(t, s, newConn(s), append([]string{"INFO"}, args...)...), "\r\n") {
			if title, ok := strings.CutPrefix(line, "# "); ok {
				out = append(out, title)
			}
		}
		return strings.Join(out, " ")
	}
	counted := 0
	count := s.Keyspace
	s.Keyspace = func() engine.Stats { counted++; return count() }
	headings()
	headings("server", "cpu")
	if counted != 1 {
		t.Errorf("the keyspace was counted %d times, want once, and not without need", counted)
	}
	const usual = "Server Clients Memory Persistence Stats Replication CPU TLS Errorstats Cluster Keyspace"
	all := strings.Replace(usual, "Errorstats", "Errorstats Commandstats Latencystats", 1)
	for _, c := range []struct{ args, want string }{
		{"", usual}, {"default", usual}, {"ALL", all}, {"everything", all}, {"server default", usual}, {"default latencystats", strings.Replace(all, "Commandstats ", "", 1)},
		{"server", "Server"}, {"KEYSPACE cpu", "CPU Keyspace"}, {"stats stats", "Stats"}, {"nothing", ""},
	} {
		if got := headings(strings.Fields(c.args)...); got != c.want {
			t.Errorf("INFO %s: %q, want %q", c.args, got, c.want)
		}
	}
	conn := newConn(s)
	conn.Proto = 3
	if got := call(t, s, conn, "INFO", "cluster"); got != "=34\r\ntxt:# Cluster\r\ncluster_enabled:0\r\n\r\n" {
		t.Errorf("RESP3: %q", got)
	}
	if got := call(t, s, newConn(s), "INFO", "cluster", "replication"); !strings.Contains(got, "\r\n\r\n# Cluster\r\n") {
		t.Errorf("an empty line must stand between sections: %q", got)
	}
}

func TestHumanBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1024: "1.00K", 1536: "1.50K", 1 << 20: "1.00M", 5 << 40: "5.00T", 1 << 62: "4096.00P"} {
		if got := humanBytes(n); got != want {
			t.Errorf("humanBytes(%d) = %s, want %s", n, got, want)
		}
	}
}
