package e2e

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serviceManager stands in for systemd: it has the socket that services send
// their messages to.
type serviceManager struct {
	t      *testing.T
	socket *net.UnixConn
}

func newServiceManager(t *testing.T, name string) *serviceManager {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &serviceManager{t, c}
}

// next is the next message, its lines by name.
func (m *serviceManager) next() map[string]string {
	m.t.Helper()
	_ = m.socket.SetReadDeadline(time.Now().Add(startTimeout))
	b := make([]byte, 4096)
	n, err := m.socket.Read(b)
	if err != nil {
		m.t.Fatalf("no message: %v", err)
	}
	fields := map[string]string{}
	for line := range strings.SplitSeq(string(b[:n]), "\n") {
		name, value, ok := strings.Cut(line, "=")
		if !ok || name == "" {
			m.t.Errorf("%q is no NAME=value", line)
		}
		fields[name] = value
	}
	return fields
}

// want is the next message that is not of STATUS alone, and has field=1.
func (m *serviceManager) want(field string) map[string]string {
	m.t.Helper()
	got := m.next()
	for len(got) == 1 && got["STATUS"] != "" {
		got = m.next()
	}
	if got[field] != "1" {
		m.t.Fatalf("the message is %v, want %s=1", got, field)
	}
	return got
}

// none expects that nothing has come.
func (m *serviceManager) none() {
	m.t.Helper()
	_ = m.socket.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	b := make([]byte, 4096)
	if n, err := m.socket.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		m.t.Errorf("a message %q (%v), want none", b[:n], err)
	}
}

// managed launches the server as a service of that socket.
func managed(t *testing.T, socket string, args ...string) *Server {
	t.Helper()
	return launchBy(t, []string{"env", "NOTIFY_SOCKET=" + socket, binary}, args...)
}

// TestTheServiceManagerIsToldWhenClientsAreServed fails when READY=1 comes
// before the listeners are open and the state is there, or when a stop or a
// reload is not told, or not in its order.
func TestTheServiceManagerIsToldWhenClientsAreServed(t *testing.T) {
	dir, place := t.TempDir(), t.TempDir()
	s := start(t, "--dir", dir)
	spend(s.Dial(), "kept", 10, 7)
	s.Stop()

	a := newAuthority(t)
	for _, name := range []string{filepath.Join(place, "notify"), "@stint-test-" + strconv.Itoa(os.Getpid())} {
		m := newServiceManager(t, name)
		client := filepath.Join(place, "s")
		s := managed(t, name, append([]string{"--dir", dir, "--addr", "unix:" + client, "--addr", "tls:127.0.0.1:0"}, a.serverFlags()...)...)
		if got := m.next(); !strings.HasPrefix(got["STATUS"], "loading") {
			t.Errorf("the first message is %v", got)
		}
		m.want("READY")
		left(dial(t, "unix", client), "kept", 10, 993)

		before := monotonicNow(t)
		if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		got := m.want("RELOADING")
		if us, err := strconv.ParseInt(got["MONOTONIC_USEC"], 10, 64); err != nil || us < before || us > monotonicNow(t) {
			t.Errorf("MONOTONIC_USEC is %q, the clock was at %d before", got["MONOTONIC_USEC"], before)
		}
		m.want("READY")
		// The log comes by another way than the message.
		eventually(t, ioTimeout, "the log tells of the reload", func() bool { return strings.Contains(s.Log(), "SIGHUP: the TLS files are read again") })
		m.none()
		s.Stop()
		m.want("STOPPING")
		m.none()
		if strings.Contains(s.Log(), "level=WARN") {
			t.Errorf("a warning:\n%s", s.Log())
		}
	}
}

// TestAServiceManagerThatIsNotThereStopsNothing has one that is gone, one that
// never reads, and a name that is none.
func TestAServiceManagerThatIsNotThereStopsNothing(t *testing.T) {
	t.Parallel()
	full := filepath.Join(t.TempDir(), "full")
	newServiceManager(t, full)
	fill(t, full)
	for _, name := range []string{filepath.Join(t.TempDir(), "gone"), full, "vsock:2:1234"} {
		s := managed(t, name)
		s.awaitListening()
		expect(t, s.Dial().Do("PING"), "PONG")
		s.hangup("SIGHUP: there is nothing to read again")
		s.Stop()
		for _, message := range []string{"READY=1", "RELOADING=1", "STOPPING=1"} {
			if n := strings.Count(s.Log(), "the service manager cannot be told how far the server is"); n != 5 || !strings.Contains(s.Log(), "message=\""+message+"\"") {
				t.Errorf("%s: %d warnings, want 5, one of them of %s:\n%s", name, n, message, s.Log())
			}
		}
	}
	// Nobody asks.
	s := start(t)
	s.Stop()
	if strings.Contains(s.Log(), "service manager") {
		t.Errorf("without a service manager:\n%s", s.Log())
	}
}

// monotonicNow is the clock that a service manager compares messages by, in
// microseconds.
func monotonicNow(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano() / 1000
}

// fill sends messages to a socket until it takes no more.
func fill(t *testing.T, name string) {
	t.Helper()
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 100_000 {
		_ = c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := c.Write([]byte("STATUS=x")); err != nil {
			return
		}
	}
	t.Fatal("the socket takes any number of messages")
}
