package main

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// reported is what a healthy server tells at noon.
func reported(change map[string]string) map[string]string {
	info := map[string]string{
		"stint_version": "1.2.3", "process_id": "77", "uptime_in_seconds": "90061", "connected_clients": "3", "maxclients": "100",
		"used_memory": "1048576", "used_memory_rss": "20971520", "maxmemory": "0", "durability": "interval",
		"rdb_last_save_time": "1893499140", "rdb_changes_since_last_save": "5", "flush_failing": "0", "flush_failures": "2",
		"flush_interval_ms": "1000", "flush_count": "9", "flush_last_keys": "12", "flush_last_duration_us": "3456", "flush_last_error": "",
		"decisions_allowed": "10", "decisions_refused": "20", "clock_ahead_ms": "0", "server_time_usec": "1893499200000000",
		"db0": "keys=7,expires=7,avg_ttl=0", "db10": "keys=2,expires=2,avg_ttl=0", "db9": "keys=1,expires=1,avg_ttl=0", "dbx": "keys=9",
	}
	maps.Copy(info, change)
	return info
}

var noon = time.Unix(1893499200, 0)

func TestProblemsAreFoundAtTheirBounds(t *testing.T) {
	for _, x := range []struct {
		change map[string]string
		want   string // name of the problem, "" for none
	}{
		{nil, ""},
		{map[string]string{"rdb_last_save_time": "1893499139"}, "flush"}, // 61 s
		{map[string]string{"rdb_last_save_time": "1893499139", "rdb_changes_since_last_save": "0"}, ""},
		{map[string]string{"rdb_last_save_time": "1893499139", "durability": "none"}, ""},
		{map[string]string{"rdb_last_save_time": "1893499139", "flush_interval_ms": "60000"}, ""},
		{map[string]string{"rdb_last_save_time": "1893498599", "flush_interval_ms": "60000"}, "flush"}, // 601 s
		{map[string]string{"flush_failing": "1", "flush_last_error": "no space left"}, "flush"},
		{map[string]string{"maxmemory": "1165084", "used_memory": "1048500"}, ""},
		{map[string]string{"maxmemory": "1048576", "used_memory": "943651"}, "memory"},
		{map[string]string{"maxmemory": "1048576", "used_memory": "943650"}, ""},
		{map[string]string{"connected_clients": "90"}, ""},
		{map[string]string{"connected_clients": "91"}, "clients"},
		{map[string]string{"clock_ahead_ms": "5000"}, ""},
		{map[string]string{"clock_ahead_ms": "5001"}, "clock"},
		{map[string]string{"tls_certificate_valid_until": "1894708800"}, ""}, // 14 days
		{map[string]string{"tls_certificate_valid_until": "1894708799"}, "certificate"},
		{map[string]string{"tls_certificate_valid_until": "1893499200"}, "certificate"},
		{map[string]string{"stint_version": "", "redis_version": "7.2.0"}, "other"},
	} {
		r := newReport("a:1", reported(x.change), noon, time.Millisecond)
		got := ""
		for _, p := range r.Problems {
			got += p.Name
		}
		state, code := "healthy", statusHealthy
		if x.want != "" {
			state, code = "problem", statusProblem
		}
		if got != x.want || r.State != state || r.code() != code {
			t.Errorf("%v: the problems are %q, the state %s, the code %d; want %q", x.change, got, r.State, r.code(), x.want)
		}
	}
}

