package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// start runs a server on loopback until the test ends.
func start(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	ks, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Keyspace: ks, Addrs: []string{"127.0.0.1:0"}, MaxClients: 100, MaxOutput: 1 << 20,
		MaxArgument: 1 << 20, ProtectedMode: true, Version: "test", Log: slog.New(slog.DiscardHandler),
		Durability: "none", Interval: time.Second, LogFormat: "text",
	}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

// client is a connection that speaks inline commands.
type client struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, a net.Addr) *client {
	t.Helper()
	c, err := net.DialTimeout(a.Network(), a.String(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &client{t, c, bufio.NewReader(c)}
}

// line reads one line of a reply.
func (c *client) line() string {
	c.t.Helper()
	s, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSuffix(s, "\r\n")
}

// do sends a command and reads n lines.
func (c *client) do(n int, command string) string {
	c.t.Helper()
	if _, err := fmt.Fprintf(c, "%s\r\n", command); err != nil {
		c.t.Fatal(err)
	}
	lines := make([]string, n)
	for i := range lines {
		lines[i] = c.line()
	}
	return strings.Join(lines, " ")
}

// expect sends a command and compares the lines of its reply.
func (c *client) expect(command string, want ...string) {
	c.t.Helper()
	if got := c.do(len(want), command); got != strings.Join(want, " ") {
		c.t.Errorf("%s replied %q, want %q", command, got, want)
	}
}

func TestServesOnSeveralListenersOneKeyspace(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC).UnixNano()
	s := start(t, func(c *Config) {
		c.Addrs = []string{"127.0.0.1:0", "unix:" + socket, "127.0.0.1:0"}
		c.DebugClock = &noon
	})
	addrs := s.Addrs()
	if len(addrs) != 3 {
		t.Fatalf("listens on %v", addrs)
	}
	line := func(i int) string { return fmt.Sprintf(":%d", (i+1)*86400_000) }
	for i, a := range addrs {
		dial(t, a).expect("THROTTLE k 10 1/d", "*5", ":1", ":10", fmt.Sprintf(":%d", 9-i), ":0", line(i))
	}
}

func TestListenOpensAllOrNone(t *testing.T) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	ks, _ := engine.New(engine.Options{})
	s, err := New(Config{Keyspace: ks, Log: slog.New(slog.DiscardHandler), Addrs: []string{"127.0.0.1:0", first.Addr().String()}, MaxClients: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), first.Addr().String()) {
		t.Errorf("%v, want an error that names the address in use", err)
	}
	if n := len(s.Addrs()); n != 0 {
		t.Errorf("%d listeners are left open", n)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestShutdownBeforeServeClosesTheListeners fails when a signal between the
// two leaves a port open, or Serve serves after the stop.
func TestShutdownBeforeServeClosesTheListeners(t *testing.T) {
	ks, _ := engine.New(engine.Options{})
	s, err := New(Config{Keyspace: ks, Log: slog.New(slog.DiscardHandler), Addrs: []string{"127.0.0.1:0"}, MaxClients: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if c, err := net.Dial("tcp", s.Addrs()[0].String()); err == nil {
		c.Close()
		t.Error("the listener is still open")
	}
	if err := s.Serve(); err != nil {
		t.Errorf("Serve after Shutdown: %v", err)
	}
}

// remote is a connection that comes from elsewhere.
type remote struct {
	net.Conn
	addr net.Addr
}

func (r remote) RemoteAddr() net.Addr { return r.addr }

// TestProtectedMode fails when a stranger gets in without a password, or
// someone of this machine, or with a password asked, does not.
func TestProtectedMode(t *testing.T) {
	s := start(t, nil)
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
	stranger, here := tcp("192.0.2.7"), []net.Addr{tcp("127.0.0.1"), tcp("127.9.9.9"), tcp("::1"), &net.UnixAddr{}}
	for _, a := range here {
		if line := s.admit(remote{addr: a}); line != "" {
			t.Errorf("%v is turned away: %s", a, line)
		}
	}
	for _, a := range []net.Addr{stranger, tcp("2001:db8::1"), tcp("10.0.0.1"), tcp("::ffff:192.0.2.7")} {
		line := s.admit(remote{addr: a})
		if !strings.HasPrefix(line, "DENIED ") || !strings.Contains(line, "--requirepass-file") || !strings.Contains(line, "--protected-mode no") {
			t.Errorf("%v: %q", a, line)
		}
	}
	c := dial(t, s.Addrs()[0])
	c.expect("CONFIG SET protected-mode no", "+OK")
	if line := s.admit(remote{addr: stranger}); line != "" {
		t.Errorf("with protected mode off: %s", line)
	}
	c.expect("CONFIG SET protected-mode yes", "+OK")
	c.expect("CONFIG SET requirepass secret", "+OK")
	if line := s.admit(remote{addr: stranger}); line != "" {
		t.Errorf("with a password: %s", line)
	}
	dial(t, s.Addrs()[0]).expect("PING", "-NOAUTH Authentication required.")
}

func TestSettingsThatChangeTakeEffect(t *testing.T) {
	var level slog.LevelVar
	var log bytes.Buffer
	s := start(t, func(c *Config) {
		c.LogLevel = &level
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: &level}))
	})
	c := dial(t, s.Addrs()[0])
	get := func(name string) string {
		r := c.do(5, "CONFIG GET "+name)
		return r[strings.LastIndexByte(r, ' ')+1:]
	}
	for _, p := range []struct{ name, set, want string }{
		{"maxmemory", "100mb", "104857600"},
		{"maxmemory", "100MB", "104857600"},
		{"maxmemory", "100MiB", "104857600"},
		{"maxmemory", "1.5GiB", "1610612736"},
		{"maxmemory", "1gib", "1073741824"},
		{"maxmemory", "2GB", "2147483648"},
		{"maxmemory", "1024kb", "1048576"},
		{"maxmemory", "5000k", "5000000"},
		{"maxmemory", "2g", "2000000000"},
		{"maxmemory", "1048576", "1048576"},
		{"maxmemory", "0", "0"},
		{"maxclients", "7", "7"},
		{"timeout", "90", "90"},
		{"timeout", "30s", "30"},
		{"timeout", "5m", "300"},
		{"timeout", "1500ms", "1.5s"},
		{"timeout", "1.5s", "1.5s"},
		{"timeout", "2147483647", "2147483647"},
		{"timeout", "0", "0"},
		{"loglevel", "debug", "debug"},
		{"loglevel", "warning", "warn"},
		{"protected-mode", "no", "no"},
		{"requirepass", "secret", "********"},
	} {
		c.expect("CONFIG SET "+p.name+" "+p.set, "+OK")
		if got := get(p.name); got != p.want {
			t.Errorf("%s set to %s is %q, want %q", p.name, p.set, got, p.want)
		}
	}
	if level.Level() != slog.LevelWarn {
		t.Errorf("the log level is %v", level.Level())
	}
	for _, p := range []string{
		"maxmemory x", "maxmemory -1", "maxmemory 99999999999999gb", "maxclients 0", "maxclients 1x", "timeout -1",
		"maxmemory 1", "maxmemory 1048575", "maxmemory 1.5", "maxmemory 5k", "maxclients 1048577", "timeout 2147483648", "timeout 30x", "timeout -1s",
		"loglevel loud", "maxclients +5", "protected-mode maybe", "port 1", "dir /tmp", "durability none", "databases 1", "nonsense 1",
	} {
		if got := c.do(1, "CONFIG SET "+p); !strings.HasPrefix(got, "-ERR ") {
			t.Errorf("CONFIG SET %s replied %q", p, got)
		}
	}
	if got := get("maxclients"); got != "7" {
		t.Errorf("a refused CONFIG SET left maxclients %s", got)
	}
	if strings.Contains(log.String(), "secret") {
		t.Error("the password is in the log")
	}
}

// TestAFixedSettingNamesItsFlag fails when a refused CONFIG SET does not say
// how the setting is changed.
func TestAFixedSettingNamesItsFlag(t *testing.T) {
	c := dial(t, start(t, nil).Addrs()[0])
	for _, s := range Settings() {
		if s.Changeable {
			continue
		}
		want := "-ERR CONFIG SET failed (possibly related to argument '" + s.Name + "') - can't set immutable config"
		if s.Flag != "" {
			want += ": restart stint with --" + s.Flag
		}
		c.expect("CONFIG SET "+s.Name+" 1", want)
	}
}

// TestSettingsAreThoseOfConfig fails when documents are made from other
// settings than CONFIG shows.
func TestSettingsAreThoseOfConfig(t *testing.T) {
	c := dial(t, start(t, nil).Addrs()[0])
	all := Settings()
	changeable := 0
	for _, s := range all {
		if s.Changeable {
			changeable++
		}
		if got := c.do(1, "CONFIG GET "+s.Name); got != "*2" {
			t.Errorf("CONFIG GET %s replied %q", s.Name, got)
		}
		for range 4 {
			c.line()
		}
	}
	if got := c.do(1, "CONFIG GET *"); got != fmt.Sprintf("*%d", 2*len(all)) || changeable != 9 {
		t.Errorf("CONFIG GET * replied %s, there are %d settings, %d of them changeable", got, len(all), changeable)
	}
}

// TestAnIdleTimeoutBelowASecondIsShown fails when it reads as none.
func TestAnIdleTimeoutBelowASecondIsShown(t *testing.T) {
	c := dial(t, start(t, func(c *Config) { c.IdleTimeout = 9500 * time.Millisecond }).Addrs()[0])
	c.expect("CONFIG GET timeout", "*2", "$7", "timeout", "$4", "9.5s")
}

// TestResetstatBeginsCountingAnew fails when INFO goes on from before.
func TestResetstatBeginsCountingAnew(t *testing.T) {
	s := start(t, nil)
	for range 3 {
		dial(t, s.Addrs()[0]).expect("PING", "+PONG")
	}
	c := dial(t, s.Addrs()[0])
	c.expect("PING", "+PONG")
	if got := s.traffic(); got.Accepted != 4 || got.Clients < 1 || got.BytesIn == 0 {
		t.Errorf("%+v, want 4 accepted", got)
	}
	c.expect("CONFIG RESETSTAT", "+OK")
	if got := s.traffic(); got.Accepted != 0 || got.Clients < 1 || got.MaxClients != 100 {
		t.Errorf("after RESETSTAT: %+v", got)
	}
}

// TestUpkeepForgetsFullBuckets fails when nobody sweeps.
func TestUpkeepForgetsFullBuckets(t *testing.T) {
	s := start(t, nil)
	ks := s.cfg.Keyspace
	l := limit.BucketLimit{Capacity: 1, Rate: limit.Rate{Count: 1, Period: 1}}
	tx := ks.Begin(s.clock.Now())
	for i := range 400_000 {
		if _, err := tx.Throttle([]byte(fmt.Sprint(i)), l, 1, limit.Consume); err != nil {
			t.Fatal(err)
		}
	}
	tx.End()
	full := ks.Stats(0).Memory
	c := dial(t, s.Addrs()[0])
	deadline := time.After(10 * time.Second)
	poll := time.NewTicker(upkeepEvery)
	defer poll.Stop()
	for ks.Stats(0).Memory > full/4 {
		select {
		case <-poll.C:
			c.do(6, "THROTTLE last 10 1/s 1 FORCE")
		case <-deadline:
			t.Fatalf("%d bytes are held, %d were when all was there", ks.Stats(0).Memory, full)
		}
	}
}

func TestNewRefusesWhatIsMissing(t *testing.T) {
	ks, _ := engine.New(engine.Options{})
	log := slog.New(slog.DiscardHandler)
	for _, c := range []Config{{}, {Keyspace: ks, Log: log}, {Keyspace: ks, Addrs: []string{"x"}}, {Log: log, Addrs: []string{"x"}}} {
		if _, err := New(c); err == nil {
			t.Errorf("New(%+v) works", c)
		}
	}
}
