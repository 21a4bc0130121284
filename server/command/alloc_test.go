//go:build !race

// The race detector makes sync.Pool forget at random, so allocations can be
// counted only without it.

package command

import (
	"testing"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/store"
)

func TestFindAllocatesNothing(t *testing.T) {
	one, two := split("ThRoTtLe k 10 1"), split("CLIENT getname")
	n := testing.AllocsPerRun(1000, func() {
		if c, _ := Find(one); c == nil {
			t.Fatal("not found")
		}
		if c, _ := Find(two); c == nil {
			t.Fatal("not found")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestExecutorAllocatesNothing(t *testing.T) {
	ks, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tx := ks.Begin(1)
	defer tx.End()
	var e Executor
	args := split("EXISTS k")
	cmd, _ := Find(args)
	r := []store.Request{{Args: args, Cmd: cmd.Index(), Proto: 2}}
	out := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(1000, func() { out = e.Execute(tx, r, out[:0]) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	s := newServer()
	s.SetSlowLog(10)
	s.SetSlowerThan(10_000)
	s.SetLatencyThreshold(100)
	conn := newConn(s)
	batch := requests(t, "EXISTS k", "EXISTS k", "THROTTLE k 1 1")
	ping, _ := Find(split("PING"))
	args, reply := split("PING"), []byte("+PONG\r\n")
	n := testing.AllocsPerRun(1000, func() {
		start := Ticks()
		conn.Begin(batch[2].Cmd, start)
		s.Observe(conn, batch, start, start+1000)
		s.ObserveConn(conn, ping, args, reply, start, start+1000)
	})
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