func TestReportForPeople(t *testing.T) {
	r := newReport("a:1", reported(map[string]string{
		"flush_failing": "3", "flush_last_error": "disk \x1b[31mfull", "maxmemory": "10485760", "connection_panics": "2",
		"tls_certificate_valid_until": "1999999999", "tls_handshakes_failed": "4",
	}), time.Time{}, time.Millisecond)
	r.rate(reported(map[string]string{"total_commands_processed": "100"}), reported(map[string]string{
		"server_time_usec": "1893499202000000", "decisions_allowed": "15", "decisions_refused": "120", "total_commands_processed": "300",
	}))
	want := strings.TrimPrefix(`
stint 1.2.3 at a:1: problem
PROBLEM     the state cannot be written, 3 tries have failed since all was well; a crash loses all of the last 1m0s. The last error: disk ?[31mfull
up          1d1h, process 77
clients     3 of at most 100
keys        10: db0 7, db9 1, db10 2
memory      1.0 MiB for keys, of at most 10.0 MiB, 10 %; 20.0 MiB resident
durability  interval, every 1s; all up to 1m0s ago is on disk, about 5 changes since; the last flush wrote 12 keys in 3.5ms; 2 failures since the start
decisions   10 allowed, 20 refused since the start
a second    2.5 allowed, 50.0 refused, 100.0 commands, measured for 2.0 s
TLS         certificate valid until 2033-05-18T03:33:19Z, 4 handshakes failed
faults      2 connections were closed by a fault of stint: the log has it, please report it
`, "\n")
	if got := r.text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestDurabilityInWords asks a server that has just started, one that has just
// flushed, and one that has been alone for a while.
func TestDurabilityInWords(t *testing.T) {
	for _, x := range []struct {
		change map[string]string
		want   string
	}{
		{map[string]string{"flush_count": "0", "rdb_changes_since_last_save": "0", "rdb_last_save_time": "1700000000"}, "interval, every 1s; nothing to write since the start; 2 failures since the start"},
		{map[string]string{"flush_count": "0", "flush_failures": "0"}, "interval, every 1s; the first flush since the start is still to come, about 5 changes; no failures since the start"},
		{map[string]string{"flush_count": "1", "flush_last_keys": "1", "flush_failures": "1", "rdb_last_save_time": "1893499199", "server_time_usec": "1893499200296712"},
			"interval, every 1s; all up to a moment ago is on disk, about 5 changes since; the last flush wrote 1 key in 3.5ms; 1 failure since the start"},
		{map[string]string{"rdb_changes_since_last_save": "0", "rdb_last_save_time": "1893499198", "server_time_usec": "1893499200296712"},
			"interval, every 1s; all up to 2s ago is on disk, nothing changed since; the last flush wrote 12 keys in 3.5ms; 2 failures since the start"},
		{map[string]string{"durability": "none"}, "none: a stop or a crash loses everything"},
	} {
		if got := newReport("a:1", reported(x.change), noon, time.Millisecond).durability(); got != x.want {
			t.Errorf("%v: got\n%s\nwant\n%s", x.change, got, x.want)
		}
	}
}

func TestSpansForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999 * time.Nanosecond: "1µs", 1500 * time.Microsecond: "1.5ms", 123456 * time.Microsecond: "123ms",
		1234 * time.Millisecond: "1.23s", 59*time.Second + 400*time.Millisecond: "59s", 61 * time.Second: "1m1s", 3*time.Hour + 5*time.Minute: "3h5m", 49 * time.Hour: "2d1h",
	} {
		if got := span(d); got != want {
			t.Errorf("%v is written %q, want %q", int64(d), got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 5 << 30: "5.0 GiB", 1 << 50: "1024.0 TiB"} {
		if got := people(n); got != want {
			t.Errorf("%d bytes are written %q, want %q", n, got, want)
		}
	}
}

// TestAReportCannotMisleadATerminal has each text of a server's carry what a
// terminal would obey.
func TestAReportCannotMisleadATerminal(t *testing.T) {
	change := map[string]string{"flush_failing": "1", "tls_certificate_valid_until": "1893499200"}
	for _, name := range []string{"stint_version", "process_id", "durability", "flush_last_error", "tls_handshakes_failed"} {
		change[name] = "\x1b[31m\a\u202e"
	}
	other := map[string]string{"stint_version": "", "redis_version": "\x1b[31m\a\u202e"}
	for _, change := range []map[string]string{change, other} {
		text := newReport("a:1", reported(change), noon, time.Millisecond).text()
		if strings.ContainsAny(text, "\x1b\a\u202e") || !strings.Contains(text, "?[31m") {
			t.Errorf("the report is %q", text)
		}
	}
}
