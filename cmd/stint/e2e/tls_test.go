//go:build unix

package e2e

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

var listeningTLS = regexp.MustCompile(`msg=listening addr=tls:(\S+)`)

// startTLS runs a server with a TLS listener beside the plain one, and returns
// the former's address too.
func startTLS(t *testing.T, a *authority, args ...string) (*Server, string) {
	t.Helper()
	s := start(t, slices.Concat([]string{"--addr", "127.0.0.1:0", "--addr", "tls:127.0.0.1:0"}, a.serverFlags(), args)...)
	return s, s.TLSAddr()
}

// TLSAddr waits for the address of the first TLS listener.
func (s *Server) TLSAddr() (addr string) {
	s.t.Helper()
	eventually(s.t, startTimeout, "the server listens with TLS", func() bool {
		if m := listeningTLS.FindStringSubmatch(s.Log()); m != nil {
			addr = m[1]
		}
		return addr != ""
	})
	return addr
}

// dialTLS opens a connection and does the handshake.
func dialTLS(t *testing.T, addr string, config *tls.Config) *Conn {
	t.Helper()
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: ioTimeout}, "tcp", addr, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &Conn{t: t, Conn: c, r: bufio.NewReaderSize(c, 64<<10)}
}

func TestTLSAndPlainSideBySide(t *testing.T) {
	a := newAuthority(t)
	s, addr := startTLS(t, a)
	plain := s.Dial()
	for _, proto := range []int{2, 3} {
		c := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: proto, TLSConfig: a.Client(nil), MaxRetries: -1})
		defer c.Close()
		if err := c.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		scenario(t, func(args ...any) (any, error) { return c.Do(t.Context(), args...).Result() })
		key := fmt.Sprint("k", proto)
		reply, err := c.Do(t.Context(), "THROTTLE", key, 10, "1/h").Int64Slice()
		if err != nil || reply[2] != 9 {
			t.Fatalf("RESP%d over TLS: %v, %v", proto, reply, err)
		}
		if got := plain.Do("THROTTLE", key, "10", "1/h").([]any); got[2] != int64(8) {
			t.Errorf("the same key without TLS: %v, want 8 left", got)
		}
		pipe := c.Pipeline()
		for range 2000 {
			pipe.Do(t.Context(), "ECHO", strings.Repeat("x", 1000))
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Errorf("RESP%d: a pipeline: %v", proto, err)
		}
	}
	rc, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, TLSConfig: a.Client(nil), ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	expect(t, plain.Do("FLUSHALL"), "OK")
	scenario(t, func(args ...any) (any, error) {
		words := make([]string, len(args))
		for i, arg := range args {
			words[i] = fmt.Sprint(arg)
		}
		return rc.Do(t.Context(), rc.B().Arbitrary(words...).Build()).ToAny()
	})
	rg, err := redis.DialContext(t.Context(), "tcp", addr, redis.DialUseTLS(true), redis.DialTLSConfig(a.Client(nil)), redis.DialReadTimeout(ioTimeout))
	if err != nil {
		t.Fatal(err)
	}
	defer rg.Close()
	expect(t, plain.Do("FLUSHALL"), "OK")
	scenario(t, func(args ...any) (any, error) { return rg.Do(fmt.Sprint(args[0]), args[1:]...) })
	info := plain.Do("INFO", "tls")
	if infoField(info, "tls_enabled") != "1" || infoField(info, "tls_client_certificates") != "0" || infoField(info, "tls_handshakes_failed") != "0" {
		t.Errorf("INFO tls is %q", info)
	}
	config := fmt.Sprint(plain.Do("CONFIG", "GET", "tls-*"))
	_, port, _ := net.SplitHostPort(addr)
	for _, want := range []string{"tls-port " + port, "tls-cert-file /", "tls-key-file /", "tls-auth-clients no"} {
		if !strings.Contains(config, want) {
			t.Errorf("CONFIG GET tls-* gives %s, want %q in it", config, want)
		}
	}
	s.Stop()
}

func TestRedisCliOverTLS(t *testing.T) {
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Log("redis-cli is not installed: not tried")
		return
	}
	a, clients := newAuthority(t), newAuthority(t)
	_, addr := startTLS(t, a, "--tls-ca", clients.File)
	host, port, _ := net.SplitHostPort(addr)
	cert, key := clients.Issue("cli", time.Now().Add(time.Hour), "cli")
	out, err := exec.CommandContext(t.Context(), cli, "-h", host, "-p", port, "--tls", "--sni", "stint.test", "--cacert", a.File, "--cert", cert, "--key", key,
		"THROTTLE", "k", "10", "1/h").CombinedOutput()
	if err != nil && strings.Contains(string(out), "Unrecognized option") {
		t.Log("redis-cli is built without TLS: not tried")
		return
	}
	if err != nil || !strings.HasPrefix(string(out), "1\n10\n9\n0\n") {
		t.Errorf("redis-cli --tls: %v\n%s", err, out)
	}
}

