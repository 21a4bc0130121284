package admin

import (
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/store"
	"github.com/stint-dev/stint/server/command"
	"github.com/stint-dev/stint/server/local"
)

// TestEveryFigureIsShown fails when a metric reads another field than its own:
// no two fields of full are equal.
func TestEveryFigureIsShown(t *testing.T) {
	got := scrape(t, full())
	want := map[string]float64{
		`stint_build_info{version="1.2.3"}`:                                   1,
		`stint_ready`:                                                         1,
		`stint_decisions_total{result="allowed"}`:                             301,
		`stint_decisions_total{result="refused"}`:                             302,
		`stint_failed_decisions_total{mode="error"}`:                          401,
		`stint_failed_decisions_total{mode="open"}`:                           402,
		`stint_failed_decisions_total{mode="closed"}`:                         403,
		`stint_failed_decisions_total{mode="local"}`:                          404,
		`stint_fail_mode_active{mode="error"}`:                                0,
		`stint_fail_mode_active{mode="open"}`:                                 0,
		`stint_fail_mode_active{mode="closed"}`:                               1,
		`stint_fail_mode_active{mode="local"}`:                                0,
		`stint_forgotten_units_total`:                                         303,
		`stint_buckets`:                                                       304,
		`stint_expired_buckets_total`:                                         305,
		`stint_memory_bytes`:                                                  306,
		`stint_memory_limit_bytes`:                                            307,
		`stint_clock_ahead_seconds`:                                           1.5,
		`stint_commands_total`:                                                101,
		`stint_commands_failed_total{command="throttle"}`:                     2,
		`stint_commands_rejected_total{command="throttle"}`:                   3,
		`stint_error_replies_total{error="OOM"}`:                              104,
		`stint_error_replies_total{error="ERR"}`:                              105,
		`stint_auth_failures_total`:                                           102,
		`stint_connections`:                                                   201,
		`stint_connections_limit`:                                             202,
		`stint_connections_accepted_total`:                                    203,
		`stint_connections_refused_total`:                                     204,
		`stint_connections_closed_total{reason="http"}`:                       103,
		`stint_connections_closed_total{reason="protocol"}`:                   207,
		`stint_connections_closed_total{reason="output"}`:                     208,
		`stint_connections_closed_total{reason="panic"}`:                      209,
		`stint_connections_closed_total{reason="idle"}`:                       210,
		`stint_connections_closed_total{reason="tls_on_plain_port"}`:          211,
		`stint_connections_closed_total{reason="tls_handshake"}`:              212,
		`stint_accept_errors_total`:                                           213,
		`stint_received_bytes_total`:                                          205,
		`stint_sent_bytes_total`:                                              206,
		`stint_held_bytes{direction="input"}`:                                 214,
		`stint_held_bytes{direction="output"}`:                                215,
		`stint_flush_interval_seconds`:                                        1,
		`stint_flushes_total`:                                                 503,
		`stint_flush_failures_total`:                                          504,
		`stint_flush_failing`:                                                 505,
		`stint_flush_last_success_timestamp_seconds`:                          1700000000.25,
		`stint_flush_last_duration_seconds`:                                   0.02,
		`stint_flush_last_keys`:                                               501,
		`stint_flush_last_bytes`:                                              502,
		`stint_unflushed_changes`:                                             508,
		`stint_state_file_bytes`:                                              506,
		`stint_compactions_total`:                                             507,
		`stint_compacting`:                                                    1,
		`stint_tls_certificate_expiry_timestamp_seconds`:                      1800000000,
		`stint_raft_info{cluster="c0",node="n1",server="n1.00ff"}`:            1,
		`stint_raft_state{state="leader"}`:                                    0,
		`stint_raft_state{state="follower"}`:                                  1,
		`stint_raft_state{state="candidate"}`:                                 0,
		`stint_raft_state{state="joining"}`:                                   0,
		`stint_raft_state{state="stopped"}`:                                   0,
		`stint_raft_is_leader`:                                                0,
		`stint_raft_leader_known`:                                             1,
		`stint_raft_term`:                                                     601,
		`stint_raft_voters`:                                                   3,
		`stint_raft_nonvoters`:                                                2,
		`stint_raft_voters_unreachable`:                                       1,
		`stint_raft_last_contact_seconds`:                                     0.04,
		`stint_raft_format_level`:                                             7,
		`stint_raft_last_index`:                                               602,
		`stint_raft_commit_index`:                                             603,
		`stint_raft_applied_index`:                                            604,
		`stint_raft_log_bytes`:                                                609,
		`stint_raft_log_slowest_write_seconds`:                                0.03,
		`stint_raft_snapshot_index`:                                           605,
		`stint_raft_snapshot_bytes`:                                           606,
		`stint_raft_snapshots_total`:                                          607,
		`stint_raft_snapshots_failing`:                                        608,
		`stint_raft_batches_total`:                                            610,
		`stint_raft_decisions_total`:                                          611,
		`stint_raft_entries_total`:                                            612,
		`stint_raft_entry_bytes_total`:                                        613,
		`stint_raft_confirmations_total`:                                      614,
		`stint_raft_fenced_entries_total`:                                     615,
		`stint_raft_waiting_batches`:                                          616,
		`stint_raft_forwarded_batches_total`:                                  617,
		`stint_raft_forwards_lost_total`:                                      618,
		`stint_raft_relayed_batches_total`:                                    619,
		`stint_raft_not_applied_batches_total`:                                620,
		`stint_raft_indeterminate_batches_total`:                              621,
		`stint_raft_clock_ahead_seconds`:                                      6,
		`stint_command_duration_seconds_count{command="throttle"}`:            10,
		`stint_command_duration_seconds_sum{command="throttle"}`:              0.005,
		`promhttp_metric_handler_errors_total{cause="gathering"}`:             0,
		`stint_command_duration_seconds_bucket{command="throttle",le="+Inf"}`: 10,
	}
	for name, v := range want {
		if g, ok := got[name]; !ok || g != v {
			t.Errorf("%s is %v (there: %t), want %v", name, g, ok, v)
		}
	}
	if age := got["stint_raft_snapshot_age_seconds"]; math.Abs(age-3600) > 60 {
		t.Errorf("the snapshot of an hour ago is %v s old", age)
	}
	for name := range got {
		if _, ok := want[name]; !ok && strings.HasPrefix(name, prefix) && name != "stint_raft_snapshot_age_seconds" &&
			!strings.HasPrefix(name, "stint_command_duration_seconds_bucket") {
			t.Errorf("nothing checks %s", name)
		}
	}
	for _, name := range []string{"go_goroutines", "process_start_time_seconds"} {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing: the runtime or the process is not shown", name)
		}
	}
}

