package command

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestAdminReplies(t *testing.T) {
	s := newServer()
	refused := "-ERR This instance has cluster support disabled\r\n"
	runSteps(t, s, []step{
		{line: "TIME", two: "*2\r\n$10\r\n1700000123\r\n$6\r\n456789\r\n"},
		{line: "ROLE", two: "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"},
		{line: "WAIT 1 100", two: ":0\r\n"},
		{line: "WAIT x 100", two: "-ERR value is not an integer or out of range\r\n"},
		{line: "WAIT +1 0", two: "-ERR value is not an integer or out of range\r\n"},
		{line: "WAIT 1 00", two: "-ERR value is not an integer or out of range\r\n"},
		{line: "WAIT 1 -1", two: "-ERR value is not an integer or out of range\r\n"},
		{line: "SAVE", two: "-ERR nothing is saved: the server runs with --durability none\r\n"},
		{line: "BGSAVE", two: "-ERR nothing is saved: the server runs with --durability none\r\n"},
		{line: "LASTSAVE", two: ":1700000000\r\n"},
		{line: "DEBUG CLOCK 1", two: "-ERR DEBUG command not allowed: start the server with --enable-debug-command\r\n"},
		{line: "DEBUG CLOCK REAL", two: "-ERR DEBUG command not allowed: start the server with --enable-debug-command\r\n"},
		{line: "DEBUG RESET", two: "-ERR DEBUG command not allowed: start the server with --enable-debug-command\r\n"},
		{line: "CLUSTER INFO", two: refused},
		{line: "CLUSTER SLOTS", two: refused},
		{line: "CLUSTER SHARDS", two: refused},
		{line: "CLUSTER NODES", two: refused},
		{line: "CLUSTER MYID", two: refused},
		{line: "CLUSTER KEYSLOT x", two: refused},
	})
}

func TestSaving(t *testing.T) {
	s := newServer()
	p := &fakePersist{}
	s.Persist = p
	runSteps(t, s, []step{
		{line: "SAVE", two: "+OK\r\n"},
		{line: "BGSAVE", two: "+Background saving started\r\n"},
		{line: "BGSAVE schedule", two: "+Background saving started\r\n"},
		{line: "BGSAVE x", two: "-ERR syntax error\r\n"},
		{line: "BGSAVE SCHEDULE x", two: "-ERR syntax error\r\n"},
		{line: "LASTSAVE", two: ":1700000000\r\n"},
	})
	if p.saves != 2 || p.background != 4 {
		t.Errorf("%d saves and %d in the background, want 2 and 4", p.saves, p.background)
	}
	p.last = time.Unix(1_700_000_099, 999)
	p.err = errors.New("disk full:\r\n+OK")
	runSteps(t, s, []step{
		{line: "LASTSAVE", two: ":1700000099\r\n"},
		{line: "SAVE", two: "-ERR the state could not be saved: disk full:  +OK\r\n"},
		{line: "BGSAVE", two: "-ERR the state could not be saved: disk full:  +OK\r\n"},
	})
}

func TestDebug(t *testing.T) {
	s := newServer()
	d := &fakeDebug{}
	s.Debug = d
	conn := newConn(s)
	for _, line := range []string{"CLOCK 0", "CLOCK 4611686018427387903", "CLOCK 5", "CLOCK real", "RESET"} {
		if got := call(t, s, conn, append([]string{"DEBUG"}, strings.Fields(line)...)...); got != "+OK\r\n" {
			t.Errorf("%s: %q", line, got)
		}
	}
	if got := fmt.Sprint(d.log); got != "[freeze 0 freeze 4611686018427387903 freeze 5 run reset]" {
		t.Errorf("did %s", got)
	}
	for _, bad := range []string{"4611686018427387904", "-1", "1.5", "+1", "01", "", "x", "18446744073709551616"} {
		want := "-ERR invalid time '" + bad + "': want unix nanoseconds from 0 to 4611686018427387903, or REAL\r\n"
		if got := call(t, s, conn, "DEBUG", "CLOCK", bad); got != want {
			t.Errorf("%q: %q", bad, got)
		}
	}
	if len(d.log) != 5 {
		t.Error("a refused time was set")
	}
}

