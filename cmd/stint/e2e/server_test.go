//go:build unix

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startTimeout bounds how long a server may take to listen. It is generous:
// other tests may keep the machine busy.
const startTimeout = 30 * time.Second

// Server is a running server process.
type Server struct {
	t      *testing.T
	Addr   string // of the first TCP listener
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // of Wait, valid when exited is closed

	mu  sync.Mutex
	log strings.Builder // stderr so far
}

var listening = regexp.MustCompile(`msg=listening addr=(\S+)`)

// start runs the server with args on a free port and returns when it listens.
// It is killed when the test ends, if it still runs then. Without --dir it
// gets a temporary folder.
func start(t *testing.T, args ...string) *Server {
	t.Helper()
	s := launch(t, args...)
	s.awaitListening()
	return s
}

// awaitListening returns when the server listens.
func (s *Server) awaitListening() {
	t := s.t
	t.Helper()
	deadline := time.After(startTimeout)
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for {
		if m := listening.FindStringSubmatch(s.Log()); m != nil {
			s.Addr = m[1]
			return
		}
		select {
		case <-s.exited:
			t.Fatalf("the server ended (%v) before it listened:\n%s", s.err, s.Log())
		case <-deadline:
			t.Fatalf("the server does not listen after %v:\n%s", startTimeout, s.Log())
		case <-poll.C:
		}
	}
}

// launch runs the server without waiting for it to listen.
func launch(t *testing.T, args ...string) *Server {
	t.Helper()
	return launchBy(t, []string{binary}, args...)
}

// launchBy is launch by a command that becomes the server when args are added.
func launchBy(t *testing.T, by []string, args ...string) *Server {
	t.Helper()
	has := func(flag string) bool {
		for _, a := range args {
			if a == flag || strings.HasPrefix(a, flag+"=") {
				return true
			}
		}
		return false
	}
	if !has("--dir") {
		args = append([]string{"--dir", t.TempDir()}, args...)
	}
	if !has("--addr") {
		args = append([]string{"--addr", "127.0.0.1:0"}, args...)
	}
	s := &Server{t: t, cmd: exec.Command(by[0], slices.Concat(by[1:], args)...), exited: make(chan struct{})}
	s.cmd.Env = cleanEnv()
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewReader(stderr)
		for {
			line, err := lines.ReadString('\n')
			s.mu.Lock()
			s.log.WriteString(line)
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	go func() {
		<-read // the pipe must be drained before Wait closes it
		s.err = s.cmd.Wait()
		close(s.exited)
	}()
	t.Cleanup(s.Kill)
	return s
}

// cleanEnv is the environment without settings of the server, and without the
// service manager that may have started the tests. A server built with
// the race detector would otherwise wait a second at its exit.
func cleanEnv() []string {
	env := []string{"GORACE=atexit_sleep_ms=0"}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "STINT_") && !strings.HasPrefix(kv, "NOTIFY_SOCKET=") {
			env = append(env, kv)
		}
	}
	return env
}

// Log is what the server has written to stderr.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// Kill ends the process as a crash would, and waits.
func (s *Server) Kill() {
	select {
	case <-s.exited:
		return
	default:
	}
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// Stop asks for an ordered stop and expects it to be clean and in time.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatalf("SIGTERM: %v\n%s", err, s.Log())
	}
	if code := s.Exit(10 * time.Second); code != 0 {
		s.t.Fatalf("exit code %d after SIGTERM:\n%s", code, s.Log())
	}
}

// Exit waits for the process to end by itself and returns its exit code.
func (s *Server) Exit(within time.Duration) int {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(within):
		s.t.Fatalf("the server still runs after %v:\n%s", within, s.Log())
	}
	var exit *exec.ExitError
	if errors.As(s.err, &exit) {
		return exit.ExitCode()
	}
	if s.err != nil {
		s.t.Fatalf("wait: %v", s.err)
	}
	return 0
}

// tool runs the binary with args to its end and returns what it wrote.
func tool(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = cleanEnv()
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		t.Fatalf("%q: %v", args, err)
	}
	return code, out.String(), errs.String()
}

// eventually polls a condition until it holds or the time is up.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(within)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("after %v still not: %s", within, what)
		case <-poll.C:
		}
	}
}

// Dial opens a raw connection. Every read and write has a deadline.
func (s *Server) Dial() *Conn {
	s.t.Helper()
	return dial(s.t, "tcp", s.Addr)
}

func dial(t *testing.T, network, addr string) *Conn {
	t.Helper()
	c, err := net.DialTimeout(network, addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &Conn{t: t, Conn: c, r: bufio.NewReaderSize(c, 64<<10)}
}

// Conn is a raw connection with a reader for RESP2 and RESP3.
type Conn struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

// ioTimeout bounds one exchange with the server.
const ioTimeout = 20 * time.Second

// Raw sends bytes as they are.
func (c *Conn) Raw(text string) {
	c.t.Helper()
	_ = c.SetDeadline(time.Now().Add(ioTimeout))
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// command writes a command as an array of bulk strings.
func command(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

// Do sends one command and returns its reply.
func (c *Conn) Do(args ...string) any {
	c.t.Helper()
	c.Raw(command(args...))
	return c.Reply()
}

// Reply reads one reply.
func (c *Conn) Reply() any {
	c.t.Helper()
	_ = c.SetDeadline(time.Now().Add(ioTimeout))
	v, err := readReply(c.r)
	if err != nil {
		c.t.Fatalf("no reply: %v", err)
	}
	return v
}

// Closed expects the server to close the connection without sending more.
func (c *Conn) Closed() {
	c.t.Helper()
	_ = c.SetDeadline(time.Now().Add(ioTimeout))
	if b, err := c.r.ReadByte(); err == nil {
		rest, _ := c.r.Peek(c.r.Buffered())
		c.t.Fatalf("want a closed connection, got %q", string(b)+string(rest))
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatal("want a closed connection, it is still open")
	}
}
