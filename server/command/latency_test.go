package command

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestLatencyReplies(t *testing.T) {
	s := slowWatcher(-1, 10)
	clock := now
	s.Now = func() time.Time { return clock }
	conn := newConn(s)
	runSteps(t, s, []step{
		{"LATENCY LATEST", "*0\r\n", ""}, {"LATENCY HISTORY command", "*0\r\n", ""}, {"LATENCY RESET", ":0\r\n", ""}, {"LATENCY RESET x y", ":0\r\n", ""},
		{"LATENCY GRAPH nope", "-ERR No samples available for event 'nope'\r\n", ""}, {"LATENCY HISTOGRAM", "*0\r\n", "%0\r\n"}, {"LATENCY HISTOGRAM nope ping", "*0\r\n", "%0\r\n"},
		{"LATENCY HISTORY", "-ERR wrong number of arguments for 'latency|history' command\r\n", ""}, {"LATENCY x", "-ERR unknown subcommand 'x'. Try LATENCY HELP.\r\n", ""},
	})
	for _, ms := range []int64{20, 50, 30} { // within one second: the longest counts
		s.Observe(conn, requests(t, "EXISTS k"), 0, ms*1e6)
	}
	clock = clock.Add(2 * time.Second)
	s.Observe(conn, requests(t, "EXISTS k"), 0, 10e6)
	s.Observe(conn, requests(t, "EXISTS k"), 0, 10e6-1)
	s.Spike("sweep", 11*time.Millisecond)
	s.Spike("pause", 9*time.Millisecond)
	unix := now.Unix()
	for _, c := range []struct{ line, want string }{
		{"LATENCY LATEST", fmt.Sprintf("[[command :%d :10 :50] [sweep :%d :11 :11]]", unix+2, unix+2)},
		{"LATENCY HISTORY Command", fmt.Sprintf("[[:%d :50] [:%d :10]]", unix, unix+2)},
		{"LATENCY GRAPH command", "command - high 50 ms, low 10 ms (all time high 50 ms)\n" + strings.Repeat("-", 80) + "\n" +
			"        0s ago       10 ms ##########\n        2s ago       50 ms " + strings.Repeat("#", 50) + "\n"},
		{"LATENCY RESET sweep nope", ":1"}, {"LATENCY HISTORY sweep", "[]"}, {"LATENCY RESET", ":1"}, {"LATENCY LATEST", "[]"},
	} {
		if got := callFlat(t, s, conn, strings.Fields(c.line)...); got != c.want && got != "txt:"+c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
}

func TestLatencyKeepsTheLatestSamples(t *testing.T) {
	var s spikes
	for i := range int64(maxSamples + 5) {
		s.add("command", i, 1000-i)
	}
	e := s.find([]byte("command"))
	if len(e.samples) != maxSamples || e.samples[0].unix != 5 || e.samples[maxSamples-1].unix != maxSamples+4 || e.worst != 1000 {
		t.Errorf("%d samples from %v on, worst %d", len(e.samples), e.samples[0], e.worst)
	}
}

func TestLatencyHistogram(t *testing.T) {
	s := newServer()
	conn := newConn(s)
	s.Observe(conn, requests(t, "EXISTS k", "EXISTS k"), 0, 1000)
	observeConn(t, s, conn, 3*time.Microsecond, "CLIENT", "ID")
	observeConn(t, s, conn, 9*time.Microsecond, "CLIENT", "GETNAME")
	exists, id, name := "exists {calls :2 histogram_usec {:1 :2}}", "client|id {calls :1 histogram_usec {:4 :1}}", "client|getname {calls :1 histogram_usec {:16 :1}}"
	for _, c := range []struct{ args, want string }{
		{"exists", exists}, {"EXISTS exists nope ping", exists}, {"client|id", id}, {"client", id + " " + name}, {"", exists + " " + id + " " + name}, {"nope", ""},
	} {
		conn.Proto = 3
		if got := callFlat(t, s, conn, append([]string{"LATENCY", "HISTOGRAM"}, strings.Fields(c.args)...)...); got != "{"+c.want+"}" {
			t.Errorf("%s: %s, want {%s}", c.args, got, c.want)
		}
	}
}

func TestDoctorSaysWhatToDo(t *testing.T) {
	s := newServer()
	if got := doctor(s); !strings.Contains(got, "CONFIG SET latency-monitor-threshold 100") {
		t.Errorf("off: %q", got)
	}
	s.SetLatencyThreshold(100)
	if got := doctor(s); !strings.Contains(got, "All is well: nothing took 100 ms or longer") {
		t.Errorf("well: %q", got)
	}
	for event := range advice {
		s.Spike(event, 100*time.Millisecond)
		s.Spike(event, 300*time.Millisecond)
	}
	got := doctor(s)
	for event, a := range advice {
		if !strings.Contains(got, ". "+event+": "+a.what+". It took long in 1 second since 0s ago, the last time 0s ago: 300 ms on average, 300 ms at worst.\n   What to do: "+a.do+"\n") {
			t.Errorf("%s is not told of:\n%s", event, got)
		}
	}
	if strings.Contains(got, "All is well") {
		t.Error("all is said to be well")
	}
}

func TestAFlushIsNotedOnce(t *testing.T) {
	s := slowWatcher(-1, 10)
	p := &fakePersist{}
	s.WatchFlush() // there is no state file
	s.Persist = p
	s.WatchFlush()
	p.info = PersistInfo{Flushes: 1, LastDuration: 20 * time.Millisecond}
	s.WatchFlush()
	p.info.LastDuration = 40 * time.Millisecond // of no new flush
	s.WatchFlush()
	if e := s.spikes.find([]byte("flush")); e.worst != 20 {
		t.Errorf("worst %d ms, want 20", e.worst)
	}
	p.info.Flushes = 2
	s.WatchFlush()
	if e := s.spikes.find([]byte("flush")); e.worst != 40 {
		t.Errorf("worst %d ms, want 40", e.worst)
	}
}
