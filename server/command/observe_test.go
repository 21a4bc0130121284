package command

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/store"
)

// requests are store commands as a session hands them to the store.
func requests(t testing.TB, lines ...string) []store.Request {
	t.Helper()
	var out []store.Request
	for _, line := range lines {
		args := split(line)
		cmd, wire := Find(args)
		if cmd == nil || !cmd.Store() {
			t.Fatalf("%q: no store command: %s", line, wire)
		}
		out = append(out, store.Request{Args: args, Cmd: cmd.Index()})
	}
	return out
}

// observeConn is what a session does for a connection command that took so long.
func observeConn(t *testing.T, s *Server, conn *Conn, took time.Duration, args ...string) string {
	t.Helper()
	var words [][]byte
	for _, a := range args {
		words = append(words, []byte(a))
	}
	cmd, line := Find(words)
	if cmd == nil {
		s.Refused(words, line)
		return "-" + line + "\r\n"
	}
	conn.LastCmd = cmd
	conn.Begin(cmd.Index(), 0)
	reply := call(t, s, conn, args...)
	s.ObserveConn(conn, cmd, words, []byte(reply), 0, int64(took))
	return reply
}

func slowWatcher(slowerThan, threshold int64) *Server {
	s := newServer()
	s.SetSlowLog(4)
	s.SetSlowerThan(slowerThan)
	s.SetLatencyThreshold(threshold)
	return s
}

func TestSlowLogTakesWhatIsAtTheThreshold(t *testing.T) {
	for _, c := range []struct {
		threshold int64
		took      int64 // ns
		want      int
	}{
		{10, 9_999, 0}, {10, 10_000, 1}, {10, 1 << 60, 1}, {0, 0, 1}, {-1, 1 << 60, 0}, {-5, 1 << 60, 0},
		{1 << 62, 1 << 40, 0},
	} {
		s := slowWatcher(c.threshold, 0)
		conn := newConn(s)
		s.Observe(conn, requests(t, "EXISTS k"), 5, 5+c.took)
		if got := s.slow.len(); got != c.want {
			t.Errorf("threshold %d µs, %d ns: %d entries, want %d", c.threshold, c.took, got, c.want)
		}
	}
	// The zero value notes nothing, and with no room nothing is looked at.
	s := newServer()
	s.Observe(newConn(s), requests(t, "EXISTS k"), 0, 1<<60)
	s.SetSlowerThan(0)
	if s.slow.len() != 0 || s.attention.Load() != 0 {
		t.Errorf("%d entries, attention %d", s.slow.len(), s.attention.Load())
	}
}

func TestThresholdsAreApart(t *testing.T) {
	for _, c := range []struct{ slow, spike, took, entries, events int64 }{
		{1000, 5, 4_999_999, 1, 0}, {1000, 5, 5_000_000, 1, 1}, {1000, 5, 999_999, 0, 0},
		{100_000, 5, 6_000_000, 0, 1}, {-1, 5, 5_000_000, 0, 1}, {1000, 0, 5_000_000_000, 1, 0}, {-1, 0, 1 << 60, 0, 0},
	} {
		s := slowWatcher(c.slow, c.spike)
		s.Observe(newConn(s), requests(t, "EXISTS k"), 0, c.took)
		if got := [2]int64{int64(s.slow.len()), int64(len(s.spikes.list()))}; got != [2]int64{c.entries, c.events} {
			t.Errorf("%+v: entries and events are %v", c, got)
		}
		if s.SlowerThan() != max(c.slow, -1) || s.LatencyThreshold() != c.spike {
			t.Errorf("%+v: thresholds are %d and %d", c, s.SlowerThan(), s.LatencyThreshold())
		}
	}
}

