//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// status is what stint status --json writes, as far as the tests look at it.
type status struct {
	Addr     string
	State    string
	Problems []struct{ Name, Text string }
	Version  string
	Clients  int64
	Keys     int64
	KeysByDB map[string]int64 `json:"keys_by_db"`
	Allowed  int64            `json:"decisions_allowed"`
	Refused  int64            `json:"decisions_refused"`
	Rate     *struct{ Seconds, Allowed, Refused, Commands float64 }
	Info     map[string]string
}

// statusOf runs stint status --json and compares its exit code.
func statusOf(t *testing.T, code int, args ...string) (s status) {
	t.Helper()
	got, stdout, stderr := tool(t, slices.Concat([]string{"status", "--json"}, args)...)
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || got != code || stderr != "" {
		t.Fatalf("%q: exit code %d, want %d; %v, stderr %q, stdout\n%s", args, got, code, err, stderr, stdout)
	}
	return s
}

func (s status) problem(t *testing.T, name, text string) {
	t.Helper()
	if len(s.Problems) != 1 || s.Problems[0].Name != name || !strings.Contains(s.Problems[0].Text, text) {
		t.Errorf("the problems are %v, want one of %s with %q", s.Problems, name, text)
	}
}

func TestStatusOfAHealthyServer(t *testing.T) {
	s := start(t)
	c := s.Dial()
	for range 3 {
		c.Do("THROTTLE", "k", "2", "1/h")
	}
	expect(t, c.Do("SELECT", "3"), "OK")
	c.Do("THROTTLE", "k", "2", "1/h")
	got := statusOf(t, 0, "--addr", s.Addr)
	if got.State != "healthy" || len(got.Problems) != 0 || got.Addr != s.Addr || got.Clients != 2 || got.Keys != 2 ||
		got.KeysByDB["db0"] != 1 || got.KeysByDB["db3"] != 1 || got.Allowed != 3 || got.Refused != 1 || got.Rate != nil || got.Version == "" || got.Info["run_id"] == "" {
		t.Errorf("got %+v", got)
	}
	code, text, stderr := tool(t, "status", "--addr", s.Addr)
	for _, want := range []string{": healthy\n", "\nclients     2 of at most 10000\n", "\nkeys        2: db0 1, db3 1\n", "\ndurability  interval, every 1s; ", "\ndecisions   3 allowed, 1 refused since the start\n"} {
		if code != 0 || stderr != "" || !strings.Contains(text, want) {
			t.Errorf("exit code %d, stderr %q, want %q in\n%s", code, stderr, want, text)
		}
	}
	// Without flags it finds the server that the variables describe.
	cmd := exec.CommandContext(t.Context(), binary, "status")
	cmd.Env = append(cleanEnv(), "STINT_ADDR="+s.Addr+",unix:/none", "STINT_MAX_CLIENTS=x", "STINT_TLS_CA=/none")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), ": healthy\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestStatusMeasuresDecisions(t *testing.T) {
	s := start(t)
	stop, ended := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		c := s.Dial()
		for {
			select {
			case <-stop:
				ended <- n
				return
			default:
				c.Do("THROTTLE", "k", "1", "1/h")
				n++
			}
		}
	}()
	// One INFO reads its counters one after the other: a few commands may come
	// between.
	got := statusOf(t, 0, "--addr", s.Addr, "--for", "500ms")
	close(stop)
	if n := <-ended; got.Rate == nil || got.Rate.Seconds < 0.4 || got.Rate.Seconds > 30 || got.Rate.Refused <= 0 || got.Rate.Refused > float64(n)/got.Rate.Seconds || got.Rate.Commands < got.Rate.Refused*0.9 {
		t.Errorf("%d decisions in all, the rate is %+v", n, got.Rate)
	}
}