func TestWhatANodeHasNotHasNoMetrics(t *testing.T) {
	for _, tc := range []struct {
		name  string
		drop  func(*fake)
		begin []string
	}{
		{"no cluster", func(f *fake) { f.cluster = nil }, []string{"stint_raft_"}},
		{"no flushes", func(f *fake) { f.stats.Persist = nil }, []string{"stint_flush", "stint_unflushed", "stint_state_file", "stint_compact"}},
		{"no TLS", func(f *fake) { f.stats.TLS = nil }, []string{"stint_tls_"}},
		{"a follower", func(f *fake) { f.cluster.Unreachable = -1 }, []string{"stint_raft_voters_unreachable"}},
		{"no snapshot", func(f *fake) { f.cluster.SnapshotTime = time.Time{} }, []string{"stint_raft_snapshot_age"}},
		{"not called", func(f *fake) { f.stats.PerCommand[0].Calls = 0 }, []string{"stint_command_duration"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := full()
			tc.drop(f)
			rest := scrape(t, f)
			for _, begin := range tc.begin {
				for name := range rest {
					if strings.HasPrefix(name, begin) {
						t.Errorf("%s is shown", name)
					}
				}
			}
			if _, ok := rest["stint_buckets"]; !ok {
				t.Error("the other metrics are gone too")
			}
		})
	}
}

