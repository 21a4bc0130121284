package session

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stint-dev/stint/engine/store"
	"github.com/stint-dev/stint/server/command"
)

// fakeStore replies each request with its first argument, database and
// protocol, and remembers how the requests were cut into batches.
type fakeStore struct {
	batches []int
	later   bool // decide on another goroutine
	quiet   bool // remember nothing and reply :1
}

func (f *fakeStore) Run(b *store.Batch) bool {
	if f.quiet {
		for range b.Requests {
			b.Out = append(b.Out, ":1\r\n"...)
		}
		return true
	}
	f.batches = append(f.batches, len(b.Requests))
	decide := func() {
		for i := range b.Requests {
			r := &b.Requests[i]
			b.Out = fmt.Appendf(b.Out, "+%s db%d resp%d\r\n", r.Args[1], r.DB, r.Proto)
		}
	}
	if f.later {
		go func() {
			decide()
			b.Done(b)
		}()
		return false
	}
	decide()
	return true
}

// words cuts a line into the arguments of a command.
func words(line string) [][]byte { return bytes.Fields([]byte(line)) }

// send has the session handle the commands as one pipeline.
func send(s *Session, lines ...string) (reply string, end bool) {
	for _, line := range lines {
		s.Command(words(line), true)
	}
	out, end := flush(s, nil)
	return string(out), end
}

// flush calls Flush until nothing is left to decide, as a transport does.
func flush(s *Session, out []byte) (reply []byte, end bool) {
	for {
		step, more, why := s.Flush(out, false)
		if !more {
			return step, why != nil
		}
		out = step
	}
}

func newSession(password string) (*Session, *fakeStore, *command.Server) {
	server := &command.Server{}
	server.Password.Set([]byte(password))
	f := &fakeStore{}
	return New(server, f, Info{ID: 7, Addr: "1.2.3.4:5", LocalAddr: "6.7.8.9:6390"}), f, server
}

func TestNeighbouringStoreCommandsAreOneBatch(t *testing.T) {
	for _, later := range []bool{false, true} {
		s, f, _ := newSession("")
		f.later = later
		reply, end := send(s, "EXISTS a", "exists b", "PING", "EXISTS c", "NOPE", "EXISTS d", "EXISTS", "EXISTS e", "EXISTS f", "EXISTS g")
		want := "+a db0 resp2\r\n+b db0 resp2\r\n+PONG\r\n+c db0 resp2\r\n" +
			"-ERR unknown command 'NOPE', with args beginning with: \r\n+d db0 resp2\r\n" +
			"-ERR wrong number of arguments for 'exists' command\r\n+e db0 resp2\r\n+f db0 resp2\r\n+g db0 resp2\r\n"
		if reply != want || end {
			t.Errorf("later %v: reply %q, end %v, want %q", later, reply, end, want)
		}
		if got := fmt.Sprint(f.batches); got != "[2 1 1 3]" {
			t.Errorf("later %v: batches %s, want [2 1 1 3]", later, got)
		}
	}
}

func TestConnectionCommandsHoldFromTheNextCommandOn(t *testing.T) {
	s, f, _ := newSession("")
	reply, _ := send(s, "EXISTS a", "SELECT 3", "EXISTS b", "HELLO 3", "EXISTS c", "CLIENT GETNAME", "RESET", "EXISTS d", "CLIENT GETNAME")
	for _, part := range []string{"+a db0 resp2\r\n+OK\r\n+b db3 resp2\r\n%7\r\n", "+c db3 resp3\r\n_\r\n+RESET\r\n+d db0 resp2\r\n$-1\r\n"} {
		if !strings.Contains(reply, part) {
			t.Errorf("reply %q lacks %q", reply, part)
		}
	}
	if got := fmt.Sprint(f.batches); got != "[1 1 1 1]" {
		t.Errorf("batches %s, want one for each", got)
	}
	// The state lasts beyond the pipeline, and is this connection's alone.
	send(s, "HELLO 3")
	other, _, _ := newSession("")
	if reply, _ := send(other, "CLIENT GETNAME"); reply != "$-1\r\n" {
		t.Errorf("another connection after HELLO 3: %q", reply)
	}
	if reply, _ := send(s, "CLIENT GETNAME"); reply != "_\r\n" {
		t.Errorf("after HELLO 3 in an earlier pipeline: %q", reply)
	}
	send(s, "RESET")
	send(s, "SELECT 9")
	if reply, _ := send(s, "EXISTS z"); reply != "+z db9 resp2\r\n" {
		t.Errorf("after SELECT in an earlier pipeline: %q", reply)
	}
}

