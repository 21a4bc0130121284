package session

import (
	"strings"
	"testing"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/server/command"
	"github.com/stint-dev/stint/server/local"
)

// newNode is a session on a real keyspace with the test clock allowed.
func newNode(t *testing.T) *Session {
	t.Helper()
	ks, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	st := local.New(ks, local.NewClock(0), new(command.Executor))
	return New(&command.Server{Debug: st}, st, Info{ID: 1})
}

func TestTestClockHoldsFromTheNextCommandOnWithinAPipeline(t *testing.T) {
	s := newNode(t)
	got, _ := send(s, "DEBUG CLOCK 1000000000", "THROTTLE k 10 1 10", "THROTTLE k 10 1 1", "DEBUG CLOCK 3000000000", "THROTTLE k 10 1 1",
		"DEBUG CLOCK 2000000000", "THROTTLE k 10 1 1", "SELECT 1", "EXISTS k", "SELECT 0", "EXISTS k", "DEBUG RESET", "EXISTS k")
	want := []string{"+OK", "*5 :1 :10 :0 :0 :10000", "*5 :0 :10 :0 :1000 :10000", "+OK", "*5 :1 :10 :1 :0 :9000",
		"+OK", "*5 :1 :10 :0 :0 :10000", "+OK", ":0", "+OK", ":1", "+OK", ":0"}
	if got := strings.Join(strings.Fields(got), " "); got != strings.Join(want, " ") {
		t.Errorf("got  %s\nwant %s", got, strings.Join(want, " "))
	}
}