// TestCountersBeginAtZero holds the series that alerts count growth of: one that
// first appears with its first event has no growth to be seen.
func TestCountersBeginAtZero(t *testing.T) {
	got := scrape(t, &fake{cluster: &ClusterStats{}})
	for _, name := range []string{
		`stint_failed_decisions_total{mode="open"}`, `stint_decisions_total{result="refused"}`,
		`stint_connections_closed_total{reason="panic"}`, `stint_fail_mode_active{mode="open"}`,
		`stint_raft_indeterminate_batches_total`, `stint_raft_state{state="leader"}`,
	} {
		if v, ok := got[name]; !ok || v != 0 {
			t.Errorf("%s of a new node is %v (there: %t), want 0", name, v, ok)
		}
	}
}

func TestFailModeIsShownOnlyWhileItAnswers(t *testing.T) {
	for _, mode := range failModes {
		f := &fake{stats: Stats{FailMode: mode}}
		for _, active := range []bool{false, true} {
			f.stats.FailActive = active
			got, sum := scrape(t, f), 0.0
			for _, m := range failModes {
				sum += got[`stint_fail_mode_active{mode="`+m+`"}`]
			}
			if v := got[`stint_fail_mode_active{mode="`+mode+`"}`]; v != truth(active) || sum != truth(active) {
				t.Errorf("mode %s, active %t: its value is %v, that of all %v", mode, active, v, sum)
			}
		}
	}
}

func TestAnUnknownStateIsNotHidden(t *testing.T) {
	got := scrape(t, &fake{cluster: &ClusterStats{State: "dreaming"}})
	if got[`stint_raft_state{state="dreaming"}`] != 1 || got[`stint_raft_state{state="leader"}`] != 0 {
		t.Errorf("a state that is new here is lost")
	}
	if got[`stint_raft_state{state="follower"}`] != 0 || slices.Contains(raftStates, "dreaming") {
		t.Error("the list of known states was changed")
	}
}

func TestReadyMetricFollowsReadiness(t *testing.T) {
	if v := scrape(t, &fake{why: "no leader is known"})["stint_ready"]; v != 0 {
		t.Errorf("stint_ready of a node that is not ready is %v", v)
	}
}

func TestHistogramKeepsTheCountsBetweenItsBorders(t *testing.T) {
	got := scrape(t, full())
	// 1 call within 1,024 ns, 4 within 8,192, 9 within 1,048,576, the tenth longer
	// than all borders.
	for le, want := range map[string]float64{
		"1.024e-06": 1, "4.096e-06": 1, "1.6384e-05": 4, "0.000262144": 4, "0.001048576": 9, "4.294967296": 9, "+Inf": 10,
	} {
		name := `stint_command_duration_seconds_bucket{command="throttle",le="` + le + `"}`
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (there: %t), want %v", name, v, ok, want)
		}
	}
}

