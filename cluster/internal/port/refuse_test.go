package port

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// refusal is the error of a call that must have been refused.
func refusal(t *testing.T, err error) *RefusedError {
	t.Helper()
	refused := new(RefusedError)
	if !errors.Is(err, ErrNotSent) || !errors.As(err, &refused) {
		t.Fatalf("it must be refused, and so not sent: %v", err)
	}
	return refused
}

func TestWhoIsNotMeantOrOfAnotherClusterIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		from, there Identity
		to          string
		code        Code // 0: welcome
		raft        Code // the same, for a stream
	}{
		"a member calls a member":                     {Identity{"c", "a.1"}, Identity{"c", "b.2"}, "b.2", 0, 0},
		"another incarnation answers":                 {Identity{"c", "a.1"}, Identity{"c", "b.3"}, "b.2", WrongReceiver, WrongReceiver},
		"a member of another cluster":                 {Identity{"d", "a.1"}, Identity{"c", "b.2"}, "b.2", WrongCluster, WrongCluster},
		"the same, whoever is there":                  {Identity{"d", "a.1"}, Identity{"c", "b.2"}, "", WrongCluster, WrongCluster},
		"who has joined none calls a member":          {Identity{"", "a.1"}, Identity{"c", "b.2"}, "", 0, WrongCluster},
		"a member calls who has joined none":          {Identity{"c", "a.1"}, Identity{"", "b.2"}, "b.2", 0, WrongCluster},
		"before there is a cluster, the other is new": {Identity{"", "a.1"}, Identity{"", "b.2"}, "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			served := new(atomic.Int32)
			b, addr := open(t, Options{Self: func() Identity { return c.there }, Serve: func(_ Hello, _ uint8, payload []byte, reply func([]byte)) {
				served.Add(1)
				reply(nil)
			}})
			b.SetRaft(true)
			layer := b.Layer("b")
			a, _ := open(t, Options{Self: func() Identity { return c.from }})
			_, err := a.Call(t.Context(), addr, c.to, 1, nil)
			if c.code == 0 && err != nil {
				t.Errorf("it must be let in: %v", err)
			}
			if c.code != 0 {
				if r := refusal(t, err); r.Code != c.code || r.Text == "" {
					t.Errorf("refused for another reason: %v", r)
				}
				if served.Load() != 0 {
					t.Error("a call was served all the same")
				}
			}
			if _, err := a.Layer("a").Dial("", time.Second); err == nil {
				t.Fatal("an address is needed")
			}
			s, err := a.Layer("a").Dial(raftAddress(addr, c.to), patience)
			if c.raft == 0 {
				if err != nil {
					t.Fatalf("the stream must be let in: %v", err)
				}
				in, err := layer.Accept()
				if err != nil {
					t.Fatal(err)
				}
				_, _ = in.Close(), s.Close()
				return
			}
			if r := new(RefusedError); !errors.As(err, &r) || r.Code != c.raft {
				t.Errorf("the stream: %v", err)
			}
			eventually(t, "it is counted", func() bool { return b.Stats().Refused[reasonNames[reasonOf(c.raft)]] > 0 })
		})
	}
}

func TestTheCallersOwnRuleIsHeeded(t *testing.T) {
	b, addr := open(t, Options{Self: self("c", "b.2"), Check: func(h Hello) *RefusedError {
		if h.From == "a.1" {
			return &RefusedError{77, "a.1 was removed"}
		}
		return nil
	}})
	a, _ := open(t, Options{})
	_, err := a.Call(t.Context(), addr, "b.2", 1, nil)
	if r := refusal(t, err); r.Code != 77 || r.Text != "a.1 was removed" {
		t.Errorf("refused: %v", r)
	}
	eventually(t, "it is counted", func() bool { return b.Stats().Refused["other"] > 0 })
	other, _ := open(t, Options{Self: self("c", "o.1")})
	if _, err := other.Call(t.Context(), addr, "b.2", 1, nil); err != nil {
		t.Errorf("everyone else is let in: %v", err)
	}
}

// A connection from before this node has joined a cluster counts for nothing once
// it has joined another one than the caller's.
func TestJoiningEndsTheCallsOfOtherClusters(t *testing.T) {
	var mine atomic.Pointer[Identity]
	mine.Store(&Identity{"", "b.2"})
	var served atomic.Int32
	_, addr := open(t, Options{Self: func() Identity { return *mine.Load() }, Serve: func(_ Hello, _ uint8, _ []byte, reply func([]byte)) {
		served.Add(1)
		reply(nil)
	}})
	a, _ := open(t, Options{})
	if _, err := a.Call(t.Context(), addr, "b.2", 1, nil); err != nil {
		t.Fatal(err)
	}
	mine.Store(&Identity{"other", "b.2"})
	if _, err := a.Call(t.Context(), addr, "b.2", 1, nil); !errors.Is(err, ErrLost) {
		t.Errorf("on the old connection: %v", err)
	}
	eventually(t, "a new connection is refused", func() bool {
		_, err := a.Call(t.Context(), addr, "b.2", 1, nil)
		r := new(RefusedError)
		return errors.As(err, &r) && r.Code == WrongCluster
	})
	if n := served.Load(); n != 1 {
		t.Errorf("%d calls were served", n)
	}
}

