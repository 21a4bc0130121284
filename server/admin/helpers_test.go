package admin

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/server/command"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// fake is a Source of given figures. A function that is set stands in for them.
type fake struct {
	stats   Stats
	cluster *ClusterStats
	why     string // not ready
	asked   func() // called by Stats
}

func (f *fake) Stats() Stats {
	if f.asked != nil {
		f.asked()
	}
	return f.stats
}
func (f *fake) Cluster() *ClusterStats { return f.cluster }
func (f *fake) Ready() (bool, string)  { return f.why == "", f.why }

// full is a source with every metric there is, each field of another value.
func full() *fake {
	return &fake{
		stats: Stats{
			Version: "1.2.3", Commands: 101, AuthFailures: 102, HTTPClosed: 103,
			Errors: []ErrorCount{{"OOM", 104}, {"ERR", 105}},
			PerCommand: []CommandStats{{
				Name: "throttle", Calls: 10, Failed: 2, Rejected: 3, Time: 5 * time.Millisecond,
				Times: []CallsWithin{{1024, 1}, {1 << 13, 4}, {1 << 20, 9}, {1 << 40, 10}},
			}},
			Traffic: command.Traffic{
				Clients: 201, MaxClients: 202, Accepted: 203, Rejected: 204, BytesIn: 205, BytesOut: 206,
				ProtocolErrors: 207, OutputClosed: 208, Panics: 209, IdleClosed: 210, TLSClosed: 211,
				TLSFailed: 212, AcceptErrors: 213, HeldInput: 214, HeldReplies: 215,
			},
			Allowed: 301, Refused: 302, Forgotten: 303, Buckets: 304, Expired: 305, Memory: 306, MaxMemory: 307,
			FailMode: "closed", FailActive: true, Failed: FailedDecisions{Error: 401, Open: 402, Closed: 403, Local: 404},
			ClockAhead: 1500 * time.Millisecond,
			Persist: &command.PersistInfo{
				Durability: "interval", Interval: time.Second, LastDuration: 20 * time.Millisecond, LastKeys: 501,
				LastBytes: 502, Flushes: 503, Failures: 504, Failing: 505, FileBytes: 506, Compacting: true,
				Compactions: 507, Changed: 508,
			},
			LastSave: time.Unix(1700000000, 250e6),
			TLS:      &command.TLSInfo{ValidUntil: time.Unix(1800000000, 0)},
		},
		cluster: &ClusterStats{
			NodeID: "n1", ServerID: "n1.00ff", ClusterID: "c0", State: "follower", LeaderKnown: true, Term: 601,
			LastIndex: 602, CommitIndex: 603, AppliedIndex: 604, SnapshotIndex: 605, SnapshotBytes: 606,
			SnapshotTime: time.Now().Add(-time.Hour), SnapshotsTaken: 607, SnapshotsFailing: 608, LogBytes: 609,
			LogSlowest: 30 * time.Millisecond, Voters: 3, NonVoters: 2, Unreachable: 1, LastContact: 40 * time.Millisecond,
			FormatLevel: 7, Batches: 610, Decisions: 611, Entries: 612, EntryBytes: 613, Confirmations: 614, Fenced: 615,
			Waiting: 616, Forwarded: 617, ForwardLost: 618, Relayed: 619, NotApplied: 620, Indeterminate: 621,
			ClockAhead: 6 * time.Second,
		},
	}
}

// discard is a log that nobody reads.
func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// handle makes the handler of a source, of a server that is not crowded.
func handle(t *testing.T, source Source, log *slog.Logger) http.Handler {
	t.Helper()
	h, err := newHandler(source, log, func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// get asks the handler of a source.
func get(t *testing.T, source Source, path string) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	handle(t, source, discard()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	data, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(data)
}

// scrape is /metrics of a source: the value of each series, by its text.
func scrape(t *testing.T, source Source) map[string]float64 {
	t.Helper()
	status, body := get(t, source, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d %s", status, body)
	}
	return series(t, body)
}

// series parses the text of metrics: name{labels} to value.
func series(t *testing.T, body string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			t.Fatalf("%q is no sample", line)
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out[line[:at]] = v
	}
	return out
}

// nameOf is the name of a series.
func nameOf(series string) string {
	name, _, _ := strings.Cut(series, "{")
	return name
}