func TestClientCertificates(t *testing.T) {
	a, clients, strangers := newAuthority(t), newAuthority(t), newAuthority(t)
	s, addr := startTLS(t, a, "--tls-ca", clients.File)
	for _, proto := range []int{2, 3} {
		for _, x := range []struct {
			who *authority
			ok  bool
		}{{clients, true}, {strangers, false}, {nil, false}} {
			c := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: proto, TLSConfig: a.Client(x.who), MaxRetries: -1, DialerRetries: 1})
			err := c.Do(t.Context(), "THROTTLE", "k", 1000, "1/h").Err()
			if (err == nil) != x.ok || err != nil && !strings.Contains(err.Error(), "tls: ") {
				t.Errorf("RESP%d, accepted %v: %v", proto, x.ok, err)
			}
			c.Close()
		}
	}
	expect(t, s.Dial().Do("PING"), "PONG")
	eventually(t, ioTimeout, "failed handshakes are counted", func() bool {
		return infoField(s.Dial().Do("INFO", "tls"), "tls_handshakes_failed") == "4"
	})
	if n := strings.Count(s.Log(), "a TLS handshake failed"); n != 1 {
		t.Errorf("the log has %d lines about handshakes, want 1 a minute:\n%s", n, s.Log())
	}
}

// TestACertificateIsAsGoodAsAPasswordForProtectedMode connects from another
// address than loopback.
func TestACertificateIsAsGoodAsAPasswordForProtectedMode(t *testing.T) {
	outside := outsideAddr(t)
	if outside == "" {
		t.Log("this machine has the loopback interface only: not tried")
		return
	}
	a, clients := newAuthority(t), newAuthority(t)
	run := func(args ...string) (*Server, string) {
		s := start(t, slices.Concat([]string{"--addr", "tls:0.0.0.0:0"}, a.serverFlags(), args)...)
		_, port, _ := net.SplitHostPort(s.TLSAddr())
		return s, net.JoinHostPort(outside, port)
	}
	_, addr := run("--tls-ca", clients.File)
	expect(t, dialTLS(t, addr, a.Client(clients)).Do("PING"), "PONG")

	_, addr = run()
	c := dialTLS(t, addr, a.Client(nil))
	expectError(t, c.Reply(), "DENIED ")
	c.Closed()

	// With a password, a certificate does not stand in for it.
	s, addr := run("--tls-ca", clients.File, "--requirepass", "x")
	expectError(t, dialTLS(t, addr, a.Client(clients)).Do("PING"), "NOAUTH")
	if strings.Contains(s.Log(), "everyone who can reach") {
		t.Errorf("a warning that is not so:\n%s", s.Log())
	}
	s, _ = run("--protected-mode", "no", "--tls-ca", clients.File)
	if strings.Contains(s.Log(), "everyone who can reach") {
		t.Errorf("a warning that is not so:\n%s", s.Log())
	}
	s, _ = run("--protected-mode", "no")
	if !strings.Contains(s.Log(), "everyone who can reach") {
		t.Errorf("no warning although everybody is let in:\n%s", s.Log())
	}
}

// TestSlowHandshakesHoldNobodyUp opens connections that never speak and wants
// others served at once, and the places free again after the time-out.
func TestSlowHandshakesHoldNobodyUp(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	s, addr := startTLS(t, a, "--max-clients", "20")
	other := dialTLS(t, addr, a.Client(nil))
	var stuck []*Conn
	for range 19 {
		stuck = append(stuck, dial(t, "tcp", addr))
	}
	eventually(t, ioTimeout, "they count as clients", func() bool {
		return infoField(other.Do("INFO", "clients"), "connected_clients") == "20"
	})
	// Over the limit: turned away, and told, though the others hold all places.
	over := dialTLS(t, addr, a.Client(nil))
	expectError(t, over.Reply(), "ERR max number of clients reached")
	over.Closed()
	for _, c := range stuck {
		c.Closed()
	}
	eventually(t, ioTimeout, "their places are free", func() bool {
		return infoField(other.Do("INFO", "clients"), "connected_clients") == "1"
	})
	expect(t, dialTLS(t, addr, a.Client(nil)).Do("PING"), "PONG")
	if !strings.Contains(s.Log(), "the client did not finish it in 10s") {
		t.Errorf("the log says\n%s", s.Log())
	}
}

func TestPlainClientsOnATLSPortAndTheOtherWayRound(t *testing.T) {
	a := newAuthority(t)
	s, addr := startTLS(t, a)
	c := dial(t, "tcp", addr)
	expectError(t, c.Do("PING"), "ERR this port speaks TLS")
	c.Closed()
	eventually(t, ioTimeout, "the log says it", func() bool {
		return strings.Contains(s.Log(), "the client does not speak TLS")
	})
	if nc, err := tls.Dial("tcp", s.Addr, a.Client(nil)); err == nil {
		nc.Close()
		t.Error("a plain port speaks TLS")
	}
	eventually(t, ioTimeout, "the log says it", func() bool {
		return strings.Contains(s.Log(), "a client speaks TLS, which this address does not")
	})
	expect(t, dialTLS(t, addr, a.Client(nil)).Do("PING"), "PONG")
}