func TestStrangersAreClosedAtTheirFirstByte(t *testing.T) {
	var log bytes.Buffer
	b, addr := open(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	const times = 30
	for range times {
		for _, sent := range []string{
			"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT x:1 HTTP/1.1\r\n\r\n", "*1\r\n$4\r\nPING\r\n",
			"\x16\x03\x01\x00\xf4\x01\x00", "Rstint\x01\x01\xff\xff",
		} {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write([]byte(sent))
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if got, err := io.ReadAll(c); len(got) > 0 || isTimeout(err) {
				t.Errorf("%q was answered with %q, %v", sent, got, err)
			}
			_ = c.Close()
		}
	}
	eventually(t, "all are gone and counted", func() bool {
		s := b.Stats()
		return s.Strangers == 0 && s.Refused["stranger"] == 4*times && s.Refused["tls"] == times
	})
	_ = b.Close()
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines in the log, not one for each kind:\n%s", n, log.String())
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func TestWhoHoldsConnectionsOpenKeepsNobodyOut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *pipes) {
		b := netPort(t, n, "b", Options{Self: self("c", "b.2")})
		a := netPort(t, n, "a", Options{})
		start := time.Now()
		var idle []net.Conn
		for range maxStrangers + 20 {
			c, err := n.dial(t.Context(), "b")
			if err != nil {
				t.Fatal(err)
			}
			idle = append(idle, c)
		}
		if _, err := a.Call(t.Context(), "b", "b.2", 1, nil); err != nil {
			t.Errorf("a node must get in all the same: %v", err)
		}
		if s := b.Stats(); s.Refused["crowd"] != 21 || s.Strangers != maxStrangers-1 {
			t.Errorf("%d have made room, and %d are there", s.Refused["crowd"], s.Strangers)
		}
		if _, err := idle[20].Read(make([]byte, 1)); err == nil || time.Since(start) > 0 {
			t.Errorf("the oldest must make room at once, not after %v", time.Since(start))
		}
		for _, c := range idle {
			_ = c.Close()
		}
	})
}

func TestTLSLetsInOnlyWhoIsTrusted(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	server, client := ours.configs(t, ours)
	_, alien := theirs.configs(t, ours)    // trusts us, shows another's certificate
	_, doubting := ours.configs(t, theirs) // does not trust us
	bare := &tls.Config{RootCAs: ours.pool}

	b, addr := open(t, Options{Self: self("c", "b.2"), ServerTLS: server, ClientTLS: client})
	plain, plainAddr := open(t, Options{Self: self("c", "p.3")})
	for name, config := range map[string]*tls.Config{
		"a certificate of another authority": alien, "no certificate": bare, "the server is not trusted": doubting,
	} {
		a, _ := open(t, Options{ServerTLS: server, ClientTLS: config})
		if _, err := a.Call(t.Context(), addr, "b.2", 1, nil); !errors.Is(err, ErrNotSent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	eventually(t, "all three are counted", func() bool { return b.Stats().Refused["tls"] == 3 })
	if n := b.Stats().CallsServed; n != 0 {
		t.Errorf("%d calls were served", n)
	}

	a, _ := open(t, Options{ServerTLS: server, ClientTLS: client})
	if reply, err := a.Call(t.Context(), addr, "b.2", 1, []byte("hello")); err != nil || string(reply) != "hello" {
		t.Errorf("with the right certificate: %q, %v", reply, err)
	}
	if client.ServerName != "" {
		t.Error("the caller's settings were changed")
	}

	// One of the two has TLS, the other has not: the error says so.
	if _, err := plain.Call(t.Context(), addr, "b.2", 1, nil); !strings.Contains(refusal(t, err).Text, "TLS") {
		t.Errorf("without TLS to a node that has it: %v", err)
	}
	if _, err := a.Call(t.Context(), plainAddr, "p.3", 1, nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("with TLS to a node that has none: %v", err)
	}
	eventually(t, "TLS where there is none is counted as such", func() bool { return plain.Stats().Refused["tls"] > 0 })
}
