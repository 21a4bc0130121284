//go:build unix

package cluster

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// echo listens and sends back what comes after the handshake, with the handshake.
func echo(t *testing.T) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

const greeting = "Cstint\x01\x01\x0d\x00\x02c1\x04n1.a\x04n2.b"

// visit connects through a door as node n1 and reads its greeting back.
func visit(t *testing.T, door string) net.Conn {
	c, err := net.Dial("tcp", door)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	say(t, c, greeting)
	hear(t, c, greeting)
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn, want string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

// silent expects nothing to come for a while.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !isTimeout(err) {
		t.Fatalf("want silence, got %d bytes, %v", n, err)
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

func TestHeldBytesArriveWhenTheyAreReleased(t *testing.T) {
	m := newMesh(t)
	m.door(t, "n1", echo(t))
	c := visit(t, m.door(t, "n2", echo(t)))
	m.set("n2", "n1", fate{held: true})
	say(t, c, "request")
	silent(t, c)
	m.heal()
	hear(t, c, "request")
	m.set("n1", "n2", fate{held: true})
	say(t, c, "again")
	silent(t, c)
	m.heal()
	hear(t, c, "again")
}

func TestAnswersCanPassAlone(t *testing.T) {
	m := newMesh(t)
	m.door(t, "n1", echo(t))
	c := visit(t, m.door(t, "n2", echo(t)))
	m.set("n2", "n1", fate{held: true, requests: true})
	say(t, c, "request")
	hear(t, c, "request")
	m.set("n1", "n2", fate{held: true, requests: true})
	say(t, c, "request")
	silent(t, c)
}

func TestAConnectionThatHasLostBytesEndsWhenTheWayIsFree(t *testing.T) {
	m := newMesh(t)
	m.door(t, "n1", echo(t))
	door := m.door(t, "n2", echo(t))
	c := visit(t, door)
	m.cut("n1", "n2")
	say(t, c, "request")
	silent(t, c)
	m.set("n1", "n2", fate{})
	silent(t, c)
	m.set("n2", "n1", fate{})
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || isTimeout(err) {
		t.Fatalf("want a closed connection, got %d bytes, %v", n, err)
	}
	hear(t, visit(t, door), "")
}

func TestOtherWaysAreFreeWhileOneIsCut(t *testing.T) {
	m := newMesh(t)
	m.door(t, "n1", echo(t))
	m.isolate("n2", "n1", "n2", "n3")
	c, err := net.Dial("tcp", m.door(t, "n3", echo(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	say(t, c, greeting)
	hear(t, c, greeting)
}

func TestADelayKeepsTheOrderAndTakesAsLongAsItSays(t *testing.T) {
	m := newMesh(t)
	m.door(t, "n1", echo(t))
	c := visit(t, m.door(t, "n2", echo(t)))
	m.set("n1", "n2", fate{delay: 60 * time.Millisecond})
	begun := time.Now()
	say(t, c, "one ")
	say(t, c, "two")
	hear(t, c, "one two")
	if took := time.Since(begun); took < 60*time.Millisecond {
		t.Fatalf("it took %v", took)
	}
}

func TestWhatIsNoHandshakeIsNotCarried(t *testing.T) {
	for _, text := range []string{"PING\r\n\r\n", "", "Rstint\x01\x01\x02\x00\x05ab", "Rstint\x01\x01\x00\x00", "HTTP/1.1 200 OK"} {
		if _, _, err := readHello(strings.NewReader(text)); err == nil {
			t.Errorf("%q was taken for a handshake", text)
		}
	}
	rest := strings.NewReader(greeting + "rest")
	name, hello, err := readHello(rest)
	if err != nil || name != "n1" || string(hello) != greeting || rest.Len() != 4 {
		t.Errorf("got %q %q %v, %d bytes left", name, hello, err, rest.Len())
	}
}