func TestStatusOfAServerWithAProblem(t *testing.T) {
	s := start(t, "--max-clients", "10")
	var all []*Conn
	for range 9 {
		c := s.Dial()
		expect(t, c.Do("PING"), "PONG")
		all = append(all, c)
	}
	statusOf(t, 1, "--addr", s.Addr).problem(t, "clients", "10 of at most 10 clients")
	code, text, _ := tool(t, "status", "--addr", s.Addr)
	if lines := strings.Split(text, "\n"); code != 1 || !strings.HasSuffix(lines[0], ": problem") || !strings.HasPrefix(lines[1], "PROBLEM     10 of at most 10 clients") {
		t.Errorf("exit code %d,\n%s", code, text)
	}
	statusOf(t, 0, "--addr", s.Addr, "--alive").problem(t, "clients", "10 of at most 10 clients")
	one := s.Dial()
	eventually(t, ioTimeout, "all places are taken", func() bool { return infoField(all[0].Do("INFO", "clients"), "connected_clients") == "10" })
	statusOf(t, 1, "--addr", s.Addr).problem(t, "refused", "ERR max number of clients reached")
	one.Close()

	s = start(t, "--requirepass", "secret")
	statusOf(t, 1, "--addr", s.Addr).problem(t, "refused", "NOAUTH")
	statusOf(t, 1, "--addr", s.Addr, "--requirepass", "wrong").problem(t, "refused", "it does not accept the password")
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	statusOf(t, 0, "--addr", s.Addr, "--password-file", path)
	statusOf(t, 0, "--addr", s.Addr, "--requirepass-file", path)
	config := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "addr: [%q, 'unix:/x']\nrequirepass-file: %q\nmax-clients: 7\n", s.Addr, path), 0o600); err != nil {
		t.Fatal(err)
	}
	statusOf(t, 0, "--config", config)
	if code, stdout, stderr := tool(t, "status", "--addr", s.Addr, "--password-file", "/none"); code != 2 || stdout != "" || !strings.Contains(stderr, "--requirepass-file: the password cannot be read") {
		t.Errorf("exit code %d, %q", code, stderr)
	}

	s = start(t, "--max-memory", "4MiB", "--durability", "none")
	c := s.Dial()
	for i := 0; ; i++ {
		reply := c.Do("THROTTLE", fmt.Sprintf("%0200d", i), "10", "1/h")
		if e, ok := reply.(Error); ok {
			if !strings.HasPrefix(string(e), "OOM") {
				t.Fatal(e)
			}
			break
		}
	}
	statusOf(t, 1, "--addr", s.Addr).problem(t, "memory", "of at most 4.0 MiB of memory are used")

	a := newAuthority(t)
	cert, key := a.Issue("server", time.Now().Add(5*24*time.Hour), "stint.test")
	s = start(t, "--addr", "127.0.0.1:0", "--addr", "tls:127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)
	statusOf(t, 1, "--addr", s.Addr).problem(t, "certificate", "the TLS certificate expires on ")
}

// TestStatusSaysThatFlushesFail lets a limit on the size of files stand in for a
// full disk.
func TestStatusSaysThatFlushesFail(t *testing.T) {
	s := launchBy(t, []string{"sh", "-c", `ulimit -f 300 && exec "$0" "$@"`, binary}, "--interval", "50ms")
	s.awaitListening()
	c := s.Dial()
	n := 0
	eventually(t, startTimeout, "a flush fails", func() bool {
		for range 1000 {
			c.Do("THROTTLE", fmt.Sprintf("%0100d", n), "10", "1/h")
			n++
		}
		return infoField(c.Do("INFO", "persistence"), "flush_failing") != "0"
	})
	statusOf(t, 1, "--addr", s.Addr).problem(t, "flush", "the state cannot be written")
}

