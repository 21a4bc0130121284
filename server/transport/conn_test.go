package transport

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestPipelineSplitAtEveryByteGivesTheSameReplies(t *testing.T) {
	s := newServer(t, Options{})
	l := newPipes()
	go s.Serve(l)
	const in = "*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$6\r\na\r\nb\r\n\r\n*0\r\nECHO\t \"x\\x20y\" \r\n\r\n \t \r\n*-1\r\n*2\r\n$4\r\necho\r\n$0\r\n\r\nPING\n"
	const want = "+PONG\r\n$6\r\na\r\nb\r\n\r\n$3\r\nx y\r\n$0\r\n\r\n+PONG\r\n"
	check := func(name string, pieces ...string) {
		t.Helper()
		c := l.dial(t)
		got := make(chan string, 1)
		go func() {
			b := make([]byte, len(want))
			n, _ := io.ReadFull(c.Reader, b)
			got <- string(b[:n])
		}()
		for _, p := range pieces {
			c.send(p)
		}
		if g := <-got; g != want {
			t.Fatalf("%s: replies %q, want %q", name, g, want)
		}
		_ = c.Close()
	}
	for i := range in {
		if i > 0 {
			check(fmt.Sprintf("split at byte %d", i), in[:i], in[i:])
		}
	}
	check("byte by byte", strings.Split(in, "")...)
}

// A pipeline that arrived together is one decision of the session and one
// write, however many commands it has.
func TestPipelineIsOneBatchAndOneWrite(t *testing.T) {
	s := newServer(t, Options{})
	in := []byte(strings.Repeat("*1\r\n$4\r\nPING\r\n", 200))
	nc := &memory{}
	c := &conn{s: s, nc: nc, sess: &toy{open: true}, buf: make([]byte, bufSmall)}
	c.w = copy(c.buf, in)
	if c.w != len(in) || c.round() {
		t.Fatal("the pipeline ends the connection")
	}
	if got := c.batches.Load(); got != 1 {
		t.Errorf("%d batches, want 1", got)
	}
	if nc.writes != 1 || nc.bytes != 200*len("+PONG\r\n") {
		t.Errorf("%d bytes in %d writes, want %d in 1", nc.bytes, nc.writes, 200*len("+PONG\r\n"))
	}
	if got := c.commands.Load(); got != 200 {
		t.Errorf("%d commands counted, want 200", got)
	}
}

// The bound on a batch is inside: more commands than it are more batches, and
// still one write.
func TestBatchIsBounded(t *testing.T) {
	s := newServer(t, Options{})
	nc := &memory{}
	c := &conn{s: s, nc: nc, sess: &toy{open: true}}
	c.buf = []byte(strings.Repeat("PING\n", batchCommands+1))
	c.w = len(c.buf)
	c.round()
	if nc.writes != 1 {
		t.Errorf("the replies are %d writes, want 1", nc.writes)
	}
	if got := c.batches.Load(); got != 2 {
		t.Errorf("%d commands are %d batches, want 2", batchCommands+1, got)
	}
	large := "*2\r\n$4\r\nECHO\r\n$30000\r\n" + strings.Repeat("x", 30000) + "\r\n"
	c = &conn{s: s, nc: &memory{}, sess: &toy{open: true}, buf: []byte(strings.Repeat(large, 4))}
	c.w = len(c.buf)
	c.round()
	if got := c.batches.Load(); got != 2 {
		t.Errorf("4 commands of 30 kB are %d batches, want 2", got)
	}
}

// A line says nothing of how many words it has.
func TestLinesOfManyWordsShareABatch(t *testing.T) {
	s := newServer(t, Options{})
	c := dial(t, onLoopback(t, s))
	in, want := "", ""
	for n := range 300 {
		in += "COUNT" + strings.Repeat(" a", n) + "\r\n*1\r\n$5\r\nCOUNT\r\n"
		want += fmt.Sprintf(":%d\r\n:1\r\n", n+1)
	}
	c.send(in + "COUNT" + strings.Repeat("\tb", 2000) + "\n")
	c.want(want + ":2001\r\n")
}