func TestRepliesFollowWhatIsInTheBuffer(t *testing.T) {
	s, _, _ := newSession("")
	s.Command(words("EXISTS a"), true)
	s.Command(words("PING"), true)
	out, _ := flush(s, []byte("before"))
	if want := "before+a db0 resp2\r\n+PONG\r\n"; string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
	if out, end := flush(s, out); string(out) != "before+a db0 resp2\r\n+PONG\r\n" || end {
		t.Errorf("a Flush with nothing collected: %q, %v", out, end)
	}
}

func TestWhatFollowsQuitIsNotRun(t *testing.T) {
	s, f, _ := newSession("")
	reply, end := send(s, "EXISTS a", "QUIT", "EXISTS b", "NOPE")
	if reply != "+a db0 resp2\r\n+OK\r\n" || !end {
		t.Errorf("reply %q, end %v", reply, end)
	}
	if reply, end := send(s, "EXISTS c"); reply != "" || !end {
		t.Errorf("after QUIT: reply %q, end %v", reply, end)
	}
	if got := fmt.Sprint(f.batches); got != "[1]" {
		t.Errorf("batches %s, want only what came before QUIT", got)
	}
}

// TestNothingOfATransactionIsRun fails when a caller who reads an error has
// been charged.
func TestNothingOfATransactionIsRun(t *testing.T) {
	for _, end := range []string{"EXEC", "discard"} {
		s, f, _ := newSession("")
		reply, _ := send(s, "EXISTS a", "multi", "EXISTS b", "PING", "MULTI", "NOPE", end, "EXISTS c")
		want := "+a db0 resp2\r\n-" + command.ErrMulti + "\r\n-" + command.ErrAfterMulti + "\r\n-" + command.ErrAfterMulti + "\r\n-" +
			command.ErrMulti + "\r\n-" + command.ErrAfterMulti + "\r\n-" + command.ErrExec + "\r\n+c db0 resp2\r\n"
		if reply != want {
			t.Errorf("%s: reply %q, want %q", end, reply, want)
		}
		if got := fmt.Sprint(f.batches); got != "[1 1]" {
			t.Errorf("%s: batches %s, want what stands outside", end, got)
		}
	}
	// It may come in several pipelines; RESET ends it, QUIT too.
	s, f, _ := newSession("")
	send(s, "MULTI")
	if reply, _ := send(s, "EXISTS a"); reply != "-"+command.ErrAfterMulti+"\r\n" {
		t.Errorf("in a later pipeline: %q", reply)
	}
	if reply, _ := send(s, "RESET", "EXISTS b"); reply != "+RESET\r\n+b db0 resp2\r\n" {
		t.Errorf("after RESET: %q", reply)
	}
	if reply, end := send(s, "MULTI", "QUIT"); reply != "-"+command.ErrMulti+"\r\n+OK\r\n" || !end {
		t.Errorf("QUIT: %q, %v", reply, end)
	}
	if got := fmt.Sprint(f.batches); got != "[1]" {
		t.Errorf("batches %s", got)
	}
	// EXEC alone is a command like any other that there is not.
	other, _, _ := newSession("")
	if reply, _ := send(other, "EXEC"); !strings.HasPrefix(reply, "-ERR unknown command 'EXEC'") {
		t.Errorf("EXEC without MULTI: %q", reply)
	}
}

func TestEmptyCommandIsNothing(t *testing.T) {
	s, _, server := newSession("")
	s.Command(nil, true)
	s.Command([][]byte{}, true)
	if out, end := flush(s, nil); len(out) != 0 || end {
		t.Errorf("got %q, %v", out, end)
	}
	if n := server.Counters.Commands.Load(); n != 0 {
		t.Errorf("counted %d commands", n)
	}
}

