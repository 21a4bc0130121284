package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds above which a report has a problem.
const (
	fullPercent  = 90               // of memory or clients
	aheadLimit   = 5 * time.Second  // the clock of decisions before the wall clock
	staleAtLeast = 60 * time.Second // changes not on disk for so long, or for staleRounds intervals
	staleRounds  = 10
)

// statusReport is what `stint status` tells; its JSON form is a contract with
// those who read it by program: fields are added, none changes its meaning.
type statusReport struct {
	Addr     string       `json:"addr"`
	State    string       `json:"state"` // healthy, problem or unreachable
	Problems []statusNote `json:"problems"`

	Version       string           `json:"version,omitempty"`
	UptimeSeconds int64            `json:"uptime_seconds"`
	AnswerSeconds float64          `json:"answer_seconds"` // connection, password and INFO
	Clients       int64            `json:"clients"`
	MaxClients    int64            `json:"max_clients"`
	Keys          int64            `json:"keys"`
	KeysByDB      map[string]int64 `json:"keys_by_db,omitempty"`
	MemoryBytes   int64            `json:"memory_bytes"`
	MaxMemory     int64            `json:"max_memory_bytes"` // 0: no limit
	ResidentBytes int64            `json:"resident_bytes"`

	Durability   string  `json:"durability,omitempty"`
	LastFlush    int64   `json:"last_flush_time"`        // unix seconds, of the start before the first
	LastFlushAge float64 `json:"last_flush_age_seconds"` // by the server's clock
	Unflushed    int64   `json:"unflushed_changes"`      // about
	Failing      int64   `json:"flush_failing"`          // failures since all was well

	Allowed int64       `json:"decisions_allowed"` // since the start
	Refused int64       `json:"decisions_refused"`
	Rate    *statusRate `json:"rate,omitempty"` // with --for

	Info map[string]string `json:"info,omitempty"` // every field of INFO
}

// statusNote is a problem: a word for programs and a sentence for people.
type statusNote struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// statusRate is what happened a second while it was measured.
type statusRate struct {
	Seconds  float64 `json:"seconds"`
	Allowed  float64 `json:"allowed"`
	Refused  float64 `json:"refused"`
	Commands float64 `json:"commands"`
}

func (r *statusReport) problem(name, format string, args ...any) {
	r.Problems = append(r.Problems, statusNote{name, fmt.Sprintf(format, args...)})
}

// code is the exit code.
func (r *statusReport) code() int {
	switch r.State {
	case "healthy":
		return statusHealthy
	case "problem":
		return statusProblem
	}
	return statusUnreachable
}

// parseInfo is the reply of INFO by its fields.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok && !strings.HasPrefix(name, "#") {
			info[name] = value
		}
	}
	return info
}

// number is a field of INFO, 0 if it is absent or no number.
func number(info map[string]string, name string) int64 {
	n, _ := strconv.ParseInt(info[name], 10, 64)
	return n
}

// newReport judges what a server says of itself. now stands in for the server's
// clock if it does not tell it.
func newReport(addr string, info map[string]string, now time.Time, took time.Duration) *statusReport {
	r := &statusReport{
		Addr: addr, Info: info, Problems: []statusNote{},
		Version: info["stint_version"], UptimeSeconds: number(info, "uptime_in_seconds"), AnswerSeconds: took.Seconds(),
		Clients: number(info, "connected_clients"), MaxClients: number(info, "maxclients"), KeysByDB: map[string]int64{},
		MemoryBytes: number(info, "used_memory"), MaxMemory: number(info, "maxmemory"), ResidentBytes: number(info, "used_memory_rss"),
		Durability: info["durability"], LastFlush: number(info, "rdb_last_save_time"),
		Unflushed: number(info, "rdb_changes_since_last_save"), Failing: number(info, "flush_failing"),
		Allowed: number(info, "decisions_allowed"), Refused: number(info, "decisions_refused"),
	}
	for name, value := range info {
		if _, err := strconv.ParseUint(strings.TrimPrefix(name, "db"), 10, 8); !strings.HasPrefix(name, "db") || err != nil {
			continue
		}
		var n int64
		if _, err := fmt.Sscanf(value, "keys=%d", &n); err == nil {
			r.KeysByDB[name] = n
			r.Keys += n
		}
	}
	if us := number(info, "server_time_usec"); us > 0 {
		now = time.UnixMicro(us)
	}
	if r.LastFlush > 0 {
		r.LastFlushAge = max(0, now.Sub(time.Unix(r.LastFlush, 0)).Seconds())
	}
	r.judge(now)
	r.State = "healthy"
	if len(r.Problems) > 0 {
		r.State = "problem"
	}
	return r
}