func TestCommandsDoNotAllocateOnTheirWay(t *testing.T) {
	s := newServer(t, Options{})
	in := []byte(strings.Repeat("*5\r\n$8\r\nTHROTTLE\r\n$5\r\nk:123\r\n$2\r\n10\r\n$2\r\n20\r\n$1\r\n1\r\nTHROTTLE \"k:123\" 10 20\r\n", 16))
	c := &conn{s: s, nc: &memory{}, sess: five{}, buf: make([]byte, bufSmall)}
	n := testing.AllocsPerRun(200, func() {
		c.enter(reading)
		c.w += copy(c.buf[c.w:], in)
		c.enter(deciding)
		if c.round() {
			t.Fatal("the connection ends")
		}
	})
	if n != 0 {
		t.Errorf("32 commands allocate %v times from read to write, want 0", n)
	}
}

// five answers every batch with one decision.
type five struct{}

func (five) Command([][]byte, bool) bool { return true }
func (five) Flush(out []byte, _ bool) ([]byte, bool, error) {
	return append(out, "*5\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n"...), false, nil
}
func (five) Authenticated() bool { return true }
func (five) Closed()             {}

// A slice of an old command's arguments would keep the large buffer alive that
// it came in, for as long as the client says nothing.
func TestNothingKeepsALargeBufferAlive(t *testing.T) {
	s := newServer(t, Options{})
	c := &conn{s: s, nc: &memory{}, sess: &toy{open: true}, buf: make([]byte, bufSmall)}
	c.resize(4 * bufLarge)
	c.w = copy(c.buf, "*2\r\n$4\r\nECHO\r\n$100000\r\n"+strings.Repeat("x", 100_000)+"\r\n")
	if c.round() {
		t.Fatal("the connection ends")
	}
	if len(c.buf) != bufLarge || c.args != nil || c.out != nil {
		t.Errorf("%d bytes for input, %d for arguments, %d for output are kept", len(c.buf), cap(c.args), cap(c.out))
	}
}

// Closing a socket with unread input makes TCP drop the last reply. So the
// sending side is closed, the rest is read, and only then the whole.
func TestTheLastReplyIsGivenTime(t *testing.T) {
	s := newServer(t, Options{})
	farewell := func(nc net.Conn) {
		c := &conn{s: s, nc: nc, sess: &toy{open: true}, buf: []byte("QUIT\r\n"), w: 6}
		c.round()
	}
	refusal := func(nc net.Conn) { turnAway(nc, "ERR no", true) }
	for name, end := range map[string]func(net.Conn){"farewell": farewell, "refusal": refusal} {
		nc := &chatty{left: 3}
		end(nc)
		if !nc.halfClosed || nc.left != 0 || nc.writes != 1 {
			t.Errorf("%s: half closed %v, %d pieces of input left, %d writes", name, nc.halfClosed, nc.left, nc.writes)
		}
		nc = &chatty{left: 1 << 30}
		end(nc)
		if read := 1<<30 - nc.left; read > lingerBytes {
			t.Errorf("%s: a client that never stops is read %d times", name, read)
		}
	}
}

// chatty is a client that still sends after the last reply.
type chatty struct {
	memory
	halfClosed bool
	left       int
}

func (c *chatty) CloseWrite() error { c.halfClosed = true; return nil }

func (c *chatty) Read(b []byte) (int, error) {
	if !c.halfClosed || c.left == 0 {
		return 0, io.EOF
	}
	c.left--
	return 1, nil
}

// memory is a connection that takes everything.
type memory struct{ writes, bytes, deadlines int }