func TestStatusOverTLSAndSockets(t *testing.T) {
	a, clients := newAuthority(t), newAuthority(t)
	socket := filepath.Join(t.TempDir(), "s")
	s, addr := startTLS(t, a, "--tls-ca", clients.File, "--addr", "unix:"+socket)
	cert, key := clients.Issue("status", time.Now().Add(time.Hour), "status")
	shown := []string{"--cert", cert, "--key", key}
	statusOf(t, 0, "--addr", "unix:"+socket)
	statusOf(t, 0, slices.Concat([]string{"--addr", "tls:" + addr, "--cacert", a.File}, shown)...)
	statusOf(t, 0, slices.Concat([]string{"--addr", "tls:" + addr, "--cacert", a.File, "--sni", "stint.test"}, shown)...)
	statusOf(t, 0, slices.Concat([]string{"--addr", "tls:" + addr, "--insecure"}, shown)...)
	_, port, _ := net.SplitHostPort(s.Addr)
	statusOf(t, 0, "--addr", "0.0.0.0:"+port)
	for _, x := range []struct {
		args []string
		want string
	}{
		{slices.Concat([]string{"--addr", "tls:" + addr, "--cacert", clients.File}, shown), "certificate signed by unknown authority"},
		{slices.Concat([]string{"--addr", "tls:" + addr, "--cacert", a.File, "--sni", "other.test"}, shown), "other.test"},
		{[]string{"--addr", "tls:" + addr, "--cacert", a.File}, "certificate required"},
		{[]string{"--addr", "tls:" + s.Addr}, "it does not speak TLS"},
	} {
		statusOf(t, 2, x.args...).problem(t, "unreachable", x.want)
	}
	statusOf(t, 1, "--addr", addr).problem(t, "refused", "this port speaks TLS")
}

func TestStatusOfNobody(t *testing.T) {
	s := start(t)
	addr := s.Addr
	s.Stop()
	statusOf(t, 2, "--addr", addr, "--alive")
	got := statusOf(t, 2, "--addr", addr)
	got.problem(t, "unreachable", "connection refused")
	if got.State != "unreachable" {
		t.Errorf("the state is %s", got.State)
	}
	if code, text, _ := tool(t, "status", "--addr", addr); code != 2 || !strings.HasPrefix(text, "stint at "+addr+": unreachable\nPROBLEM     ") {
		t.Errorf("exit code %d,\n%s", code, text)
	}

	// One that takes connections and says nothing; one that speaks HTTP; one
	// that closes; one that never ends.
	for _, x := range []struct {
		answer, want string
		hold         bool
	}{
		{"", "no reply in time", true},
		{"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak the Redis protocol", false},
		{"", "the connection was closed without a reply", false},
		{"$99999999999\r\n", "is none that INFO has", false},
		{"$100\r\nshort", "the connection was closed without a reply", false},
		{strings.Repeat("x", 100_000), "does not speak the Redis protocol", false},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(ioTimeout))
			_, _ = c.Read(make([]byte, 64))
			_, _ = c.Write([]byte(x.answer))
			if x.hold {
				_, _ = c.Read(make([]byte, 64))
			}
		}()
		statusOf(t, 2, "--addr", l.Addr().String(), "--timeout", "300ms").problem(t, "unreachable", x.want)
	}
	for args, want := range map[string]string{
		"--addr x": `--addr: "x" is not an address`, "--addr 127.0.0.1:0": "port 0", "--timeout 0": "--timeout: ", "--for 2h": "--for: ",
		"--cert x": "--cert and --key belong together", "--cacert /none": "--cacert: the file cannot be read", "--requirepass a --requirepass-file b": "give one of them",
	} {
		if code, stdout, stderr := tool(t, slices.Concat([]string{"status"}, strings.Fields(args))...); code != 2 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, stderr, want)
		}
	}
}

// TestStatusOfARedis is not taken for a stint that is well.
func TestStatusOfARedis(t *testing.T) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Log("redis-server is not installed: not tried")
		return
	}
	socket := filepath.Join(t.TempDir(), "r")
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, path, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	eventually(t, startTimeout, "Redis listens", func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
		}
		return !errors.Is(err, os.ErrNotExist) && err == nil
	})
	statusOf(t, 1, "--addr", "unix:"+socket).problem(t, "other", "is no stint")
}
