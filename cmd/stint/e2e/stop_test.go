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

// TestARepeatedTerminateLosesNothing sends SIGTERM twice, 0 to 5 ms apart, as
// supervisors do that signal a process and its group.
func TestARepeatedTerminateLosesNothing(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{0, 200 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond} {
		dir := t.TempDir()
		s := start(t, "--dir", dir, "--interval", "1h")
		spend(s.Dial(), "a", 2000, 7)
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-time.After(pause)
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
		if code := s.Exit(10 * time.Second); code != 0 || !strings.Contains(s.Log(), "msg=stopped") {
			t.Fatalf("%v apart: exit code %d:\n%s", pause, code, s.Log())
		}
		s = start(t, "--dir", dir)
		left(s.Dial(), "a", 2000, 993)
		s.Kill()
	}
}

// TestManySignalsLoseNothing sends signals of both kinds without a pause for
// as long as the process lives.
func TestManySignalsLoseNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, "--dir", dir, "--interval", "1h")
	spend(s.Dial(), "a", 20_000, 7)
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for i, over := 0, false; !over; i++ {
		_ = s.cmd.Process.Signal([]syscall.Signal{syscall.SIGTERM, syscall.SIGINT}[i%2])
		select {
		case <-s.exited:
			over = true
		case <-tick.C:
		}
	}
	if code := s.Exit(time.Second); code != 0 || !strings.Contains(s.Log(), "a repeated signal is ignored") {
		t.Fatalf("exit code %d:\n%s", code, s.Log())
	}
	left(start(t, "--dir", dir).Dial(), "a", 20_000, 993)
}

// TestASecondInterruptDoesNotWaitForClients ends the wait for a client that
// never reads, which else takes 3 s; the last flush is written.
func TestASecondInterruptDoesNotWaitForClients(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, "--dir", dir, "--interval", "1h")
	blocked(t, s)
	spend(s.Dial(), "a", 100, 7)
	signal := func(sig syscall.Signal) {
		if err := s.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	signal(syscall.SIGINT)
	<-time.After(1100 * time.Millisecond)
	signal(syscall.SIGTERM) // ignored
	eventually(t, time.Second, "it is noted", func() bool { return strings.Contains(s.Log(), "a repeated signal is ignored") })
	signal(syscall.SIGINT)
	if code := s.Exit(10 * time.Second); code != 0 || !strings.Contains(s.Log(), "stopping at once") {
		t.Errorf("exit code %d:\n%s", code, s.Log())
	}
	if took := time.Since(begun); took > 2500*time.Millisecond {
		t.Errorf("it took %v:\n%s", took, s.Log())
	}
	left(start(t, "--dir", dir).Dial(), "a", 100, 993)
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

// TestAnAddressInUseIsExplained wants a sentence with a way out.
func TestAnAddressInUseIsExplained(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().String()
	s := launch(t, "--addr", addr)
	code := s.Exit(startTimeout)
	lines := strings.Split(strings.TrimSpace(s.Log()), "\n")
	last := lines[len(lines)-1]
	if code != 1 || !strings.HasPrefix(last, "stint: cannot listen on "+addr+": ") || strings.Count(last, addr) != 1 || !strings.Contains(last, "--addr") {
		t.Errorf("exit code %d, %q", code, last)
	}
}