func TestNamesFollowPrometheusRules(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(newCollector(full())); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	_, body := get(t, full(), "/metrics")
	text, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatalf("the text cannot be parsed: %v", err)
	}
	for _, p := range append(problems, text...) {
		if strings.HasPrefix(p.Metric, prefix) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestLabelsNeverHaveWhatClientsSend decides on a key and replies errors that
// begin with what a client sent.
func TestLabelsNeverHaveWhatClientsSend(t *testing.T) {
	ks, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	args := [][]byte{[]byte("THROTTLE"), []byte("sesame"), []byte("1"), []byte("1/h")}
	cmd, line := command.Find(args)
	if cmd == nil {
		t.Fatal(line)
	}
	requests := []store.Request{{Args: args, Cmd: cmd.Index(), Proto: 2}, {Args: args, Cmd: cmd.Index(), Proto: 2}}
	const now = 1_700_000_000_000_000_000
	clock := local.NewClock(0)
	clock.Freeze(now)
	local.New(ks, clock, new(command.Executor)).Run(&store.Batch{Requests: requests})

	s := &command.Server{Version: "v", Keyspace: func() engine.Stats { return ks.Stats(now) }}
	s.Counters.Commands.Store(7)
	f := &fake{stats: StatsOf(s), why: `no leader`}
	f.stats.Errors = []ErrorCount{{"sesame", 1}, {"SESAME:OPEN", 2}, {"", 4}, {strings.Repeat("S", 25), 8}, {"OOM", 16}, {"Ü", 32}}
	_, body := get(t, f, "/metrics")
	got := series(t, body)
	if strings.Contains(strings.ToLower(body), "sesame") {
		t.Error("what a client sent is in the metrics")
	}
	for name, want := range map[string]float64{
		`stint_decisions_total{result="allowed"}`: 1,
		`stint_decisions_total{result="refused"}`: 1,
		`stint_buckets`:                            1,
		`stint_commands_total`:                     7,
		`stint_error_replies_total{error="other"}`: 1 + 2 + 4 + 8 + 32,
		`stint_error_replies_total{error="OOM"}`:   16,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

// TestOneBadMetricDoesNotHideTheOthers gives a command twice, which Prometheus
// refuses: alerts on the rest must go on.
func TestOneBadMetricDoesNotHideTheOthers(t *testing.T) {
	f := full()
	f.stats.PerCommand = append(f.stats.PerCommand, f.stats.PerCommand[0])
	h := handle(t, f, discard())
	for range 2 { // the second answer counts the error of the first
		body := ask(h, "/metrics")
		got := series(t, body)
		if got[`stint_fail_mode_active{mode="closed"}`] != 1 {
			t.Errorf("the other metrics are gone:\n%s", body)
		}
	}
	if n := series(t, ask(h, "/metrics"))[`promhttp_metric_handler_errors_total{cause="gathering"}`]; n < 2 {
		t.Errorf("errors are counted as %v", n)
	}
}

func TestStatsOfTakesEverythingAServerHas(t *testing.T) {
	saved := &persister{last: time.Unix(5, 0), info: command.PersistInfo{Failing: 3}}
	s := &command.Server{
		ClockAhead: func() time.Duration { return time.Minute },
		Traffic:    func() command.Traffic { return command.Traffic{Clients: 9} },
		Keyspace: func() engine.Stats {
			return engine.Stats{Keys: [engine.Databases]int64{1, 2, 4}, Memory: 10, MaxMemory: 20, Forgotten: 30, Allowed: 40, Refused: 50, Expired: 60}
		},
		Persist: saved,
		TLS:     func() command.TLSInfo { return command.TLSInfo{ClientCertificates: true} },
	}
	s.Counters.AuthFailures.Store(2)
	s.Counters.CrossClosed.Store(3)
	got := StatsOf(s)
	if got.Buckets != 7 || got.Memory != 10 || got.MaxMemory != 20 || got.Forgotten != 30 || got.Allowed != 40 || got.Refused != 50 || got.Expired != 60 {
		t.Errorf("of the keyspace: %+v", got)
	}
	if got.ClockAhead != time.Minute || got.Traffic.Clients != 9 || got.AuthFailures != 2 || got.HTTPClosed != 3 {
		t.Errorf("of the server: %+v", got)
	}
	if got.Persist == nil || got.Persist.Failing != 3 || !got.LastSave.Equal(saved.last) || got.TLS == nil || !got.TLS.ClientCertificates {
		t.Errorf("of saving and TLS: %+v", got)
	}
	if empty := StatsOf(&command.Server{}); empty.Persist != nil || empty.TLS != nil {
		t.Errorf("a server without saving and TLS has some: %+v", empty)
	}
}

// persister shows given figures.
type persister struct {
	command.Persister
	last time.Time
	info command.PersistInfo
}

func (p *persister) LastSave() time.Time       { return p.last }
func (p *persister) Info() command.PersistInfo { return p.info }

// TestDocumentListsEveryMetric compares docs/metrics.md with what is there, in
// both directions, types included.
func TestDocumentListsEveryMetric(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(stint_[a-z_]+)(?:\\{[a-z, ]+\\})?` \\| (gauge|counter|histogram) \\|").FindAllStringSubmatch(string(doc), -1) {
		documented[m[1]] = m[2]
	}
	_, body := get(t, full(), "/metrics")
	shown := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (stint_[a-z_]+) (\w+)$`).FindAllStringSubmatch(body, -1) {
		shown[m[1]] = m[2]
	}
	if len(shown) < 50 {
		t.Fatalf("only %d metrics are shown", len(shown))
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		if documented[name] != shown[name] {
			t.Errorf("docs/metrics.md says of %s (a %s): %q", name, shown[name], documented[name])
		}
	}
	for name := range documented {
		if shown[name] == "" {
			t.Errorf("docs/metrics.md has %s, which does not exist", name)
		}
	}
}