func TestSlowLogReplies(t *testing.T) {
	s := slowWatcher(0, 0)
	conn := newConn(s)
	conn.Name = "web"
	empty := []step{
		{"SLOWLOG GET", "*0\r\n", ""}, {"SLOWLOG LEN", ":0\r\n", ""}, {"SLOWLOG RESET", "+OK\r\n", ""}, {"SLOWLOG GET 0", "*0\r\n", ""},
		{"SLOWLOG GET -2", "-ERR count should be greater than or equal to -1\r\n", ""}, {"SLOWLOG GET x", "-ERR count should be greater than or equal to -1\r\n", ""},
		{"SLOWLOG GET 99999999999999999999", "-ERR count should be greater than or equal to -1\r\n", ""},
		{"SLOWLOG GET 1 2", "-ERR wrong number of arguments for 'slowlog|get' command\r\n", ""},
		{"SLOWLOG", "-ERR wrong number of arguments for 'slowlog' command\r\n", ""}, {"SLOWLOG x", "-ERR unknown subcommand 'x'. Try SLOWLOG HELP.\r\n", ""},
	}
	runSteps(t, s, empty)
	for i := range 6 {
		s.Observe(conn, requests(t, fmt.Sprint("EXISTS k", i)), 0, int64(i)*1e6)
	}
	entry := func(i int) string {
		return fmt.Sprintf("[:%d :1700259205 :%d [EXISTS k%d] 1.2.3.4:5 web]", i, i*1000, i)
	}
	for _, c := range []struct{ args, want string }{
		{"SLOWLOG GET", "[" + entry(5) + " " + entry(4) + " " + entry(3) + " " + entry(2) + "]"},
		{"SLOWLOG GET 2", "[" + entry(5) + " " + entry(4) + "]"},
		{"SLOWLOG GET -1", "[" + entry(5) + " " + entry(4) + " " + entry(3) + " " + entry(2) + "]"},
		{"SLOWLOG LEN", ":4"},
	} {
		if got := callFlat(t, s, conn, strings.Fields(c.args)...); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.args, got, c.want)
		}
	}
	// A shorter log keeps the latest, a longer one has room for more.
	s.SetSlowLog(2)
	if got, want := callFlat(t, s, conn, "SLOWLOG", "GET"), "["+entry(5)+" "+entry(4)+"]"; got != want {
		t.Errorf("cut to 2: %s", got)
	}
	s.SetSlowLog(3)
	for i := 6; i < 8; i++ {
		s.Observe(conn, requests(t, fmt.Sprint("EXISTS k", i)), 0, int64(i)*1e6)
	}
	if got, want := callFlat(t, s, conn, "SLOWLOG", "GET"), "["+entry(7)+" "+entry(6)+" "+entry(5)+"]"; got != want {
		t.Errorf("grown to 3: %s", got)
	}
	s.SetSlowLog(0)
	s.Observe(conn, requests(t, "EXISTS k"), 0, 1e9)
	if s.slow.len() != 0 || s.SlowLog() != 0 {
		t.Error("a log of 0 entries keeps some")
	}
}

func TestSlowLogShowsOneOfAPipeline(t *testing.T) {
	s := slowWatcher(1000, 0)
	conn := newConn(s)
	s.Observe(conn, requests(t, "THROTTLE a 10 1", "EXISTS b", "EXISTS c"), 0, 2e6)
	if got, want := strings.Join(s.slow.latest(1)[0].args, "|"), "THROTTLE|a|10|1|... (the first of 3 commands of a pipeline; the time is of all)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSlowLogCutsWordsAsRedisDoes(t *testing.T) {
	exists, _ := Find(split("EXISTS k"))
	many := func(n int) [][]byte {
		args := [][]byte{[]byte("EXISTS")}
		for i := 1; i < n; i++ {
			args = append(args, []byte(strconv.Itoa(i)))
		}
		return args
	}
	for _, c := range []struct {
		args int
		n    int
		want string // the last words
		len  int
	}{
		{32, 1, "30|31", 32}, {33, 1, "30|... (2 more arguments)", 32}, {1000, 1, "30|... (969 more arguments)", 32}, {2, 1, "EXISTS|1", 2},
		{31, 2, "30|... (the first of 2 commands of a pipeline; the time is of all)", 32},
		{32, 2, "... (2 more arguments)|... (the first of 2 commands of a pipeline; the time is of all)", 32},
	} {
		got := slowArgs(exists, many(c.args), c.n)
		if len(got) != c.len || strings.Join(got[len(got)-2:], "|") != c.want {
			t.Errorf("%d words, %d commands: %d words, %q", c.args, c.n, len(got), got[len(got)-2:])
		}
	}
	long := [][]byte{[]byte("EXISTS"), []byte(strings.Repeat("x", 128)), []byte(strings.Repeat("y", 131))}
	if got := slowArgs(exists, long, 1); got[1] != strings.Repeat("x", 128) || got[2] != strings.Repeat("y", 128)+"... (3 more bytes)" {
		t.Errorf("%q", got)
	}
}

