package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestTooFewFilesAreRefused(t *testing.T) {
	for _, x := range []struct {
		most      uint64
		listeners int
		enough    bool
	}{{0, 1, true}, {1, 1, false}, {32, 0, true}, {31, 0, false}, {32, 1, false}, {33, 1, true}, {34, 3, false}, {35, 3, true}, {1<<64 - 1, 1, true}} {
		err := enoughFiles(x.most, x.listeners)
		if (err == nil) != x.enough {
			t.Errorf("%d files for %d listeners: %v", x.most, x.listeners, err)
		}
		if few := new(fewFilesError); err != nil && (!errors.As(err, &few) || !strings.Contains(err.Error(), "ulimit -n")) {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestMaxClientsThatDoNotFitAreWarnedOf(t *testing.T) {
	for most, want := range map[uint64]string{
		0: "", 134: "", 1<<64 - 1: "",
		133: "limit=133 max-clients=100 sure=99", 35: "sure=1", 34: "sure=0", 33: "sure=0",
	} {
		var out bytes.Buffer
		warnFiles(most, &Config{MaxClients: 100, Addr: []string{":1", ":2"}}, slog.New(slog.NewTextHandler(&out, nil)))
		if (out.Len() > 0) != (want != "") || !strings.Contains(out.String(), want) {
			t.Errorf("%d files: %q, want %q", most, out.String(), want)
		}
	}
}

func TestMoreClientsThanFilesAreRefused(t *testing.T) {
	for _, x := range []struct {
		most      uint64
		clients   int
		listeners int
		want      string // "": they fit
	}{
		{0, 1 << 20, 1, ""}, {134, 100, 2, ""}, {1<<64 - 1, 1 << 20, 3, ""},
		{133, 100, 2, "open 133 files only, sure to be enough for 99 clients"},
		{34, 1, 2, "at least 35 are needed"}, {33, 1, 2, "at least 35 are needed"},
	} {
		err := clientsFit(x.most, x.clients, x.listeners)
		if (err != nil) != (x.want != "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%d files for %d clients and %d listeners: %v, want %q", x.most, x.clients, x.listeners, err, x.want)
		}
	}
}