// judge finds the problems, the worst first.
func (r *statusReport) judge(now time.Time) {
	if r.Version == "" {
		text := "what answers is no stint"
		if redis := r.Info["redis_version"]; redis != "" {
			text += ": it calls itself Redis " + redis
		}
		r.problem("other", "%s", text)
		return
	}
	stale := max(staleAtLeast, staleRounds*time.Duration(number(r.Info, "flush_interval_ms"))*time.Millisecond)
	switch age := time.Duration(r.LastFlushAge * float64(time.Second)); {
	case r.Failing > 0:
		r.problem("flush", "the state cannot be written, %d tries have failed since all was well; a crash loses all of the last %s. The last error: %s", r.Failing, span(age), r.Info["flush_last_error"])
	case r.Durability != "none" && r.Unflushed > 0 && age > stale:
		r.problem("flush", "%d changes are not on disk, and the last flush is %s ago: a crash loses them; is the disk too slow?", r.Unflushed, span(age))
	}
	if r.MaxMemory > 0 && r.MemoryBytes > r.MaxMemory/100*fullPercent {
		r.problem("memory", "%s of at most %s of memory are used: at the limit, new keys are refused with OOM; raise --max-memory, or CONFIG SET maxmemory", people(r.MemoryBytes), people(r.MaxMemory))
	}
	if r.MaxClients > 0 && r.Clients*100 > r.MaxClients*fullPercent {
		r.problem("clients", "%d of at most %d clients are connected: at the limit, new ones are refused; raise --max-clients, or CONFIG SET maxclients", r.Clients, r.MaxClients)
	}
	r.judgeCluster()
	if ahead := time.Duration(number(r.Info, "clock_ahead_ms")) * time.Millisecond; ahead > aheadLimit {
		r.problem("clock", "the clock of decisions is %s ahead of the wall clock, which was set back: mend the time service", span(ahead))
	}
	if until := number(r.Info, "tls_certificate_valid_until"); until > 0 {
		switch left := time.Unix(until, 0).Sub(now); {
		case left <= 0:
			r.problem("certificate", "the TLS certificate has expired on %s: clients refuse it; replace the file and send SIGHUP", day(time.Unix(until, 0)))
		case left < certificateNotice:
			r.problem("certificate", "the TLS certificate expires on %s: replace the file and send SIGHUP", day(time.Unix(until, 0)))
		}
	}
}

// rate adds what happened between two INFOs, by the server's clock.
func (r *statusReport) rate(first, second map[string]string) {
	seconds := float64(number(second, "server_time_usec")-number(first, "server_time_usec")) / 1e6
	if seconds <= 0 || number(second, "uptime_in_seconds") < number(first, "uptime_in_seconds") {
		return
	}
	each := func(name string) float64 {
		return max(0, float64(number(second, name)-number(first, name))) / seconds
	}
	r.Rate = &statusRate{seconds, each("decisions_allowed"), each("decisions_refused"), each("total_commands_processed")}
}

