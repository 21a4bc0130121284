//go:build unix

package e2e

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// blocked makes a client that has sent much and reads nothing, so that the
// server waits for it.
func blocked(t *testing.T, s *Server) {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	batch := []byte(strings.Repeat(command("ECHO", strings.Repeat("x", 10_000)), 100))
	for range 1000 {
		_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := c.Write(batch); err != nil {
			return // nobody takes it any more
		}
	}
	t.Fatal("the server takes 1 GB from a client that does not read")
}

func TestAStopDoesNotWaitForAClientThatNeverReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, "--dir", dir, "--interval", "1h")
	blocked(t, s)
	spend(s.Dial(), "a", 100, 7)
	s.Stop() // within 10 s
	left(start(t, "--dir", dir).Dial(), "a", 100, 993)
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	blocked(t, s)
	term := func() {
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	term()
	eventually(t, 2*time.Second, "it stops", func() bool { return strings.Contains(s.Log(), "msg=stopping") })
	begun := time.Now()
	term()
	if code := s.Exit(5 * time.Second); code != 1 || !strings.Contains(s.Log(), "second signal") {
		t.Errorf("exit code %d:\n%s", code, s.Log())
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestInterruptStopsAsTerminateDoes(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "--dir", dir, "--interval", "1h")
	spend(s.Dial(), "a", 100, 7)
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := s.Exit(10 * time.Second); code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.Log())
	}
	left(start(t, "--dir", dir).Dial(), "a", 100, 993)
}

// TestWarnings sees that what may surprise is said.
func TestWarnings(t *testing.T) {
	s := launch(t, "--debug-clock", "1", "--addr", "0.0.0.0:0", "--protected-mode", "no")
	eventually(t, startTimeout, "it listens", func() bool { return strings.Contains(s.Log(), "msg=listening") })
	for _, want := range []string{"for tests", "everyone who can reach this address"} {
		if !strings.Contains(s.Log(), want) {
			t.Errorf("no word of %q in\n%s", want, s.Log())
		}
	}
}
