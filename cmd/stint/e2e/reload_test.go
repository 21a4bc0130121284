//go:build unix

package e2e

import (
	"crypto/tls"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// hangup sends SIGHUP and waits for another line that has text.
func (s *Server) hangup(text string) {
	s.t.Helper()
	was := strings.Count(s.Log(), text)
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		s.t.Fatalf("SIGHUP: %v\n%s", err, s.Log())
	}
	eventually(s.t, ioTimeout, "the log says "+text, func() bool { return strings.Count(s.Log(), text) > was })
}

// served are the names in the certificate that a new connection sees.
func served(t *testing.T, addr string, config *tls.Config) string {
	t.Helper()
	c := dialTLS(t, addr, config)
	defer c.Close()
	expect(t, c.Do("PING"), "PONG")
	return strings.Join(c.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0].DNSNames, " ")
}

// TestHangupWithNothingToRead used to end the process.
func TestHangupWithNothingToRead(t *testing.T) {
	s := start(t)
	s.hangup("SIGHUP: there is nothing to read again")
	expect(t, s.Dial().Do("PING"), "PONG")
	s.hangup("SIGHUP: there is nothing to read again")
	s.Stop()
}

// TestReloadUnderLoad exchanges the certificate again and again while clients
// decide on connections that they keep, and others come and go.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	s, addr := startTLS(t, a)
	stop := make(chan struct{})
	var workers sync.WaitGroup
	var decided, connected atomic.Int64
	var failure atomic.Value
	for i := range 8 {
		c := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: 2 + i%2, TLSConfig: a.Client(nil), MaxRetries: -1, DialerRetries: 1, PoolSize: 1})
		defer c.Close()
		workers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := c.Do(t.Context(), "THROTTLE", "load", 1_000_000_000, "1000000000/h").Err(); err != nil {
					failure.Store(err)
					return
				}
				decided.Add(1)
			}
		})
	}
	fresh := a.Client(nil)
	workers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			c, err := tls.Dial("tcp", addr, fresh)
			if err != nil {
				failure.Store(err)
				return
			}
			connected.Add(1)
			c.Close()
		}
	})
	for i := range 20 {
		want := "stint.test"
		if i%2 == 0 {
			want = "stint.test other.test"
		}
		a.Issue("server", time.Now().Add(90*24*time.Hour), strings.Fields(want)...)
		before := decided.Load()
		s.hangup("SIGHUP: the TLS files are read again")
		if got := served(t, addr, a.Client(nil)); got != want {
			t.Errorf("reload %d: a new connection sees %q, want %q", i, got, want)
		}
		eventually(t, ioTimeout, "decisions go on", func() bool { return decided.Load() > before || failure.Load() != nil })
	}
	close(stop)
	workers.Wait()
	if err := failure.Load(); err != nil {
		t.Errorf("a client was hurt by a reload: %v", err)
	}
	if n := strings.Count(s.Log(), "a TLS handshake failed"); n > 0 {
		t.Errorf("%d handshakes failed:\n%s", n, s.Log())
	}
	info := s.Dial().Do("INFO")
	if got := infoField(info, "decisions_allowed"); got == "0" || connected.Load() == 0 {
		t.Errorf("%s decisions, %d connections: there was no load", got, connected.Load())
	}
	s.Stop()
}

