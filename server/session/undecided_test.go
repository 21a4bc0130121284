package session

import (
	"strings"
	"testing"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
	"github.com/stint-dev/stint/engine/store"
	"github.com/stint-dev/stint/server/command"
)

// fateStore gives batches the outcomes it was told, in order, and then decides.
type fateStore struct {
	t     testing.TB
	fates []store.Outcome
	ran   int
}

func (f *fateStore) Run(b *store.Batch) bool {
	f.ran += len(b.Requests)
	o := store.Decided
	if len(f.fates) > 0 {
		o, f.fates = f.fates[0], f.fates[1:]
	}
	if b.Outcome = o; o != store.Decided {
		b.Why = "a test"
		return true
	}
	for range b.Requests {
		b.Out = append(b.Out, "+ran\r\n"...)
	}
	return true
}

const (
	down    = "-CLUSTERDOWN no decision can be made: a test\r\n"
	unclear = "-INDETERMINATE outcome unknown: a test\r\n"
)

func fated(t testing.TB, mode command.FailMode, fates ...store.Outcome) (*Session, *fateStore, *command.Server) {
	ks, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := &command.Server{}
	server.Fallback.Mode, server.Fallback.State = mode, ks
	server.Fallback.Voters, server.Fallback.Clock = func() int { return 3 }, func() int64 { return 1e18 }
	f := &fateStore{t: t, fates: fates}
	return New(server, f, Info{ID: 1, Addr: "c", LocalAddr: "s"}), f, server
}

// TestWhatIsNotDecidedIsAnsweredSoThatItCanBeRetried holds the rule that a client
// may send a whole pipeline again if its first reply is CLUSTERDOWN.
func TestWhatIsNotDecidedIsAnsweredSoThatItCanBeRetried(t *testing.T) {
	const d, n, u = store.Decided, store.NotApplied, store.Unknown
	for _, c := range []struct {
		name  string
		fates []store.Outcome
		lines []string
		want  string
		ran   int // requests that came to the store
	}{
		{"nothing applied", []store.Outcome{n}, []string{"TTL a", "TTL b"}, down + down, 2},
		{"the rest is not run", []store.Outcome{n}, []string{"TTL a", "PING", "TTL b", "NOSUCH"}, down + down + down + down, 1},
		{"connection commands before it", []store.Outcome{n}, []string{"PING", "TTL a"}, "+PONG\r\n" + down, 1},
		{"unknown", []store.Outcome{u, d}, []string{"TTL a", "PING", "TTL b"}, unclear + "+PONG\r\n+ran\r\n", 2},
		{"after something that was applied", []store.Outcome{d, n, d}, []string{"TTL a", "PING", "TTL b", "PING", "TTL c"}, "+ran\r\n+PONG\r\n" + unclear + "+PONG\r\n+ran\r\n", 3},
		{"after something unknown", []store.Outcome{u, n}, []string{"TTL a", "PING", "TTL b"}, unclear + "+PONG\r\n" + unclear, 2},
	} {
		s, f, _ := fated(t, command.FailError, c.fates...)
		got, end := send(s, c.lines...)
		if got != c.want || end || f.ran != c.ran {
			t.Errorf("%s: %q (end %v, %d run), want %q (%d run)", c.name, got, end, f.ran, c.want, c.ran)
		}
		if got, _ := send(s, "TTL a"); got != "+ran\r\n" {
			t.Errorf("%s: the next pipeline gets %q", c.name, got)
		}
	}
}

// TestAPipelineThatWasCutIsNotRunOn closes the connection: what follows belongs to
// what was answered with CLUSTERDOWN.
func TestAPipelineThatWasCutIsNotRunOn(t *testing.T) {
	part := func(s *Session, cut bool, lines ...string) (string, bool) {
		for _, line := range lines {
			s.Command(words(line), true)
		}
		out, _, end := s.Flush(nil, cut)
		return string(out), end != nil
	}
	s, _, _ := fated(t, command.FailError, store.NotApplied)
	if got, end := part(s, true, "TTL a", "PING"); got != down+down || !end {
		t.Errorf("a cut pipeline gets %q, end %v", got, end)
	}
	s, _, _ = fated(t, command.FailError, store.NotApplied)
	if got, end := part(s, false, "TTL a", "PING"); got != down+down || end {
		t.Errorf("a whole pipeline gets %q, end %v", got, end)
	}
	// A part that was applied makes the next part of the same pipeline unclear.
	s, f, _ := fated(t, command.FailError, store.Decided, store.Decided, store.NotApplied)
	part(s, true, "TTL a")
	part(s, true, "TTL a")
	if got, end := part(s, false, "TTL a"); got != unclear || end {
		t.Errorf("the last part gets %q, end %v", got, end)
	}
	// The next pipeline is another one.
	f.fates = []store.Outcome{store.NotApplied}
	if got, _ := part(s, false, "TTL a"); got != down {
		t.Errorf("the next pipeline gets %q", got)
	}
}

