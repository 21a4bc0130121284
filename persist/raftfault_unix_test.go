//go:build unix

package persist

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// raftFaults are what a process must survive whose disk fails under a map of
// bbolt's. Each is run by a child of the test.
var raftFaults = map[string]func(t *testing.T, dir string){
	"a log overwritten": func(t *testing.T, dir string) {
		logFault(t, dir, func(path string, size int64) error { return overwriteAt(path, 2*pageSize, size) })
	},
	"a log cut short": func(t *testing.T, dir string) {
		logFault(t, dir, func(path string, _ int64) error { return os.Truncate(path, 3*pageSize) })
	},
	"a log cut to nothing": func(t *testing.T, dir string) {
		logFault(t, dir, func(path string, _ int64) error { return os.Truncate(path, 0) })
	},
	"a snapshot overwritten while it is written": func(t *testing.T, dir string) {
		sinkFault(t, dir, func(path string, size int64) error { return overwriteAt(path, 2*pageSize, size) })
	},
	"a snapshot cut short while it is written": func(t *testing.T, dir string) {
		sinkFault(t, dir, func(path string, _ int64) error { return os.Truncate(path, 0) })
	},
}

func TestTheProcessSurvivesADiskThatFailsUnderRaft(t *testing.T) {
	if name := os.Getenv(childEnv); name != "" {
		go bounded()
		raftFaults[name](t, t.TempDir())
		if !t.Failed() {
			fmt.Println(survived)
		}
		os.Exit(0) // goroutines of bbolt's Close may wait for what broke down
	}
	for name := range raftFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+strings.SplitN(t.Name(), "/", 2)[0]+"$", "-test.v")
			cmd.Env = append(os.Environ(), childEnv+"="+name, "TMPDIR="+t.TempDir()) // it ends without tidying up
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), survived) {
				t.Fatalf("the process did not survive: %v\n%s", err, out[:min(len(out), 4000)])
			}
		})
	}
}

// overwriteAt writes random bytes over a part of a file, in place.
func overwriteAt(path string, from, to int64) error {
	b := make([]byte, max(0, to-from))
	_, _ = rand.Read(b) // never fails
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, from)
	return errors.Join(err, f.Close())
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Size()
}

// logFault ruins a log that is open: to read it is an error then.
func logFault(t *testing.T, dir string, ruin func(path string, size int64) error) {
	path := filepath.Join(dir, LogFileName)
	l := newLog(t, path, LogOptions{})
	must(t, l.StoreLogs(entriesFrom(1, 500, 1, 5000)))
	must(t, l.SetUint64([]byte("CurrentTerm"), 7))
	must(t, ruin(path, sizeOf(t, path)))
	for i := range uint64(500) {
		var e raft.Log
		if err := l.GetLog(i+1, &e); err == nil {
			t.Fatalf("entry %d of a ruined log is read", i+1)
		}
	}
	if n, err := l.GetUint64([]byte("CurrentTerm")); err == nil && n != 7 {
		t.Fatalf("the term in a ruined log is %d", n)
	}
	if err := l.StoreLog(entry(501, 1, 10)); err == nil {
		t.Fatal("a ruined log is written to")
	}
	_ = l.Close() // it comes back, whatever it says
	if _, err := OpenLog(path, LogOptions{}); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
}

// sinkFault ruins a snapshot that is being written: it is given up then, or what
// is completed is not taken for whole.
func sinkFault(t *testing.T, dir string, ruin func(path string, size int64) error) {
	n := 0
	var path string
	o := SnapshotOptions{commit: func(do func() error) error {
		if n++; n == 4 {
			must(t, ruin(path, sizeOf(t, path)))
		}
		return do()
	}}
	s := newSnapshots(t, dir, o)
	sink, err := s.Create(1, 9, 3, someNodes, 1, nil)
	must(t, err)
	path = sink.(*snapshotSink).tmp
	if err := errors.Join(writeTo(sink, 1, make([]byte, 20<<20)), sink.Close()); err == nil {
		if _, _, err := readSnapshot(s, sink.ID()); err == nil {
			t.Fatal("a ruined snapshot is read")
		}
	} else if left := files(t, dir); len(left) > 0 {
		t.Fatalf("%q is left: %v", left, err)
	}
}
