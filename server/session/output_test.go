package session

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stint-dev/stint/server/command"
	"github.com/stint-dev/stint/server/resp"
)

// A pipeline may ask for any number of bytes: they are given out in pieces, and
// what comes after a piece is not run before the client has taken it.
func TestRepliesOfAPipelineComeInPieces(t *testing.T) {
	s, f, server := newSession("")
	text := strings.Repeat("x", 40_000)
	want := ""
	const n = 10
	for i := range n {
		s.Command([][]byte{[]byte("ECHO"), []byte(text)}, true)
		s.Command(words(fmt.Sprint("EXISTS ", i)), true)
		s.Command(words("NOPE"), true)
		want += fmt.Sprintf("$40000\r\n%s\r\n+%d db0 resp2\r\n-ERR unknown command 'NOPE', with args beginning with: \r\n", text, i)
	}
	got, calls := "", 0
	for more := true; more; calls++ {
		var out []byte
		var end error
		if out, more, end = s.Flush([]byte("before"), false); end != nil {
			t.Fatal(end)
		}
		got += strings.TrimPrefix(string(out), "before")
		if len(out) > resp.FlushBytes+len(text)+20 {
			t.Fatalf("a piece of %d bytes", len(out))
		}
		if ran := server.Counters.Commands.Load(); calls == 0 && ran != 4 || more && len(f.batches) == n {
			t.Fatalf("%d commands and %d batches are run after %d pieces", ran, len(f.batches), calls+1)
		}
	}
	if got != want {
		t.Errorf("%d bytes of replies in %d pieces, want %d", len(got), calls, len(want))
	}
	if calls != 6 { // two texts each, and what follows the last
		t.Errorf("%d pieces, want 6", calls)
	}
	if ran := server.Counters.Commands.Load(); ran != 3*n {
		t.Errorf("%d commands counted, want %d", ran, 3*n)
	}
	if reply, _ := send(s, "PING"); reply != "+PONG\r\n" {
		t.Errorf("the next pipeline: %q", reply)
	}
}

// A client that has not taken the replies before still gets on, by one command.
func TestFlushGetsOnWithAFullBuffer(t *testing.T) {
	s, _, _ := newSession("")
	s.Command(words("PING"), true)
	s.Command(words("PING"), true)
	full := make([]byte, resp.FlushBytes)
	out, more, end := s.Flush(full, false)
	if len(out) != len(full)+len("+PONG\r\n") || !more || end != nil {
		t.Errorf("%d bytes, more %v, end %v", len(out), more, end)
	}
	out, more, end = s.Flush(nil, false)
	if string(out) != "+PONG\r\n" || more || end != nil {
		t.Errorf("then %q, more %v, end %v", out, more, end)
	}
}

func TestEndComesWithTheLastPiece(t *testing.T) {
	for _, last := range []string{"QUIT", "POST / HTTP/1.1"} {
		s, f, _ := newSession("")
		s.Command([][]byte{[]byte("ECHO"), make([]byte, resp.FlushBytes)}, true)
		s.Command(words("EXISTS a"), true)
		s.Command(words(last), true)
		s.Command(words("EXISTS b"), true)
		if _, more, end := s.Flush(nil, false); !more || end != nil {
			t.Errorf("%s: first more %v, end %v", last, more, end)
		}
		out, more, end := s.Flush(nil, false)
		if !strings.HasPrefix(string(out), "+a db0 resp2\r\n") || more || end == nil || len(f.batches) != 1 {
			t.Errorf("%s: then %q, more %v, end %v", last, out, more, end)
		}
	}
}

func TestSessionClosedBetweenPiecesRunsNothingMore(t *testing.T) {
	s, f, _ := newSession("")
	s.Command([][]byte{[]byte("ECHO"), make([]byte, resp.FlushBytes)}, true)
	s.Command(words("EXISTS a"), true)
	if _, more, _ := s.Flush(nil, false); !more {
		t.Fatal("all is run at once")
	}
	s.Closed()
	if out, more, end := s.Flush(nil, false); len(out) != 0 || more || end == nil || len(f.batches) != 0 {
		t.Errorf("%q, more %v, end %v, batches %v", out, more, end, f.batches)
	}
	// Its memory goes to the next one, without anything left in it.
	other, _, _ := newSession("")
	if reply, _ := send(other, "NOPE", "PING"); !strings.HasSuffix(reply, "\r\n+PONG\r\n") || !strings.HasPrefix(reply, "-ERR unknown command 'NOPE'") {
		t.Errorf("the next session: %q", reply)
	}
}

// The bound is on one reply: a pipeline whose replies are larger together is
// served, and one reply that is larger ends it.
func TestOutputBoundIsOfOneReply(t *testing.T) {
	lines := []string{"EXISTS 0", "EXISTS first", "SCAN second", "ECHO third"}
	want := "+0 db0 resp2\r\n+first db0 resp2\r\n+second db0 resp2\r\n$5\r\nthird\r\n"
	longest := len("+second db0 resp2\r\n")
	s, _, _ := newSession("")
	s.maxOutput = longest
	if reply, end := send(s, lines...); reply != want || end {
		t.Errorf("replies at the bound: %q, end %v", reply, end)
	}
	s, f, _ := newSession("")
	s.maxOutput = longest - 1
	for _, line := range lines {
		s.Command(words(line), true)
	}
	out, more, end := s.Flush(nil, false)
	var over interface{ OverOutput() bool }
	if string(out) != "+0 db0 resp2\r\n+first db0 resp2\r\n" || more || !errors.As(end, &over) || !over.OverOutput() || len(f.batches) != 2 {
		t.Errorf("a reply over the bound: %q, more %v, end %v", out, more, end)
	}
	if text := fmt.Sprint(end); text != fmt.Sprintf("the reply to scan has %d bytes, want at most %d", longest, longest-1) {
		t.Errorf("the reason is %q", text)
	}
	if reply, end := send(s, "PING"); reply != "" || !end {
		t.Errorf("afterwards: %q, end %v", reply, end)
	}
	s, _, _ = newSession("")
	s.maxOutput = 5
	if reply, end := send(s, "NOPE"); reply != "" || !end {
		t.Errorf("an error over the bound: %q, end %v", reply, end)
	}
	if s = New(&command.Server{}, nil, Info{MaxOutput: 5}); s.maxOutput != 5 {
		t.Error("the bound is not taken over")
	}
}