// leaderless is a cluster that cannot be changed.
type leaderless struct{ command.Cluster }

func (leaderless) Snapshot() error       { return nil }
func (leaderless) Transfer(string) error { return leaderless{} }
func (leaderless) Error() string         { return "no leader" }
func (leaderless) NotLeader() bool       { return true }

// TestCommandsAboutTheClusterKeepTheRuleOfPipelines: their CLUSTERDOWN too is said
// only if nothing was applied, and nothing is run after it.
func TestCommandsAboutTheClusterKeepTheRuleOfPipelines(t *testing.T) {
	const none = "-CLUSTERDOWN no decision can be made: no leader\r\n"
	for _, c := range []struct {
		lines []string
		fate  store.Outcome
		want  string
		ran   int
	}{
		{[]string{"RAFT TRANSFER", "TTL a", "PING"}, store.Decided, none + none + none, 0},
		{[]string{"TTL a", "RAFT TRANSFER", "TTL a"}, store.Decided, "+ran\r\n-INDETERMINATE outcome unknown: no decision can be made: no leader\r\n+ran\r\n", 2},
		{[]string{"RAFT SNAPSHOT", "TTL a"}, store.NotApplied, "+OK\r\n" + unclear, 1},
	} {
		s, f, server := fated(t, command.FailError, c.fate)
		server.Cluster = leaderless{}
		if got, _ := send(s, c.lines...); got != c.want || f.ran != c.ran {
			t.Errorf("%q: %q (%d run), want %q (%d run)", c.lines, got, f.ran, c.want, c.ran)
		}
	}
}

func TestFailureModesAnswerDecisions(t *testing.T) {
	const n = store.NotApplied
	for _, c := range []struct {
		mode  command.FailMode
		lines []string
		want  string
	}{
		{command.FailOpen, []string{"THROTTLE a 10 1/s", "TTL a"}, "*5\r\n:1\r\n:10\r\n:0\r\n:0\r\n:0\r\n" + down},
		{command.FailClosed, []string{"WINDOW a 10 1m 2 LOG", "LEAK a 7 1/s"}, "*5\r\n:0\r\n:10\r\n:0\r\n:1000\r\n:0\r\n*5\r\n:0\r\n:7\r\n:0\r\n:1000\r\n:0\r\n"},
		{command.FailOpen, []string{"CL.THROTTLE a 9 1 1"}, "*5\r\n:0\r\n:10\r\n:0\r\n:-1\r\n:0\r\n"},
		{command.FailClosed, []string{"CL.THROTTLE a 9 1 1"}, "*5\r\n:1\r\n:10\r\n:0\r\n:1\r\n:0\r\n"},
		{command.FailOpen, []string{"THROTTLE a 0 1/s"}, "-ERR invalid capacity '0': want a whole number from 1 to 9007199254740991\r\n"},
		{command.FailError, []string{"THROTTLE a 10 1/s"}, down},
		{command.FailLocal, []string{"THROTTLE a 10 1/d", "THROTTLE a 10 1/d 2", "THROTTLE a 10 1/d", "THROTTLE b 2 1/d"},
			"*5\r\n:1\r\n:3\r\n:2\r\n:0\r\n:259200000\r\n*5\r\n:1\r\n:3\r\n:0\r\n:0\r\n:777600000\r\n*5\r\n:0\r\n:3\r\n:0\r\n:259200000\r\n:777600000\r\n*5\r\n:1\r\n:1\r\n:0\r\n:0\r\n:259200000\r\n"},
	} {
		s, _, server := fated(t, c.mode, n)
		if got, _ := send(s, c.lines...); got != c.want {
			t.Errorf("%v %q: %q, want %q", c.mode, c.lines, got, c.want)
		}
		if !server.Fallback.Active() {
			t.Errorf("%v: no failure mode is active", c.mode)
		}
		if send(s, "TTL a"); !server.Fallback.Active() {
			t.Errorf("%v: one decision ends the failure mode", c.mode)
		}
		server.Fallback.Clock = func() int64 { return 1e18 + 1e9 }
		if send(s, "TTL a"); server.Fallback.Active() {
			t.Errorf("%v: the failure mode is still active after a second without", c.mode)
		}
	}
	// What may have been applied is not answered by any mode.
	s, _, _ := fated(t, command.FailOpen, store.Unknown)
	if got, _ := send(s, "THROTTLE a 10 1/s"); got != unclear {
		t.Errorf("unknown in mode open: %q", got)
	}
}

