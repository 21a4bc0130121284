package transport

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnUnfinishedHandshakeEndsAndHoldsNobodyUp(t *testing.T) {
	var logged strings.Builder
	log := slog.New(slog.NewTextHandler(&logged, nil))
	tlsBubble(t, Options{MaxClients: 2, Log: log}, func(t *testing.T, s *Server, l *pipes, dial func() *client) {
		stuck := l.dial(t)
		other := dial()
		other.ping()
		pass(9 * time.Second)
		if got := s.Stats(); got.Current != 2 {
			t.Errorf("%d clients while one does its handshake, want 2", got.Current)
		}
		pass(2 * time.Second)
		if got := s.Stats(); got.Current != 1 || got.TLSFailed != 1 || !gone(stuck) {
			t.Errorf("%d clients, %d failed handshakes after 11 s; want 1 and 1", got.Current, got.TLSFailed)
		}
		other.ping()
		if !strings.Contains(logged.String(), "the client did not finish it in 10s") {
			t.Errorf("the log says\n%s", logged.String())
		}
	})
}

func TestOneWithoutTLSIsToldAndLoggedNowAndThen(t *testing.T) {
	var logged strings.Builder
	log := slog.New(slog.NewTextHandler(&logged, nil))
	tlsBubble(t, Options{Log: log}, func(t *testing.T, s *Server, l *pipes, dial func() *client) {
		plain := func(text string) {
			t.Helper()
			c := l.dial(t)
			c.send(text)
			if got := c.end(); !strings.HasPrefix(got, "-ERR this port speaks TLS") {
				t.Errorf("%q is answered %q", text, got)
			}
			pass(time.Second)
		}
		lines := func() int {
			return strings.Count(logged.String(), "level=INFO msg=\"a TLS handshake failed")
		}
		plain("*1\r\n$4\r\nPING\r\n")
		plain("PING\r\n")
		plain("GET / HTTP/1.1\r\n\r\n")
		if got := lines(); got != 1 || !strings.Contains(logged.String(), "the client does not speak TLS") {
			t.Errorf("3 of them are %d lines in the log, want 1:\n%s", got, logged.String())
		}
		pass(tlsLogEvery)
		plain("PING\r\n")
		if got := lines(); got != 2 || !strings.Contains(logged.String(), "failed_so_far=4") {
			t.Errorf("after a minute there are %d lines, want 2:\n%s", got, logged.String())
		}

		// A probe that only connects is no failure.
		_ = l.dial(t).Close()
		pass(time.Second)
		if got := s.Stats(); got.TLSFailed != 4 || got.Current != 0 {
			t.Errorf("%d failed, %d connections; want 4 and 0", got.TLSFailed, got.Current)
		}
		dial().ping()
	})
}

func TestOneWithoutTLSIsGivenTimeToRead(t *testing.T) {
	nc := &plain{chatty: chatty{left: 3}, text: "PING\r\n"}
	c := &conn{s: newServer(t, Options{}), nc: newTLSConn(nc, newAuthority(t).load(nil).now().config)}
	if c.secure() {
		t.Error("it goes on without TLS")
	}
	if !nc.halfClosed || nc.left != 0 || nc.writes != 1 {
		t.Errorf("half closed %v, %d pieces of input left, %d writes; want true, 0, 1", nc.halfClosed, nc.left, nc.writes)
	}
}

type plain struct {
	chatty
	text string
}

func (p *plain) Read(b []byte) (int, error) {
	if p.text == "" {
		return p.chatty.Read(b)
	}
	n := copy(b, p.text)
	p.text = p.text[n:]
	return n, nil
}

func TestOnlyClientsWithACertificateAreServed(t *testing.T) {
	a, clients, strangers := newAuthority(t), newAuthority(t), newAuthority(t)
	logged := new(syncBuilder)
	verified := make(chan bool, 8)
	s := newServer(t, Options{
		Log:   slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Admit: func(nc net.Conn) string { verified <- Verifies(nc); return "" },
	})
	addr := tlsOnLoopback(t, s, a.load(clients))
	dialTLS(t, addr, a.client(clients)).ping()
	if !<-verified {
		t.Error("Admit is not told that the client is verified")
	}
	for _, x := range []struct {
		who   *authority
		alert string
		why   string
	}{
		{nil, "certificate required", "the client shows no certificate, and --tls-ca demands one"},
		{strangers, "tls: ", "the client's certificate is none that --tls-ca accepts"},
	} {
		nc, err := tls.Dial("tcp", addr, a.client(x.who))
		if err == nil {
			// In TLS 1.3 the client learns it with the first reply.
			_, _ = io.WriteString(nc, "PING\r\n")
			_ = nc.SetReadDeadline(time.Now().Add(patience))
			_, err = nc.Read(make([]byte, 1))
			_ = nc.Close()
		}
		if err == nil || !strings.Contains(err.Error(), x.alert) {
			t.Errorf("the client gets %v, want the alert %q", err, x.alert)
		}
		eventually(t, "the log says "+x.why, func() bool { return strings.Contains(logged.String(), x.why) })
	}
	if plain := tlsOnLoopback(t, s, a.load(nil)); plain != "" {
		for len(verified) > 0 {
			<-verified
		}
		dialTLS(t, plain, a.client(clients)).ping()
		if <-verified {
			t.Error("a client is called verified where no certificate is demanded")
		}
	}
	// Who does not trust the server says so itself.
	if nc, err := tls.Dial("tcp", addr, strangers.client(clients)); err == nil {
		nc.Close()
		t.Error("a stranger's certificate is trusted")
	}
	eventually(t, "the log says that a client does not trust the server", func() bool {
		return strings.Contains(logged.String(), "the client does not accept this server")
	})
	if got := s.Stats().TLSFailed; got != 3 {
		t.Errorf("%d failed handshakes are counted, want 3", got)
	}
}

type syncBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuilder) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuilder) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestWhoIsTurnedAwayOverTLSIsToldWhy(t *testing.T) {
	a := newAuthority(t)
	s := newServer(t, Options{MaxClients: 1})
	addr := tlsOnLoopback(t, s, a.load(nil))
	first := dialTLS(t, addr, a.client(nil))
	first.ping()
	if got := dialTLS(t, addr, a.client(nil)).end(); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("turned away with %q", got)
	}
	first.ping()
}

func TestWhoIsTurnedAwayOverTLSHoldsNobodyUp(t *testing.T) {
	tlsBubble(t, Options{MaxClients: 1}, func(t *testing.T, s *Server, l *pipes, dial func() *client) {
		first := dial()
		first.ping()
		var silent []*client
		for range 2 * lingerMost {
			silent = append(silent, l.dial(t))
		}
		pass(lingerFor + time.Millisecond)
		for i, c := range silent {
			if !gone(c) {
				t.Errorf("silent client %d is still there", i)
			}
		}
		if got := dial().end(); got != "-ERR max number of clients reached\r\n" {
			t.Errorf("the next one is turned away with %q", got)
		}
		first.ping()
	})
}

func TestAHandshakeDoesNotHoldUpAStop(t *testing.T) {
	tlsBubble(t, Options{}, func(t *testing.T, s *Server, l *pipes, _ func() *client) {
		l.dial(t)
		synctest.Wait()
		began := time.Now()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second || s.Stats().TLSFailed != 0 {
			t.Errorf("the stop took %v and counts %d failed handshakes", took, s.Stats().TLSFailed)
		}
	})
}
