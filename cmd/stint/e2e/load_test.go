//go:build unix

package e2e

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// resident is the resident set of the server in bytes, 0 where the system does
// not tell.
func (s *Server) resident() int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	pages, _ := strconv.Atoi(strings.Fields(string(data))[1])
	return pages * os.Getpagesize()
}

// TestTenThousandConnections opens as many as the default limit allows, or as
// the system lets this process open files.
func TestTenThousandConnections(t *testing.T) {
	n := 10000 - 1 // one for the client that must notice nothing
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if most := int(min(files.Cur, 1<<20)) - 200; most < n {
		t.Logf("the limit of open files is %d: %d connections instead of %d", files.Cur, most, n)
		n = most
	}
	s := start(t)
	other := s.Dial()
	expect(t, other.Do("PING"), "PONG")
	before := s.resident()
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.DialTimeout("tcp", s.Addr, ioTimeout)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer c.Close()
		conns[i] = c
	}
	for i, c := range conns {
		_ = c.SetDeadline(time.Now().Add(ioTimeout))
		if _, err := c.Write([]byte("PING\r\n")); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	reply := make([]byte, 7)
	for i, c := range conns {
		if m, err := c.Read(reply); err != nil || string(reply[:m]) != "+PONG\r\n" {
			t.Fatalf("connection %d: %q, %v", i, reply[:m], err)
		}
	}
	expect(t, other.Do("PING"), "PONG")
	if each := (s.resident() - before) / n; each > 40<<10 && os.Getenv("STINT_TEST_RACE") == "" {
		t.Errorf("%d bytes of memory for each idle connection, want at most 40 KiB", each)
	}
}

// TestAClientThatNeverReads sends without end and reads nothing: it is
// disconnected, memory stays bounded, others notice nothing.
func TestAClientThatNeverReads(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-output", "1MiB")
	other := s.Dial()
	expect(t, other.Do("PING"), "PONG")
	before := s.resident()
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	batch := []byte(strings.Repeat(command("ECHO", strings.Repeat("x", 1000)), 100))
	closed := make(chan error, 1)
	go func() {
		for {
			if _, err := c.Write(batch); err != nil {
				closed <- err
				return
			}
		}
	}()
	// The write deadline of the server is in the order of 10 s; until then
	// backpressure holds the client.
	deadline := time.After(60 * time.Second)
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-closed:
			expect(t, other.Do("PING"), "PONG")
			return
		case <-deadline:
			t.Fatal("still connected after 60 s")
		case <-poll.C:
			expect(t, other.Do("PING"), "PONG")
			if grown := s.resident() - before; grown > 64<<20 && os.Getenv("STINT_TEST_RACE") == "" {
				t.Fatalf("the server grew by %d MiB", grown>>20)
			}
		}
	}
}

// TestOutputBound sends what is answered by more than the bound, and by less.
func TestOutputBound(t *testing.T) {
	s := start(t, "--max-output", "1MiB")
	c := s.Dial()
	small := strings.Repeat("x", 1000<<10)
	expect(t, c.Do("ECHO", small), small)
	c.Raw(command("ECHO", strings.Repeat("x", 1<<20)))
	c.Closed()
	large := strings.Repeat("x", 1<<20)
	expect(t, start(t).Dial().Do("ECHO", large), large)
}

// TestHalfCommandsCostLittle leaves many clients in the middle of a command
// that announced a large argument.
func TestHalfCommandsCostLittle(t *testing.T) {
	s := start(t)
	other := s.Dial()
	expect(t, other.Do("PING"), "PONG")
	before := s.resident()
	const n = 1000
	for range n {
		c, err := net.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("*2\r\n$4\r\nECHO\r\n$1000000\r\nxxx")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 10*time.Second, "all are connected", func() bool {
		clients, _ := strconv.Atoi(infoField(other.Do("INFO", "clients"), "connected_clients"))
		return clients >= n
	})
	expect(t, other.Do("PING"), "PONG")
	if each := (s.resident() - before) / n; each > 64<<10 && os.Getenv("STINT_TEST_RACE") == "" {
		t.Errorf("%d bytes of memory for each half command, want at most 64 KiB", each)
	}
}

// TestPipeliningMuchIsServed sends a long pipeline to its end before reading,
// from a client that reads at the same time as it writes.
func TestPipeliningMuchIsServed(t *testing.T) {
	s := start(t)
	c := s.Dial()
	const n = 200_000
	text := []byte(strings.Repeat(command("THROTTLE", "k", "100000", "1/h"), n))
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(text)
		sent <- err
	}()
	allowed := 0
	for range n {
		if r, ok := c.Reply().([]any); ok && r[0] == int64(1) {
			allowed++
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if allowed != 100_000 {
		t.Errorf("%d of %d were allowed, want 100000", allowed, n)
	}
}

// TestMemoryLimitRefusesAndNeverEvicts fills the memory and sees that nothing
// admitted is forgotten.
func TestMemoryLimitRefusesAndNeverEvicts(t *testing.T) {
	s := start(t, "--max-memory", "4MiB")
	c := s.Dial()
	full, last := false, 0
	for i := 0; i < 1_000_000 && !full; i += 1000 {
		var b strings.Builder
		for j := i; j < i+1000; j++ {
			b.WriteString(command("THROTTLE", fmt.Sprint("key:", j), "1", "1/h"))
		}
		c.Raw(b.String())
		for j := i; j < i+1000; j++ {
			switch r := c.Reply().(type) {
			case Error:
				if !strings.HasPrefix(string(r), "OOM ") {
					t.Fatal(r)
				}
				full = true
			default:
				if !full {
					last = j
				}
			}
		}
	}
	if !full || last < 10_000 {
		t.Fatalf("full: %v, after %d keys", full, last)
	}
	for j := 0; j <= last; j += 97 {
		r := c.Do("THROTTLE", fmt.Sprint("key:", j), "1", "1/h")
		if all, ok := r.([]any); !ok || all[0] != int64(0) {
			t.Fatalf("key %d was admitted before and is again: %v", j, r)
		}
	}
	expectError(t, c.Do("THROTTLE", "one more "+strings.Repeat("k", 4000), "1", "1/h"), "OOM ")
	expect(t, c.Do("THROTTLE", "one more", "1", "1/h", "PEEK"), ints(1, 1, 1, 0, 0))
	expect(t, c.Do("DEL", "key:0"), int64(1))
}
