package session

import (
	"strings"
	"testing"
)

// TestOthersSeeASession has one session look at another by CLIENT LIST, from
// its first command until it is closed.
func TestOthersSeeASession(t *testing.T) {
	s, f, server := newSession("")
	other := New(server, f, Info{ID: 8, Addr: "other:1", Unix: true})
	list := func() string {
		text, _ := send(s, "CLIENT LIST")
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "id=8 ") {
				return line
			}
		}
		return ""
	}
	if got := list(); !strings.Contains(got, " addr=other:1 ") || !strings.Contains(got, " flags=U ") || !strings.Contains(got, " cmd=NULL ") {
		t.Errorf("before its first command: %q", got)
	}
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{[]string{"SELECT 4", "CLIENT SETNAME web"}, " cmd=client|setname "},
		{[]string{"EXISTS a", "TYPE b"}, " cmd=type "},
		{[]string{"HELLO 3"}, " resp=3 "},
	} {
		send(other, c.lines...)
		if got := list(); !strings.Contains(got, c.want) || !strings.Contains(got, " name=web ") || !strings.Contains(got, " db=4 ") {
			t.Errorf("after %q: %q, want %q", c.lines, got, c.want)
		}
	}
	other.Closed()
	if got := list(); got != "" {
		t.Errorf("closed, it is still listed: %q", got)
	}
}

// TestASessionTellsWhatItRanAndRefused fails when a command is not counted, or
// one that was refused counts as run.
func TestASessionTellsWhatItRanAndRefused(t *testing.T) {
	s, _, server := newSession("pw")
	server.SetSlowLog(10)
	server.SetSlowerThan(0)
	send(s, "EXISTS a", "AUTH pw")
	send(s, "EXISTS a", "EXISTS b", "exists c", "TYPE d", "NOPE", "EXISTS")
	text, _ := send(s, "INFO commandstats errorstats")
	for _, want := range []string{
		"cmdstat_exists:calls=3,", "cmdstat_type:calls=1,", "cmdstat_auth:calls=1,", "rejected_calls=2,failed_calls=0", "errorstat_NOAUTH:count=1\r\n", "errorstat_ERR:count=2\r\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("INFO lacks %q:\n%s", want, text)
		}
	}
	text, _ = send(s, "SLOWLOG GET")
	if !strings.Contains(text, "the first of 4 commands of a pipeline") || strings.Contains(text, "pw\r\n") {
		t.Errorf("the slow log is %q", text)
	}
}