// TestASlowReaderOverTLSGetsEveryByte takes large replies so slowly that the
// server's writes are ended again and again.
func TestASlowReaderOverTLSGetsEveryByte(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	_, addr := startTLS(t, a)
	nc, err := net.DialTimeout("tcp", addr, ioTimeout)
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.(*net.TCPConn).SetReadBuffer(16 << 10)
	c := tls.Client(nc, a.Client(nil))
	t.Cleanup(func() { c.Close() })
	const count, size = 40, 1_000_000
	sent := make(chan error, 1)
	go func() {
		for i := range count {
			if _, err := c.Write([]byte(command("ECHO", strings.Repeat(string(rune('a'+i%26)), size)))); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	r := bufio.NewReader(c)
	pause := time.NewTicker(200 * time.Millisecond)
	defer pause.Stop()
	began := time.Now()
	for i := range count {
		// For 13 s, longer than the write time-out, 64 KiB each fifth of a second.
		_ = c.SetReadDeadline(time.Now().Add(ioTimeout))
		want := fmt.Sprintf("$%d\r\n%s\r\n", size, strings.Repeat(string(rune('a'+i%26)), size))
		for len(want) > 0 {
			buf := make([]byte, min(len(want), 64<<10))
			n, err := r.Read(buf)
			if err != nil {
				t.Fatalf("reply %d, after %v: %v", i, time.Since(began), err)
			}
			if string(buf[:n]) != want[:n] {
				t.Fatalf("reply %d is damaged", i)
			}
			want = want[n:]
			if time.Since(began) < 13*time.Second && n > 4096 {
				<-pause.C
			}
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestTLSFilesThatAreWrong are said in a sentence before anything is started.
func TestTLSFilesThatAreWrong(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.Issue("server", time.Now().Add(time.Hour), "stint.test")
	_, other := a.Issue("other", time.Now().Add(time.Hour), "stint.test")
	addr := []string{"--addr", "tls:127.0.0.1:0", "--durability", "none"}
	for _, x := range []struct {
		args []string
		want string
	}{
		{addr, "stint: --tls-cert: a certificate is needed for tls:127.0.0.1:0"},
		{slices.Concat(addr, []string{"--tls-cert", cert}), "stint: --tls-key: "},
		{slices.Concat(addr, []string{"--tls-key", key}), "stint: --tls-cert: a certificate is needed"},
		{[]string{"--tls-cert", cert, "--tls-key", key}, "stint: --tls-cert: no address has TLS"},
		{[]string{"--tls-ca", a.File}, "stint: --tls-ca: no address has TLS"},
		{slices.Concat(addr, []string{"--tls-cert", "/none", "--tls-key", key}), "stint: --tls-cert: the certificate cannot be read"},
		{slices.Concat(addr, []string{"--tls-cert", cert, "--tls-key", "/none"}), "stint: --tls-key: the key cannot be read"},
		{slices.Concat(addr, []string{"--tls-cert", cert, "--tls-key", other}), "stint: --tls-key: the key in " + other + " cannot be used with the certificate in " + cert},
		{slices.Concat(addr, []string{"--tls-cert", cert, "--tls-key", key, "--tls-ca", key}), "stint: --tls-ca: " + key + " holds a key and no certificate"},
		{[]string{"--addr", "tls:127.0.0.1:7", "--addr", "127.0.0.1:7", "--tls-cert", cert, "--tls-key", key}, "stint: --addr: 127.0.0.1:7 is given with and without TLS"},
		{[]string{"--addr", "tls:7"}, `stint: --addr: "tls:7" is not an address: want tls:host:port`},
	} {
		code, stdout, stderr := tool(t, x.args...)
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, x.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit code %d, %q, want %q", x.args, code, stderr, x.want)
		}
	}
}

func TestACertificateThatEndsIsAWarning(t *testing.T) {
	a := newAuthority(t)
	for until, want := range map[time.Duration]string{
		-time.Hour: "the TLS certificate has expired", 13*24*time.Hour + time.Hour: "days_left=13", 15 * 24 * time.Hour: "",
	} {
		cert, key := a.Issue("server", time.Now().Add(until), "stint.test")
		s := start(t, "--addr", "127.0.0.1:0", "--addr", "tls:127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)
		s.TLSAddr()
		if got := strings.Count(s.Log(), "level=WARN msg=\"the TLS certificate"); (got == 1) != (want != "") || !strings.Contains(s.Log(), want) {
			t.Errorf("ends in %v: %d warnings, want %q:\n%s", until, got, want, s.Log())
		}
	}
}