func TestAuthentication(t *testing.T) {
	const (
		noAuth    = "-NOAUTH Authentication required.\r\n"
		wrongPass = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	)
	cases := []struct {
		line  string
		reply string // a prefix
		in    bool   // authenticated afterwards
	}{
		{"EXISTS a", noAuth, false},
		{"PING", noAuth, false},
		{"SELECT 1", noAuth, false},
		{"CLIENT SETNAME x", noAuth, false},
		{"CLIENT ID", noAuth, false},
		{"INFO", noAuth, false},
		{"COMMAND", noAuth, false},
		{"CONFIG GET requirepass", noAuth, false},
		{"CONFIG SET requirepass x", noAuth, false},
		{"DEBUG RESET", noAuth, false},
		{"CLUSTER HELP", noAuth, false},
		{"AUTH", "-ERR wrong number of arguments for 'auth' command\r\n", false},
		{"AUTH wrong", wrongPass, false},
		{"AUTH secre", wrongPass, false},
		{"AUTH secrett", wrongPass, false},
		{"AUTH default wrong", wrongPass, false},
		{"AUTH other secret", wrongPass, false},
		{"AUTH default secret more", "-ERR syntax error\r\n", false},
		{"HELLO 3", "-NOAUTH HELLO must be called", false},
		{"HELLO", "-NOAUTH HELLO must be called", false},
		{"HELLO 3 AUTH default wrong", wrongPass, false},
		{"HELLO 3 AUTH other secret", wrongPass, false},
		{"HELLO 4 AUTH default secret", "-NOPROTO ", false},
		{"HELLO 3 AUTH default secret SETNAME a\x01b", "-ERR Client names cannot contain", false},
		{"HELLO 3 AUTH default secret BAD", "-ERR Syntax error in HELLO option 'BAD'", false},
		{"HELLO 3 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'", false},
		{"RESET", "+RESET\r\n", false},
		{"NOPE", "-ERR unknown command", false},
		{"AUTH secret", "+OK\r\n", true},
		{"auth default secret", "+OK\r\n", true},
		{"HELLO 2 AUTH default secret", "*14\r\n", true},
		{"HELLO 3 AUTH default secret", "%7\r\n", true},
		{"hello 3 setname me auth default secret", "%7\r\n", true},
	}
	for _, c := range cases {
		s, f, server := newSession("secret")
		if s.Authenticated() {
			t.Fatal("a new connection is authenticated although there is a password")
		}
		reply, end := send(s, c.line)
		if !strings.HasPrefix(reply, c.reply) || end || s.Authenticated() != c.in {
			t.Errorf("%s: reply %q, end %v, authenticated %v", c.line, reply, end, s.Authenticated())
		}
		if len(f.batches) != 0 {
			t.Errorf("%s: reached the store", c.line)
		}
		want := int64(0)
		if c.reply == wrongPass {
			want = 1
		}
		if n := server.Counters.AuthFailures.Load(); n != want {
			t.Errorf("%s: %d failures counted, want %d", c.line, n, want)
		}
		if !c.in {
			if reply, _ := send(s, "EXISTS a"); reply != noAuth {
				t.Errorf("after %s: %q", c.line, reply)
			}
			continue
		}
		if reply, _ := send(s, "EXISTS a", "RESET", "EXISTS a", "AUTH secret", "EXISTS a"); !strings.HasSuffix(reply, "+RESET\r\n"+noAuth+"+OK\r\n+a db0 resp2\r\n") {
			t.Errorf("after %s, RESET does not take the authentication away: %q", c.line, reply)
		}
	}
}

func TestNoPasswordNeedsNoAuthentication(t *testing.T) {
	s, _, server := newSession("")
	if !s.Authenticated() {
		t.Fatal("not authenticated although there is no password")
	}
	if reply, _ := send(s, "AUTH x"); !strings.HasPrefix(reply, "-ERR AUTH <password> called without any password configured") {
		t.Errorf("AUTH without a password: %q", reply)
	}
	if reply, _ := send(s, "AUTH default x", "AUTH other x"); !strings.HasPrefix(reply, "+OK\r\n-WRONGPASS") {
		t.Errorf("AUTH of a user without a password: %q", reply)
	}
	// A password that is set later leaves this connection as it is, until RESET.
	server.Password.Set([]byte("new"))
	if reply, _ := send(s, "EXISTS a", "RESET", "EXISTS a"); !strings.HasSuffix(reply, "-NOAUTH Authentication required.\r\n") || !strings.HasPrefix(reply, "+a ") {
		t.Errorf("password set while connected: %q", reply)
	}
}

func TestBrowserIsCutOff(t *testing.T) {
	for _, line := range []string{"POST / HTTP/1.1", "Host: 127.0.0.1:6390"} {
		s, f, server := newSession("")
		reply, end := send(s, "EXISTS a", line, "EXISTS b")
		if reply != "+a db0 resp2\r\n" || !end || len(f.batches) != 1 {
			t.Errorf("%s: reply %q, end %v, batches %v", line, reply, end, f.batches)
		}
		if server.Counters.CrossClosed.Load() != 1 {
			t.Errorf("%s: not counted", line)
		}
	}
}

