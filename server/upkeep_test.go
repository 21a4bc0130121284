package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/engine"
)

// TestAClockThatWasSetBackIsReportedOnce fails when an operator is not told,
// or told each time it is looked at.
func TestAClockThatWasSetBackIsReportedOnce(t *testing.T) {
	ks, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ks.Advance(time.Now().Add(time.Hour).UnixNano())
	var log bytes.Buffer
	s, err := New(Config{Keyspace: ks, Addrs: []string{"127.0.0.1:0"}, MaxClients: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	warned := false
	for range 3 {
		warned = s.watchClock(warned)
	}
	if got := strings.Count(log.String(), "the wall clock was set back"); !warned || got != 1 {
		t.Errorf("reported %d times:\n%s", got, &log)
	}
	s.clock.Freeze(1)
	for range 3 {
		warned = s.watchClock(warned)
	}
	if got := strings.Count(log.String(), "has caught up"); warned || got != 1 {
		t.Errorf("its end is reported %d times:\n%s", got, &log)
	}
}
