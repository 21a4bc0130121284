//go:build unix

package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// outsideAddr is an address of this machine that is not loopback, "" if there
// is none: a client that connects to it comes from there.
func outsideAddr(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}

func TestProtectedModeRefusesOtherMachines(t *testing.T) {
	outside := outsideAddr(t)
	if outside == "" {
		t.Log("this machine has the loopback interface only: not tried")
		return
	}
	connect := func(s *Server) *Conn {
		_, port, _ := net.SplitHostPort(s.Addr)
		return dial(t, "tcp", net.JoinHostPort(outside, port))
	}
	s := start(t, "--addr", "0.0.0.0:0")
	c := connect(s)
	expectError(t, c.Reply(), "DENIED ")
	c.Closed()
	_, port, _ := net.SplitHostPort(s.Addr)
	expect(t, dial(t, "tcp", "127.0.0.1:"+port).Do("PING"), "PONG")

	expect(t, connect(start(t, "--addr", "0.0.0.0:0", "--protected-mode", "no")).Do("PING"), "PONG")
	expectError(t, connect(start(t, "--addr", "0.0.0.0:0", "--requirepass", "x")).Do("PING"), "NOAUTH")
}

func TestDefaultAddressIsLoopback(t *testing.T) {
	code, help, _ := tool(t, "--help")
	if code != 0 || !strings.Contains(help, "Default: 127.0.0.1:6390") {
		t.Errorf("exit code %d, help:\n%s", code, help)
	}
}

func TestPasswordIsWantedAndNeverShown(t *testing.T) {
	const password = "correct horse battery"
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--requirepass", password}, {"--requirepass-file", path},
	} {
		s := start(t, append(args, "--log-level", "debug", "--enable-debug-command")...)
		c := s.Dial()
		for _, refused := range [][]string{{"PING"}, {"THROTTLE", "k", "10", "1"}, {"FLUSHALL"}, {"INFO"}, {"DEBUG", "RESET"}, {"HELLO", "3"}, {"CONFIG", "GET", "requirepass"}} {
			expectError(t, c.Do(refused...), "NOAUTH")
		}
		expectError(t, c.Do("AUTH", "wrong"), "WRONGPASS")
		expectError(t, c.Do("AUTH", "other", password), "WRONGPASS")
		expectError(t, c.Do("AUTH", ""), "WRONGPASS")
		expectError(t, c.Do("AUTH", password+"\n"), "WRONGPASS")
		expectError(t, c.Do("PING"), "NOAUTH")
		expect(t, c.Do("AUTH", password), "OK")
		expect(t, c.Do("PING"), "PONG")

		c = s.Dial()
		expect(t, c.Do("AUTH", "default", password), "OK")
		expect(t, c.Do("RESET"), "RESET")
		expectError(t, c.Do("PING"), "NOAUTH")

		c = s.Dial()
		if _, ok := c.Do("HELLO", "3", "AUTH", "default", password).(Map); !ok {
			t.Error("HELLO 3 AUTH does not reply a map")
		}
		expect(t, c.Do("PING"), "PONG")
		s.Stop()
		for _, secret := range []string{password, "wrong"} {
			if strings.Contains(s.Log(), secret) {
				t.Errorf("the log holds %q:\n%s", secret, s.Log())
			}
		}
	}
}

// TestUnauthenticatedClientsCannotFillMemory sends long arguments before AUTH.
func TestUnauthenticatedClientsCannotFillMemory(t *testing.T) {
	s := start(t, "--requirepass", "x")
	c := s.Dial()
	c.Raw("*2\r\n$4\r\nAUTH\r\n$1048576\r\n")
	expectError(t, c.Reply(), "ERR Protocol error: ")
	c.Closed()
	c = s.Dial()
	c.Raw("*1000\r\n")
	expectError(t, c.Reply(), "ERR Protocol error: ")
	c.Closed()
}

func TestDebugIsRefusedWithoutTheFlag(t *testing.T) {
	c := start(t).Dial()
	expectError(t, c.Do("DEBUG", "CLOCK", "1"), "ERR DEBUG command not allowed")
	expectError(t, c.Do("DEBUG", "RESET"), "ERR DEBUG command not allowed")
}

func TestIdleClientsAreDisconnected(t *testing.T) {
	t.Parallel()
	s := start(t, "--idle-timeout", "200ms")
	c := s.Dial()
	expect(t, c.Do("PING"), "PONG")
	began := time.Now()
	c.Closed()
	if d := time.Since(began); d < 100*time.Millisecond {
		t.Errorf("disconnected after %v already", d)
	}
}

func TestClientLimit(t *testing.T) {
	s := start(t, "--max-clients", "3")
	var all []*Conn
	for range 3 {
		c := s.Dial()
		expect(t, c.Do("PING"), "PONG")
		all = append(all, c)
	}
	over := s.Dial()
	expectError(t, over.Reply(), "ERR max number of clients reached")
	over.Closed()
	all[0].Close()
	eventually(t, 10*time.Second, "a place is free again", func() bool {
		c, err := net.Dial("tcp", s.Addr)
		if err != nil {
			return false
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(ioTimeout))
		b := make([]byte, 1)
		_, _ = c.Write([]byte("PING\r\n"))
		_, err = c.Read(b)
		return err == nil && b[0] == '+'
	})
	expect(t, all[1].Do("PING"), "PONG")
}