func (m *memory) Write(b []byte) (int, error) {
	m.writes++
	m.bytes += len(b)
	return len(b), nil
}
func (*memory) Read([]byte) (int, error)          { return 0, io.EOF }
func (*memory) Close() error                      { return nil }
func (*memory) LocalAddr() net.Addr               { return nil }
func (*memory) RemoteAddr() net.Addr              { return nil }
func (*memory) SetDeadline(time.Time) error       { return nil }
func (m *memory) SetReadDeadline(time.Time) error { m.deadlines++; return nil }
func (*memory) SetWriteDeadline(time.Time) error  { return nil }

func TestDeepPipelineOfAClientThatReadsIsServed(t *testing.T) {
	s := newServer(t, Options{})
	c := dial(t, onLoopback(t, s))
	const n = 200_000
	go func() { _, _ = io.WriteString(c.Conn, strings.Repeat("*1\r\n$4\r\nPING\r\n", n)) }()
	c.want(strings.Repeat("+PONG\r\n", n))
	eventually(t, "all is counted", func() bool {
		st := s.Stats()
		return st.Commands == n && st.BytesIn == n*14 && st.BytesOut == n*7
	})
	_ = c.Close()
	eventually(t, "the client has left", func() bool { return s.Stats().Current == 0 })
	if st := s.Stats(); st.Commands != n || st.BytesIn != n*14 || st.BytesOut != n*7 || st.Batches == 0 {
		t.Errorf("what the client did is forgotten when it leaves: %+v", st)
	}
}

