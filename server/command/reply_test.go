package command

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/store"
)

// start is when the test server started, and now what its wall clock shows.
var (
	start = time.Unix(1_700_000_000, 0)
	now   = start.Add(3*24*time.Hour + 5*time.Second)
)

// newServer is a server whose figures are all different.
func newServer() *Server {
	s := &Server{
		Version: "1.2.3", RunID: strings.Repeat("a1", 20), Started: start, Port: 6390,
		Now:   func() time.Time { return now },
		Clock: func() int64 { return 1_700_000_123_456_789_012 },
		Keyspace: func() engine.Stats {
			stats := engine.Stats{Memory: 5 << 20, MaxMemory: 1 << 30, Forgotten: 77, Changed: 88, Expired: 99}
			stats.Keys[0], stats.Keys[15] = 11, 22
			return stats
		},
		Traffic: func() Traffic {
			return Traffic{Clients: 31, MaxClients: 32, Accepted: 33, Rejected: 34, BytesIn: 35, BytesOut: 36, ProtocolErrors: 37, OutputClosed: 38, Panics: 39,
				IdleClosed: 40, TLSClosed: 44, AcceptErrors: 45, HeldInput: 46, HeldReplies: 47}
		},
	}
	return s
}

// newConn is a connection whose state is all different.
func newConn(s *Server) *Conn {
	c := NewConn(s, 7, "1.2.3.4:5", "6.7.8.9:6390")
	s.Join(&c)
	return &c
}

// call runs a connection command in the protocol of the connection.
func call(t *testing.T, s *Server, conn *Conn, args ...string) string {
	t.Helper()
	var words [][]byte
	for _, a := range args {
		words = append(words, []byte(a))
	}
	cmd, line := Find(words)
	if cmd == nil {
		return "-" + line + "\r\n"
	}
	if cmd.Conn == nil {
		t.Fatalf("%q is no connection command", args)
	}
	c := ConnCtx{Conn: conn, Server: s, Args: words}
	c.W.Proto = conn.Proto
	cmd.Conn(&c)
	return string(c.W.B)
}

// flat takes one RESP value off b and writes it for people: maps in braces,
// sets in angle brackets, arrays in brackets. It fails on what no client could
// read.
func flat(t *testing.T, b []byte) (text string, rest []byte) {
	t.Helper()
	line, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || len(line) == 0 || bytes.ContainsAny(line, "\r\n") {
		t.Fatalf("no RESP: %q", b)
	}
	switch line[0] {
	case '+', ':', '-', ',', '#', '_':
		return string(line), rest
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil {
		t.Fatalf("no length: %q", line)
	}
	switch line[0] {
	case '$', '=':
		if n == -1 {
			return "nil", rest
		}
		if len(rest) < n+2 || string(rest[n:n+2]) != "\r\n" {
			t.Fatalf("a string is not closed: %q", b)
		}
		return string(rest[:n]), rest[n+2:]
	case '*', '~', '%':
		if n == -1 {
			return "nil", rest
		}
		open, end := "[", "]"
		switch line[0] {
		case '~':
			open, end = "<", ">"
		case '%':
			open, end = "{", "}"
			n *= 2
		}
		var parts []string
		for range n {
			var part string
			part, rest = flat(t, rest)
			parts = append(parts, part)
		}
		return open + strings.Join(parts, " ") + end, rest
	}
	t.Fatalf("unknown kind: %q", line)
	return "", nil
}

// callFlat is call with the reply written for people.
func callFlat(t *testing.T, s *Server, conn *Conn, args ...string) string {
	t.Helper()
	reply := call(t, s, conn, args...)
	text, rest := flat(t, []byte(reply))
	if len(rest) > 0 {
		t.Fatalf("%q: more than one reply: %q", args, reply)
	}
	return text
}

// step is a command and the bytes of its reply in both protocols.
type step struct {
	line  string
	two   string
	three string // empty: the same as two
}

func runSteps(t *testing.T, s *Server, steps []step) {
	t.Helper()
	for _, proto := range []uint8{2, 3} {
		conn := newConn(s)
		conn.Proto = proto
		for _, c := range steps {
			want := c.two
			if proto == 3 && c.three != "" {
				want = c.three
			}
			if got := call(t, s, conn, strings.Fields(c.line)...); got != want {
				t.Errorf("RESP%d %s:\n got %q\nwant %q", proto, c.line, got, want)
			}
		}
	}
}

func TestEveryReplyIsOneValue(t *testing.T) {
	for _, proto := range []uint8{2, 3} {
		for _, c := range commands.all {
			if c.Conn == nil {
				continue
			}
			args := strings.Split(c.full, "|")
			for _, filler := range []string{"x", "ON", "YES", "NO", "1", "3", "LIB-NAME", "SCHEDULE", "client"} {
				full := args
				for len(full) < max(c.Arity, -c.Arity) {
					full = append(full[:len(full):len(full)], filler)
				}
				if c.Arity < 0 {
					full = append(full[:len(full):len(full)], filler)
				}
				s := newServer()
				s.Persist, s.Debug = &fakePersist{}, &fakeDebug{}
				s.Config.AddFixed("x", "y")
				conn := newConn(s)
				conn.Proto = proto
				callFlat(t, s, conn, full...)
			}
		}
	}
}

type fakePersist struct {
	saves, background int
	last              time.Time
	err               error
	info              PersistInfo
}

func (p *fakePersist) Save() error           { p.saves++; return p.err }
func (p *fakePersist) BackgroundSave() error { p.background++; return p.err }
func (p *fakePersist) LastSave() time.Time   { return p.last }
func (p *fakePersist) Info() PersistInfo     { return p.info }

type fakeDebug struct{ log []string }

func (d *fakeDebug) FreezeClock(ns int64) { d.log = append(d.log, fmt.Sprint("freeze ", ns)) }
func (d *fakeDebug) RunClock()            { d.log = append(d.log, "run") }
func (d *fakeDebug) Reset() error         { d.log = append(d.log, "reset"); return nil }

// TestALimitReadBeforeIsNotTakenForAnother fails when the words of a limit are
// mixed up with those of the command before in the same batch.
func TestALimitReadBeforeIsNotTakenForAnother(t *testing.T) {
	ks, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tx := ks.Begin(1)
	defer tx.End()
	word := func(s ...string) (words [][]byte) {
		for _, w := range s {
			words = append(words, []byte(w))
		}
		return words
	}
	cmd, _ := Find(split("THROTTLE k 1 1"))
	var batch []store.Request
	for _, args := range [][][]byte{
		word("THROTTLE", "a", "", ""), word("THROTTLE", "a", "7", "1"), word("THROTTLE", "b", "7", "1"),
		word("THROTTLE", "c", "8", "1"), word("THROTTLE", "d", "8", "8"), word("THROTTLE", "e", "0", "8"), word("THROTTLE", "f", "8", "8"),
	} {
		batch = append(batch, store.Request{Args: args, Cmd: cmd.Index(), Proto: 2})
	}
	got := string(new(Executor).Execute(tx, batch, nil))
	want := "-" + ErrCapacity(nil) + "\r\n*5\r\n:1\r\n:7\r\n:6\r\n:0\r\n:1000\r\n*5\r\n:1\r\n:7\r\n:6\r\n:0\r\n:1000\r\n" +
		"*5\r\n:1\r\n:8\r\n:7\r\n:0\r\n:1000\r\n*5\r\n:1\r\n:8\r\n:7\r\n:0\r\n:125\r\n-" + ErrCapacity([]byte("0")) + "\r\n*5\r\n:1\r\n:8\r\n:7\r\n:0\r\n:125\r\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
