package local_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
	"github.com/stint-dev/stint/engine/store"
	"github.com/stint-dev/stint/server/command"
	"github.com/stint-dev/stint/server/local"
)

// request makes a request of words, which must be a store command.
func request(t testing.TB, words ...string) store.Request {
	t.Helper()
	r := store.Request{Proto: 2}
	for _, w := range words {
		r.Args = append(r.Args, []byte(w))
	}
	cmd, line := command.Find(r.Args)
	if cmd == nil {
		t.Fatalf("%q: %s", words, line)
	}
	r.Cmd = cmd.Index()
	return r
}

func newStore(t testing.TB) (*engine.Keyspace, *local.Store) {
	t.Helper()
	ks, err := engine.New(engine.Options{Track: true})
	if err != nil {
		t.Fatal(err)
	}
	return ks, local.New(ks, local.NewClock(0), new(command.Executor))
}

// run decides one batch.
func run(t testing.TB, s *local.Store, requests ...store.Request) string {
	t.Helper()
	b := store.Batch{Requests: requests}
	if !s.Run(&b) {
		t.Fatal("a batch of a single node is not decided at once")
	}
	return string(b.Out)
}

// wire is a JSON reply of the vectors in RESP2.
func wire(t *testing.T, reply json.RawMessage) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(reply, &v); err != nil {
		t.Fatal(err)
	}
	switch v := v.(type) {
	case float64:
		return fmt.Sprintf(":%d\r\n", int64(v))
	case string:
		return "+" + v + "\r\n"
	case map[string]any:
		return "-" + v["error"].(string)
	}
	var numbers []int64 // float64 would lose digits
	if err := json.Unmarshal(reply, &numbers); err != nil {
		t.Fatal(err)
	}
	out := fmt.Sprintf("*%d\r\n", len(numbers))
	for _, n := range numbers {
		out += fmt.Sprintf(":%d\r\n", n)
	}
	return out
}

// TestVectors runs the oracle's sequences through the command table, a batch
// for each time.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("../../engine/testdata/vectors/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		_, s := newStore(t)
		for lines.Scan() {
			var v struct {
				Name  string
				Steps []struct {
					At    int64 `json:"at_ns"`
					Cmd   []string
					Reply json.RawMessage
				}
			}
			if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
				t.Fatal(err)
			}
			s.Reset()
			for i, step := range v.Steps {
				s.FreezeClock(step.At)
				got, want := run(t, s, request(t, step.Cmd...)), wire(t, step.Reply)
				if got != want && !(want[0] == '-' && strings.HasPrefix(got, want)) {
					t.Fatalf("%s, step %d: %q replied %q, want %q", v.Name, i, step.Cmd, got, want)
				}
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestABatchIsDecidedAtOneTime fails when the clock moves within a batch.
func TestABatchIsDecidedAtOneTime(t *testing.T) {
	ks, s := newStore(t)
	var requests []store.Request
	for i := range 50 {
		requests = append(requests, request(t, "WINDOW", fmt.Sprint("k", i), "5", "1ms", "FIXED"))
	}
	for range 200 {
		run(t, s, requests...)
		tx := ks.Begin(0)
		first, _ := tx.Expiry([]byte("k0"))
		last, _ := tx.Expiry([]byte("k49"))
		tx.End()
		if first != last {
			t.Fatalf("a batch spans the windows that end at %d and %d", first, last)
		}
	}
}

// panicker runs a command that panics while it holds a lock.
type panicker struct{ exec command.Executor }

func (p *panicker) Execute(tx *engine.Tx, requests []store.Request, out []byte) []byte {
	for i, r := range requests {
		if string(r.Args[0]) == "TYPE" {
			tx.Kind(r.Args[1])
			panic("a fault of the program")
		}
		out = p.exec.Execute(tx, requests[i:i+1], out)
	}
	return out
}

// TestAPanicLeavesNoLock fails when a fault in one connection's command stops
// everybody whose keys are in the same shard.
func TestAPanicLeavesNoLock(t *testing.T) {
	ks, err := engine.New(engine.Options{Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := local.New(ks, local.NewClock(0), new(panicker))
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic went missing")
				}
			}()
			run(t, s, request(t, "THROTTLE", "a", "9", "1/d"), request(t, "TYPE", "a"))
		}()
	}
	if got := run(t, s, request(t, "THROTTLE", "a", "9", "1/d", "0")); !strings.HasPrefix(got, "*5\r\n:1\r\n:9\r\n:6\r\n") {
		t.Errorf("after the panics: %q", got)
	}
}

func TestDatabasesAreApart(t *testing.T) {
	_, s := newStore(t)
	for db := range uint8(engine.Databases) {
		r := request(t, "THROTTLE", "k", "1", "1/d")
		r.DB = db
		if got := run(t, s, r); !strings.HasPrefix(got, "*5\r\n:1\r\n") {
			t.Errorf("database %d: %q", db, got)
		}
	}
}

func TestResetForgetsTheTimeToo(t *testing.T) {
	ks, s := newStore(t)
	s.FreezeClock(limit.MaxTime)
	run(t, s, request(t, "THROTTLE", "k", "1", "1/d"))
	s.Reset()
	s.FreezeClock(5)
	if got := run(t, s, request(t, "THROTTLE", "k", "1", "1/d")); !strings.HasPrefix(got, "*5\r\n:1\r\n") || ks.Latest() != 5 {
		t.Errorf("after the reset: %q at %d", got, ks.Latest())
	}
}