// TestTheLocalModeGoesOnFromWhatWasUsed begins with this node's share of what the
// cluster had used, and forgets what it has decided when the cluster is back.
func TestTheLocalModeGoesOnFromWhatWasUsed(t *testing.T) {
	s, f, server := fated(t, command.FailLocal)
	now := int64(1e18)
	server.Fallback.Clock = func() int64 { return now }
	l := func(used string) string { return "THROTTLE a 9 1/d " + used }
	tx := server.Fallback.State.Begin(1e18)
	if _, err := tx.Throttle([]byte("a"), limit.BucketLimit{Capacity: 9, Rate: limit.Rate{Count: 1, Period: 86_400e9}}, 4, limit.Consume); err != nil {
		t.Fatal(err)
	}
	tx.End()
	for round := range 2 {
		f.fates = []store.Outcome{store.NotApplied}
		// 4 used, a third of that rounded up is 2 of 3.
		if got, _ := send(s, l("1")); !strings.HasPrefix(got, "*5\r\n:1\r\n:3\r\n:0\r\n") {
			t.Errorf("outage %d: the first unit: %q", round, got)
		}
		f.fates = []store.Outcome{store.NotApplied}
		if got, _ := send(s, l("1")); !strings.HasPrefix(got, "*5\r\n:0\r\n:3\r\n:0\r\n") {
			t.Errorf("outage %d: the second unit: %q", round, got)
		}
		now += 1e9
		send(s, "TTL a")
	}
}

// TestTheLocalModeCountsWhatWasUsedOnce: a key that has a local state goes on from it.
func TestTheLocalModeCountsWhatWasUsedOnce(t *testing.T) {
	s, f, server := fated(t, command.FailLocal)
	tx := server.Fallback.State.Begin(1e18)
	if _, err := tx.Throttle([]byte("a"), limit.BucketLimit{Capacity: 30, Rate: limit.Rate{Count: 1, Period: 86_400e9}}, 4, limit.Consume); err != nil {
		t.Fatal(err)
	}
	tx.End()
	granted := 0
	for range 20 {
		f.fates = []store.Outcome{store.NotApplied}
		if got, _ := send(s, "THROTTLE a 30 1/d"); strings.HasPrefix(got, "*5\r\n:1\r\n") {
			granted++
		}
	}
	if granted != 8 {
		t.Errorf("%d units granted, want 8: a share of 10, of which 2 are a share of what was used", granted)
	}
}

// TestDecisionsBetweenFailuresGiveNoFreshShare is a node under too much load: some
// batches are decided and others are not, which is one outage and not many.
func TestDecisionsBetweenFailuresGiveNoFreshShare(t *testing.T) {
	s, f, server := fated(t, command.FailLocal)
	now, changes := int64(1e18), 0
	server.Fallback.Clock = func() int64 { return now }
	server.Fallback.Changed = func(bool, string, int64) { changes++ }
	granted := 0
	for range 20 {
		f.fates = []store.Outcome{store.NotApplied, store.Decided}
		if got, _ := send(s, "THROTTLE a 9 1/d"); strings.HasPrefix(got, "*5\r\n:1\r\n") {
			granted++
		}
		send(s, "TTL a")
		now += 5e8
	}
	if granted != 3 || changes != 1 {
		t.Errorf("%d units granted of a share of 3, %d changes", granted, changes)
	}
}