func TestProtocolErrorComesAfterTheRepliesBeforeIt(t *testing.T) {
	s := newServer(t, Options{})
	addr := onLoopback(t, s)
	for _, bad := range []struct{ in, want string }{
		{"*x\r\n", "invalid multibulk length"},
		{"*1\r\n$-1\r\n", "invalid bulk length"},
		{"*1\r\n$9223372036854775800\r\n", "invalid bulk length"},
		{"*300000000\r\n", "invalid multibulk length"},
		{strings.Repeat("*1\r\n", 1_000_000), "expected '$', got '*'"},
		{"ECHO 'a\r\n", "unbalanced quotes in request"},
		{strings.Repeat("a", 5000), "too big inline request"},
		{"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "this is an HTTP request, and the port speaks the Redis protocol"},
	} {
		c := dial(t, addr)
		go func() { _, _ = io.WriteString(c.Conn, "PING\r\nPING\r\n"+bad.in+"PING\r\n") }()
		want := "+PONG\r\n+PONG\r\n-ERR Protocol error: " + bad.want + "\r\n"
		if got := c.end(); got != want {
			t.Errorf("after %.40q: %q, want %q", bad.in, got, want)
		}
	}
	if got := s.Stats().ProtocolErrors; got != 8 {
		t.Errorf("%d protocol errors counted, want 8", got)
	}
	dial(t, addr).ping()
}

func TestGarbageHarmsNobodyElse(t *testing.T) {
	s := newServer(t, Options{})
	addr := onLoopback(t, s)
	other := dial(t, addr)
	x := uint32(1)
	for range 50 {
		b := make([]byte, 10_000)
		for i := range b {
			x = x*1664525 + 1013904223
			b[i] = byte(x >> 24)
		}
		c := dial(t, addr)
		go func() { _, _ = c.Conn.Write(b) }()
		other.ping()
		_ = c.Close()
	}
}

func TestEndOfSessionEndsThePipeline(t *testing.T) {
	s := newServer(t, Options{})
	c := dial(t, onLoopback(t, s))
	c.send("PING\r\nQUIT\r\nPING\r\n")
	if got := c.end(); got != "+PONG\r\n+OK\r\n" {
		t.Errorf("replies %q, want those up to the QUIT", got)
	}
}

func TestHalfClosedClientGetsItsReplies(t *testing.T) {
	s := newServer(t, Options{})
	c := dial(t, onLoopback(t, s))
	c.send("PING\r\nPING\r\n")
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := c.end(); got != "+PONG\r\n+PONG\r\n" {
		t.Errorf("replies %q, want both", got)
	}
}

func TestBoundsRiseWithThePasswordWithinAPipeline(t *testing.T) {
	s := newServer(t, Options{NewSession: func(ConnInfo) Session { return &toy{} }})
	addr := onLoopback(t, s)
	large := "*2\r\n$4\r\nECHO\r\n$20000\r\n" + strings.Repeat("x", 20000) + "\r\n"
	c := dial(t, addr)
	c.send(large)
	if got := c.end(); got != "-ERR Protocol error: unauthenticated bulk length\r\n" {
		t.Errorf("before the password: %.80q", got)
	}
	c = dial(t, addr)
	c.send("PING\r\nAUTH\r\n" + large)
	c.want("+PONG\r\n+OK\r\n$20000\r\n" + strings.Repeat("x", 20000) + "\r\n")
}

func TestLargestCommandsPassAndTheirMemoryGoes(t *testing.T) {
	s := newServer(t, Options{})
	c := dial(t, onLoopback(t, s))
	value := strings.Repeat("x", 1<<20)
	many := "*1048576\r\n$5\r\nCOUNT\r\n" + strings.Repeat("$0\r\n\r\n", 1<<20-1)
	for range 2 {
		c.send("*2\r\n$4\r\nECHO\r\n$1048576\r\n" + value + "\r\n")
		c.want("$1048576\r\n" + value + "\r\n")
		go func() { _, _ = io.WriteString(c.Conn, many) }()
		c.want(":1048576\r\n")
	}
	c.ping()
	if held := s.Stats().Held; held != 0 {
		t.Errorf("%d bytes are held after the commands, want 0", held)
	}
}

func TestUnfinishedCommandsTogetherAreBounded(t *testing.T) {
	s := newServer(t, Options{MaxInput: 600_000})
	addr := onLoopback(t, s)
	half := "*2\r\n$4\r\nECHO\r\n$1048576\r\n" + strings.Repeat("x", 200_000)
	first := dial(t, addr)
	first.send(half)
	eventually(t, "the first half command is held", func() bool { return s.Stats().Held == 256<<10 })
	second := dial(t, addr)
	second.send(half)
	eventually(t, "the second half command is held", func() bool { return s.Stats().Held == 512<<10 })
	third := dial(t, addr)
	go func() { _, _ = io.WriteString(third.Conn, half) }()
	if got := third.end(); got != "-ERR the unfinished commands of all clients together are too large\r\n" {
		t.Errorf("over the bound: %q", got)
	}
	eventually(t, "what the refused one held is given back", func() bool { return s.Stats().Held == 512<<10 })
	_ = first.Close()
	_ = second.Close()
	eventually(t, "everything is given back", func() bool { return s.Stats().Held == 0 })
}

func TestAPanicCostsOneConnectionAndNothingElse(t *testing.T) {
	ended := make(chan uint64, 4)
	s := newServer(t, Options{NewSession: func(info ConnInfo) Session {
		switch info.ID {
		case 3:
			panic("a fault in the making")
		case 4:
			return &toy{open: true, closed: func() { panic("a fault in the end") }}
		}
		return &toy{open: true, closed: func() { ended <- info.ID }}
	}})
	addr := onLoopback(t, s)
	other := dial(t, addr)
	other.ping()
	c := dial(t, addr)
	c.send("PING\r\n")
	c.want("+PONG\r\n")
	c.send("PANIC\r\n")
	if got := c.end(); got != "" {
		t.Errorf("the command that panicked is answered %q", got)
	}
	if id := <-ended; id != 2 {
		t.Errorf("session %d was told of its end, want 2", id)
	}
	if got := dial(t, addr).end(); got != "" {
		t.Errorf("a session that cannot be made answers %q", got)
	}
	c = dial(t, addr)
	c.send("QUIT\r\n")
	if got := c.end(); got != "+OK\r\n" {
		t.Errorf("QUIT answers %q", got)
	}
	eventually(t, "three panics are counted and one connection is left", func() bool {
		st := s.Stats()
		return st.Panics == 3 && st.Current == 1
	})
	other.ping()
}