func TestSlowCommandIsABatchOfItsOwn(t *testing.T) {
	s, f, _ := newSession("")
	reply, _ := send(s, "EXISTS a", "EXISTS b", "SCAN 1", "SCAN 2", "EXISTS c", "EXISTS d")
	if want := "+a db0 resp2\r\n+b db0 resp2\r\n+1 db0 resp2\r\n+2 db0 resp2\r\n+c db0 resp2\r\n+d db0 resp2\r\n"; reply != want {
		t.Errorf("got %q", reply)
	}
	if got := fmt.Sprint(f.batches); got != "[2 1 1 2]" {
		t.Errorf("batches %s, want [2 1 1 2]", got)
	}
}

func TestCommandsAreCounted(t *testing.T) {
	s, _, server := newSession("")
	send(s, "EXISTS a", "EXISTS b", "PING", "NOPE", "EXISTS")
	if n := server.Counters.Commands.Load(); n != 5 {
		t.Errorf("counted %d, want 5", n)
	}
}

func TestClosedSessionRunsNothing(t *testing.T) {
	s, f, _ := newSession("")
	s.Command(words("EXISTS a"), true)
	s.Closed()
	s.Command(words("EXISTS b"), true)
	if out, end := flush(s, nil); len(out) != 0 || !end || len(f.batches) != 0 {
		t.Errorf("got %q, %v, batches %v", out, end, f.batches)
	}
}

func TestSessionAfterAPanicInTheStoreTakesFreshMemory(t *testing.T) {
	server := &command.Server{}
	s := New(server, panicStore{}, Info{ID: 1})
	s.Command(words("EXISTS a"), true)
	func() {
		defer func() {
			if recover() == nil {
				t.Fatal("the panic did not come through")
			}
		}()
		_, _, _ = s.Flush(nil, false)
	}()
	s.store = &fakeStore{}
	if reply, _ := send(s, "EXISTS b"); reply != "+b db0 resp2\r\n" {
		t.Errorf("got %q", reply)
	}
}

type panicStore struct{}

func (panicStore) Run(*store.Batch) bool { panic("broken") }

func TestIdleSessionKeepsNoPipeline(t *testing.T) {
	s, _, _ := newSession("")
	send(s, "EXISTS a", "PING")
	if s.work != nil {
		t.Error("the memory of the pipeline is kept")
	}
}

func TestLastCommandOfABatchIsRemembered(t *testing.T) {
	s, _, _ := newSession("")
	send(s, "PING", "EXISTS a", "TYPE b")
	if got := s.conn.LastCmd.FullName(); got != "type" {
		t.Errorf("last command %q", got)
	}
	if reply, _ := send(s, "CLIENT INFO"); !strings.Contains(reply, " cmd=client|info ") {
		t.Errorf("the command that asks is not the last one: %q", reply)
	}
}

// FuzzCommand sends any arguments and expects a reply that can be told apart
// from the next one, and a session that lives on.
func FuzzCommand(f *testing.F) {
	for _, seed := range []string{"EXISTS\x00a", "HELLO\x003\x00AUTH\x00a\x00b\x00SETNAME\x00c", "CLIENT\x00TRACKING\x00ON\x00OPTIN", "CONFIG\x00GET\x00*[a-", "COMMAND\x00GETKEYS\x00DEL\x00a",
		"COMMAND\x00DOCS\x00client|id", "COMMAND\x00LIST\x00FILTERBY\x00PATTERN\x00c*", "DEBUG\x00CLOCK\x001", "INFO\x00server\x00memory", "\r\n\x00\r\n", "SELECT\x00-1", "client", "WAIT\x001\x00-1"} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, line []byte, three bool) {
		s, fake, _ := newSession("")
		fake.quiet = true
		if three {
			s.conn.Proto = 3
		}
		s.Command(bytes.Split(line, []byte{0}), true)
		s.Command(words("ECHO mark"), true)
		out, end := flush(s, nil)
		if end {
			return
		}
		rest, err := skipValue(out)
		if err != nil {
			t.Fatalf("%q: %v in %q", line, err, out)
		}
		if string(rest) != "$4\r\nmark\r\n" {
			t.Fatalf("%q: one reply and the mark wanted, got %q", line, out)
		}
	})
}