// TestSlowLogHasNoSecrets fails when a password, or what may be one because of
// a slip, can be read in the log.
// TestTheLongestSlowLogIsAReplyThatIsSent has every entry be as large as one can
// be: all of them together are within the transport's bound for a reply, 64 MiB.
func TestTheLongestSlowLogIsAReplyThatIsSent(t *testing.T) {
	s := newServer()
	s.SetSlowLog(MaxSlowLog)
	s.SetSlowerThan(0)
	conn := NewConn(s, 1, "["+strings.Repeat("ffff:", 7)+"ffff%interface-name]:65535", "")
	conn.Name = strings.Repeat("n", maxConnName)
	args := [][]byte{[]byte("EXISTS")}
	huge := make([]byte, 10<<20)
	for len(args) < 2*maxSlowArgs {
		args = append(args, huge)
	}
	exists, _ := Find(args[:2])
	for range MaxSlowLog {
		s.attend(&conn, exists.Index(), args, 1, 1)
	}
	if n := len(call(t, s, &conn, "SLOWLOG", "GET", "-1")); n > 64<<20 || n < 50<<20 {
		t.Errorf("the reply has %d bytes", n)
	}
}

func TestSlowLogHasNoSecrets(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"AUTH hunter2", "AUTH (redacted)"},
		{"auth default hunter2", "auth (redacted) (redacted)"},
		{"AUTH a b hunter2", "AUTH (redacted) (redacted) (redacted)"},
		{"HELLO 3 AUTH default hunter2", "HELLO 3 AUTH (redacted) (redacted)"},
		{"HELLO 3 SETNAME me AUTH default hunter2", "HELLO 3 SETNAME (redacted) AUTH (redacted) (redacted)"},
		{"HELLO 3 default hunter2", "HELLO 3 (redacted) (redacted)"},
		{"HELLO hunter2", "HELLO (redacted)"},
		{"HELLO 3", "HELLO 3"},
		{"CONFIG SET requirepass hunter2", "CONFIG SET requirepass (redacted)"},
		{"config set RequirePass hunter2 maxclients 5", "config set RequirePass (redacted) maxclients 5"},
		{"CONFIG SET maxclients 5 requirepass hunter2", "CONFIG SET maxclients 5 requirepass (redacted)"},
		{"CONFIG SET requirepas hunter2", "CONFIG SET (redacted) (redacted)"},
		{"CONFIG SET maxclients requirepass hunter2", "CONFIG SET maxclients requirepass (redacted)"},
		{"CONFIG GET requirepass", "CONFIG GET requirepass"},
		{"CLIENT SETNAME me", "CLIENT SETNAME me"},
	} {
		s := slowWatcher(0, 0)
		s.Password.Set([]byte("hunter2"))
		s.Config.Add(Param{Name: "requirepass", Get: func() string { return "" }, Set: func(string) (func(), error) { return func() {}, nil }})
		conn := newConn(s)
		observeConn(t, s, conn, time.Second, strings.Fields(c.line)...)
		got := strings.Join(s.slow.latest(1)[0].args, " ")
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
		if text := callFlat(t, s, conn, "SLOWLOG", "GET") + callFlat(t, s, conn, "CLIENT", "LIST") + Info(s, [][]byte{[]byte("all")}); strings.Contains(text, "hunter2") {
			t.Errorf("%s: the password can be read", c.line)
		}
	}
}