func TestWhatIsWrongIsNotTakenOver(t *testing.T) {
	a, clients, others := newAuthority(t), newAuthority(t), newAuthority(t)
	s, addr := startTLS(t, a, "--tls-ca", clients.File)
	good := a.Client(clients)
	cert := filepath.Join(a.dir, "server.pem")
	kept, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ file, text, want string }{
		{cert, "no certificate", "--tls-cert: " + cert + " holds no certificate"},
		{cert, string(kept[:len(kept)-100]), "--tls-cert: " + cert},
		{clients.File, "", "--tls-ca: " + clients.File},
	} {
		was, err := os.ReadFile(x.file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(x.file, []byte(x.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.hangup("SIGHUP: the TLS files are not taken over, the ones from before stay in use")
		if !strings.Contains(s.Log(), x.want) {
			t.Errorf("the log does not say %q:\n%s", x.want, s.Log())
		}
		if got := served(t, addr, good); got != "stint.test" {
			t.Errorf("a new connection sees %q", got)
		}
		if err := os.WriteFile(x.file, was, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	// Another authority for clients: the former's are locked out from now on,
	// but for those that are in.
	in := dialTLS(t, addr, good)
	expect(t, in.Do("PING"), "PONG")
	other, err := os.ReadFile(others.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(clients.File, other, 0o600); err != nil {
		t.Fatal(err)
	}
	s.hangup("SIGHUP: the TLS files are read again")
	served(t, addr, a.Client(others))
	expect(t, in.Do("PING"), "PONG")
	c := goredis.NewClient(&goredis.Options{Addr: addr, TLSConfig: good, MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("a client of the former authority is served")
	}
	s.Stop()
}

func TestThePasswordIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	set := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("first-word\n")
	s := start(t, "--requirepass-file", path, "--log-level", "debug")
	in := s.Dial()
	expect(t, in.Do("AUTH", "first-word"), "OK")
	s.hangup("SIGHUP: the password is the same")

	set("second-word\n")
	s.hangup("SIGHUP: the password is another one now")
	expect(t, in.Do("PING"), "PONG")
	c := s.Dial()
	expectError(t, c.Do("AUTH", "first-word"), "WRONGPASS")
	expect(t, c.Do("AUTH", "second-word"), "OK")

	// A file that is empty, while an editor writes it, opens nothing.
	for _, text := range []string{"", "\n", strings.Repeat("x", 5000)} {
		set(text)
		s.hangup("SIGHUP: the password is not taken over, the one from before stays in use")
		c := s.Dial()
		expectError(t, c.Do("PING"), "NOAUTH")
		expect(t, c.Do("AUTH", "second-word"), "OK")
	}
	s.Stop()
	if log := s.Log(); strings.Contains(log, "first-word") || strings.Contains(log, "second-word") || strings.Contains(log, "xxxx") {
		t.Errorf("the log shows a password:\n%s", log)
	}
}

// TestAStopDoesNotWaitForAFileThatHangs has the password file be a pipe that
// somebody holds and nobody writes to: what was decided is saved all the same,
// and the stop is an ordered one.
func TestAStopDoesNotWaitForAFileThatHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--requirepass-file", path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfifo", path).CombinedOutput(); err != nil {
		t.Fatalf("mkfifo: %v: %s", err, out)
	}
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	var w *os.File
	eventually(t, ioTimeout, "the server reads the pipe", func() (read bool) {
		var err error
		w, err = os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	})
	defer w.Close()
	s.Stop()
	if log := s.Log(); !strings.Contains(log, "gives neither data nor an error") {
		t.Errorf("the log does not say that a file hangs:\n%s", log)
	}
}

// TestHangupsWhileStarting sends some before the server listens, and some
// while it stops.
func TestHangupsWhileStarting(t *testing.T) {
	a := newAuthority(t)
	s := launch(t, slices.Concat([]string{"--addr", "tls:127.0.0.1:0", "--pprof-addr", "127.0.0.1:0"}, a.serverFlags())...)
	// Profiles are served before the listeners open, and signals heard by then.
	eventually(t, startTimeout, "it has begun", func() bool { return strings.Contains(s.Log(), "serving profiles") })
	for range 5 {
		if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	addr := s.TLSAddr()
	eventually(t, ioTimeout, "it is obeyed", func() bool { return strings.Contains(s.Log(), "SIGHUP: the TLS files are read again") })
	served(t, addr, a.Client(nil))
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for over := false; !over; {
		_ = s.cmd.Process.Signal(syscall.SIGHUP)
		select {
		case <-s.exited:
			over = true
		case <-tick.C:
		}
	}
	if code := s.Exit(10 * time.Second); code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.Log())
	}
}