func newConfigServer(level *string) *Server {
	s := newServer()
	s.Config.AddFixed("port", "6390")
	s.Config.AddFixed("appendonly", "no")
	s.Config.AddFixed("save", "")
	for _, name := range []string{"loglevel", "timeout"} {
		s.Config.Add(Param{Name: name, Get: func() string { return *level }, Set: func(v string) (func(), error) {
			if v == "bad" {
				return nil, errors.New("want debug, info,\nwarn or error")
			}
			return func() { *level += v + ";" }, nil
		}})
	}
	return s
}

func TestConfigGet(t *testing.T) {
	level := "info"
	s := newConfigServer(&level)
	for _, c := range []struct{ line, two, three string }{
		{"CONFIG GET save", "[save ]", "{save }"},
		{"CONFIG GET APPEND*", "[appendonly no]", "{appendonly no}"},
		{"CONFIG GET *o*", "[appendonly no loglevel info port 6390 timeout info]", "{appendonly no loglevel info port 6390 timeout info}"},
		{"CONFIG GET p* port po?t save", "[port 6390 save ]", "{port 6390 save }"},
		{"CONFIG GET nothing", "[]", "{}"},
	} {
		conn := newConn(s)
		if got := callFlat(t, s, conn, strings.Fields(c.line)...); got != c.two {
			t.Errorf("%s: %s", c.line, got)
		}
		conn.Proto = 3
		if got := callFlat(t, s, conn, strings.Fields(c.line)...); got != c.three {
			t.Errorf("RESP3 %s: %s", c.line, got)
		}
	}
	s.Config.AddFixed("port", "1")
	if got := callFlat(t, s, newConn(s), "CONFIG", "GET", "port"); got != "[port 1]" {
		t.Errorf("a setting added again: %s", got)
	}
}

func TestConfigSetIsAllOrNothing(t *testing.T) {
	level := ""
	s := newConfigServer(&level)
	conn := newConn(s)
	for _, c := range []struct{ line, want string }{
		{"CONFIG SET loglevel debug nope 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nope'\r\n"},
		{"CONFIG SET loglevel debug port 1", "-ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable config\r\n"},
		{"CONFIG SET loglevel debug LOGLEVEL info", "-ERR CONFIG SET failed (possibly related to argument 'loglevel') - duplicate parameter\r\n"},
		{"CONFIG SET timeout 1 loglevel bad", "-ERR CONFIG SET failed (possibly related to argument 'loglevel') - want debug, info, warn or error\r\n"},
		{"CONFIG SET timeout 1 loglevel", "-ERR wrong number of arguments for 'config|set' command\r\n"},
	} {
		if got := call(t, s, conn, strings.Fields(c.line)...); got != c.want {
			t.Errorf("%s: %q", c.line, got)
		}
		if level != "" {
			t.Errorf("%s: refused, but %q was applied", c.line, level)
		}
	}
	if got := call(t, s, conn, "CONFIG", "SET", "TimeOut", "1", "loglevel", "debug"); got != "+OK\r\n" || level != "1;debug;" {
		t.Errorf("%q, applied %q", got, level)
	}
}

func TestResetStat(t *testing.T) {
	s := newServer()
	reset := false
	s.ResetTraffic = func() { reset = true }
	s.Counters.Commands.Store(1)
	s.Counters.AuthFailures.Store(1)
	s.Counters.CrossClosed.Store(1)
	if got := call(t, s, newConn(s), "CONFIG", "RESETSTAT"); got != "+OK\r\n" || !reset {
		t.Errorf("%q, traffic reset: %v", got, reset)
	}
	if n := s.Counters.Commands.Load() + s.Counters.AuthFailures.Load() + s.Counters.CrossClosed.Load(); n != 0 {
		t.Error("counters are left")
	}
}