// text is the report for people: problems first.
func (r *statusReport) text() string {
	var b strings.Builder
	name := "stint"
	if r.Version != "" {
		name += " " + printable(r.Version)
	}
	fmt.Fprintf(&b, "%s at %s: %s\n", name, r.Addr, r.State)
	row := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-11s %s\n", what, fmt.Sprintf(format, args...))
	}
	for _, p := range r.Problems {
		row("PROBLEM", "%s", printable(p.Text))
	}
	if r.Version == "" {
		return b.String()
	}
	row("up", "%s, process %s", span(time.Duration(r.UptimeSeconds)*time.Second), printable(r.Info["process_id"]))
	row("clients", "%d of at most %d", r.Clients, r.MaxClients)
	row("keys", "%d%s", r.Keys, r.databases())
	limit := "no limit"
	if r.MaxMemory > 0 {
		limit = fmt.Sprintf("of at most %s, %d %%", people(r.MaxMemory), 100*r.MemoryBytes/r.MaxMemory)
	}
	row("memory", "%s for keys, %s; %s resident", people(r.MemoryBytes), limit, people(r.ResidentBytes))
	row("durability", "%s", r.durability())
	for _, line := range r.clusterRows() {
		row("cluster", "%s", line)
	}
	row("decisions", "%d allowed, %d refused since the start", r.Allowed, r.Refused)
	if r.Rate != nil {
		row("a second", "%.1f allowed, %.1f refused, %.1f commands, measured for %.1f s", r.Rate.Allowed, r.Rate.Refused, r.Rate.Commands, r.Rate.Seconds)
	}
	if until := number(r.Info, "tls_certificate_valid_until"); until > 0 {
		row("TLS", "certificate valid until %s, %s handshakes failed", day(time.Unix(until, 0)), printable(r.Info["tls_handshakes_failed"]))
	}
	if n := number(r.Info, "connection_panics"); n > 0 {
		row("faults", "%d connections were closed by a fault of stint: the log has it, please report it", n)
	}
	return b.String()
}

// databases lists those that have keys, if one of them is not the first.
func (r *statusReport) databases() string {
	if len(r.KeysByDB) == 0 || len(r.KeysByDB) == 1 && r.KeysByDB["db0"] > 0 {
		return ""
	}
	byNumber := func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	}
	var all []string
	for _, db := range slices.SortedFunc(maps.Keys(r.KeysByDB), byNumber) {
		all = append(all, fmt.Sprintf("%s %d", db, r.KeysByDB[db]))
	}
	return ": " + strings.Join(all, ", ")
}

// durability says what a crash would cost.
func (r *statusReport) durability() string {
	if r.Durability == "strict" {
		return fmt.Sprintf("strict: what was answered is on disk; the log has %s, the last snapshot %s", people(number(r.Info, "raft_log_bytes")), people(number(r.Info, "raft_snapshot_bytes")))
	}
	if r.Durability == "none" {
		return "none: a stop or a crash loses everything"
	}
	interval := time.Duration(number(r.Info, "flush_interval_ms")) * time.Millisecond
	text := fmt.Sprintf("%s, every %s; ", printable(r.Durability), span(interval))
	switch {
	case number(r.Info, "flush_count") > 0:
		took := time.Duration(number(r.Info, "flush_last_duration_us")) * time.Microsecond
		changes := "nothing changed"
		if r.Unflushed > 0 {
			changes = "about " + count(r.Unflushed, "change")
		}
		text += fmt.Sprintf("all up to %s is on disk, %s since; the last flush wrote %s in %s",
			ago(r.LastFlushAge), changes, count(number(r.Info, "flush_last_keys"), "key"), span(took))
	case r.Unflushed > 0:
		text += fmt.Sprintf("the first flush since the start is still to come, about %s", count(r.Unflushed, "change"))
	default:
		text += "nothing to write since the start"
	}
	return text + "; " + count(number(r.Info, "flush_failures"), "failure") + " since the start"
}

// ago says how long ago something was. INFO tells the time of a flush in whole
// seconds, so less than two of them say nothing.
func ago(seconds float64) string {
	if seconds < 2 {
		return "a moment ago"
	}
	return span(time.Duration(seconds)*time.Second) + " ago"
}

// count writes a number of things.
func count(n int64, thing string) string {
	switch n {
	case 0:
		return "no " + thing + "s"
	case 1:
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// span writes a length of time for people: two units at most.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 100*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// people writes a number of bytes with a unit, one decimal.
func people(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	f, u := float64(n), 0
	for f >= 1024 && u < len(units)-1 {
		f, u = f/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[u])
}

// printable replaces what could mislead a terminal: the text comes from
// whatever answers.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