func TestCommandsAreCounted(t *testing.T) {
	s := newServer()
	a, b := newConn(s), newConn(s)
	b.usage = s.usage.shard(8)
	s.Observe(a, requests(t, "EXISTS a", "exists b", "THROTTLE k 1 1", "EXISTS c"), 0, 4_000)
	s.Observe(b, requests(t, "EXISTS a"), 0, 2_500)
	observeConn(t, s, b, 3*time.Microsecond, "SELECT", "99")
	observeConn(t, s, b, 5*time.Microsecond, "select", "9")
	observeConn(t, s, b, 0, "SELECT")
	observeConn(t, s, b, 0, "CLIENT", "ID", "x")
	observeConn(t, s, b, 0, "NOPE")
	s.Refused(split("EXISTS k"), ErrNoAuth)
	s.Refused(nil, "ERR empty command")
	got := infoLines(t, Info(s, [][]byte{[]byte("commandstats"), []byte("errorstats"), []byte("latencystats"), []byte("stats")}))
	for name, want := range map[string]string{
		"cmdstat_exists":                   "calls=4,usec=5,usec_per_call=1.38,rejected_calls=1,failed_calls=0",
		"cmdstat_throttle":                 "calls=1,usec=1,usec_per_call=1.00,rejected_calls=0,failed_calls=0",
		"cmdstat_select":                   "calls=2,usec=8,usec_per_call=4.00,rejected_calls=1,failed_calls=1",
		"cmdstat_client|id":                "calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0",
		"errorstat_ERR":                    "count=5",
		"errorstat_NOAUTH":                 "count=1",
		"total_error_replies":              "6",
		"latency_percentiles_usec_select":  "p50=3.071,p99=5.119,p99.9=5.119",
		"latency_percentiles_usec_exists":  "p50=1.023,p99=2.559,p99.9=2.559",
		"cmdstat_ping":                     "",
		"latency_percentiles_usec_client|": "",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	callFlat(t, s, a, "CONFIG", "RESETSTAT")
	if got := Info(s, [][]byte{[]byte("commandstats"), []byte("errorstats")}); got != "# Errorstats\r\n\r\n# Commandstats\r\n" {
		t.Errorf("after CONFIG RESETSTAT: %q", got)
	}
	s.Observe(a, requests(t, "EXISTS a"), 0, 4_000)
	if got := Info(s, [][]byte{[]byte("commandstats")}); !strings.Contains(got, "cmdstat_exists:calls=1,usec=4,") {
		t.Errorf("counted on: %q", got)
	}
}

// TestErrorsOfTheStoreAreCounted runs a command that fails through the
// executor.
func TestErrorsOfTheStoreAreCounted(t *testing.T) {
	ks, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tx := ks.Begin(1)
	defer tx.End()
	s := newServer()
	e := &Executor{Failed: s.Failed}
	r := requests(t, "THROTTLE k 0 1")
	out := e.Execute(tx, r, []byte("-x\r\n"))
	if want := "-x\r\n-" + ErrCapacity([]byte("0")) + "\r\n"; string(out) != want {
		t.Errorf("%q, want %q", out, want)
	}
	fine := requests(t, "THROTTLE k 1 1")
	e.Execute(tx, fine, []byte("-x\r\n"))
	r[0].Cmd = -1
	e.Execute(tx, r, nil)
	if got := s.errors.list(); fmt.Sprint(got) != "[{ERR 2}]" {
		t.Errorf("%v", got)
	}
	if got := s.usage.of(requests(t, "THROTTLE k 1 1")[0].Cmd).failed; got != 1 {
		t.Errorf("%d calls failed, want 1", got)
	}
}

func TestKindsOfErrorsAreBounded(t *testing.T) {
	var e errorKinds
	for i := range 10 * maxErrorKinds {
		e.add([]byte(fmt.Sprint("E", i, " text")))
	}
	e.add([]byte("E0"))
	if list := e.list(); len(list) != maxErrorKinds || list[0] != (kindCount{"E0", 2}) {
		t.Errorf("%d kinds, the first %v", len(e.list()), e.list()[0])
	}
}

func TestRateIsOverTheLastMoments(t *testing.T) {
	var r rate
	for i := range int64(40) {
		if got, want := r.perSecond(), int64(0); i < 2 && got != want {
			t.Errorf("after %d samples: %d", i, got)
		}
		count := i * 10
		if i >= 20 {
			count = 200 + (i-20)*50
		}
		r.sample(i*100_000_000, count)
	}
	if got := r.perSecond(); got != 500 {
		t.Errorf("%d per second, want 500", got)
	}
	r.sample(41*100_000_000, 3) // set back
	if got := r.perSecond(); got != 0 {
		t.Errorf("after the counter was set back: %d", got)
	}
	r.sample(42*100_000_000, 13)
	if got := r.perSecond(); got != 100 {
		t.Errorf("and then: %d, want 100", got)
	}
}
