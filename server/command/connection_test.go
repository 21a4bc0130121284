package command

import (
	"reflect"
	"strings"
	"testing"
)

// helloTwo and helloThree are the replies of HELLO to connection 7.
const (
	helloTwo = "*14\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.4.0\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:7\r\n" +
		"$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
	helloThree = "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.4.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:7\r\n" +
		"$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
)

func TestHandshakeReplies(t *testing.T) {
	runSteps(t, newServer(), []step{
		{line: "HELLO", two: helloTwo, three: helloThree},
		{line: "PING", two: "+PONG\r\n"},
		{line: "PING hi", two: "$2\r\nhi\r\n"},
		{line: "PING a b", two: "-ERR wrong number of arguments for 'ping' command\r\n"},
		{line: "ECHO hi", two: "$2\r\nhi\r\n"},
		{line: "SELECT 15", two: "+OK\r\n"},
		{line: "SELECT 16", two: "-ERR DB index is out of range\r\n"},
		{line: "SELECT -1", two: "-ERR DB index is out of range\r\n"},
		{line: "SELECT x", two: "-ERR value is not an integer or out of range\r\n"},
		{line: "SELECT 9223372036854775808", two: "-ERR value is not an integer or out of range\r\n"},
		{line: "SELECT +1", two: "-ERR value is not an integer or out of range\r\n"},
		{line: "SELECT 01", two: "-ERR value is not an integer or out of range\r\n"},
		{line: "SELECT -0", two: "-ERR value is not an integer or out of range\r\n"},
		{line: "SELECT --1", two: "-ERR value is not an integer or out of range\r\n"},
		{line: "HELLO +3", two: "-ERR Protocol version is not an integer or out of range\r\n"},
		{line: "HELLO 03", two: "-ERR Protocol version is not an integer or out of range\r\n"},
		{line: "READONLY", two: "+OK\r\n"},
		{line: "READWRITE", two: "+OK\r\n"},
		{line: "HELLO x", two: "-ERR Protocol version is not an integer or out of range\r\n"},
		{line: "HELLO 1", two: "-NOPROTO unsupported protocol version\r\n"},
		{line: "HELLO 4", two: "-NOPROTO unsupported protocol version\r\n"},
		{line: "HELLO 258", two: "-NOPROTO unsupported protocol version\r\n"},
		{line: "HELLO 3 SETNAME", two: "-ERR Syntax error in HELLO option 'SETNAME'\r\n"},
		{line: "HELLO 3 AUTH a", two: "-ERR Syntax error in HELLO option 'AUTH'\r\n"},
		{line: "HELLO 3 BAD x", two: "-ERR Syntax error in HELLO option 'BAD'\r\n"},
		{line: "HELLO 3 SETNAME a\x7f", two: "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"},
		{line: "CLIENT GETNAME", two: "$-1\r\n", three: "_\r\n"},
		{line: "HELLO 2 SETNAME two", two: helloTwo},
		{line: "CLIENT GETNAME", two: "$3\r\ntwo\r\n"},
		{line: "HELLO 3", two: helloThree},
		{line: "CLIENT GETNAME", two: "$3\r\ntwo\r\n"},
		{line: "RESET", two: "+RESET\r\n"},
		{line: "HELLO", two: helloTwo},
		{line: "CLIENT GETNAME", two: "$-1\r\n"},
		{line: "QUIT", two: "+OK\r\n"},
	})
}

func TestRefusedHelloChangesNothing(t *testing.T) {
	s := newServer()
	conn := newConn(s)
	before := *conn
	for _, line := range []string{"HELLO 4", "HELLO 3 SETNAME a\x01", "HELLO 3 SETNAME ok BAD", "HELLO 3 SETNAME ok AUTH other x"} {
		call(t, s, conn, strings.Fields(line)...)
		if !reflect.DeepEqual(*conn, before) {
			t.Errorf("%s changed the connection: %+v", line, *conn)
		}
	}
}

func TestResetIsLikeANewConnection(t *testing.T) {
	s := newServer()
	conn, fresh := newConn(s), newConn(s)
	for _, line := range []string{"HELLO 3 SETNAME x", "SELECT 5", "CLIENT NO-EVICT ON", "CLIENT NO-TOUCH ON", "CLIENT TRACKING ON OPTIN NOLOOP"} {
		if reply := call(t, s, conn, strings.Fields(line)...); reply[0] == '-' {
			t.Fatalf("%s: %q", line, reply)
		}
	}
	if conn.DB != 5 || !conn.NoEvict || !conn.NoTouch || !conn.Tracking || !conn.NoLoop {
		t.Fatalf("not set: %+v", *conn)
	}
	call(t, s, conn, "RESET")
	if !reflect.DeepEqual(conn, fresh) {
		t.Errorf("after RESET %+v, want %+v", *conn, *fresh)
	}
	if call(t, s, conn, "QUIT"); !conn.Closing {
		t.Error("QUIT does not close")
	}
}

func TestClientReplies(t *testing.T) {
	long := strings.Repeat("n", maxConnName)
	runSteps(t, newServer(), []step{
		{line: "CLIENT ID", two: ":7\r\n"},
		{line: "CLIENT SETNAME me", two: "+OK\r\n"},
		{line: "client getname", two: "$2\r\nme\r\n"},
		{line: "CLIENT SETNAME a\x01b", two: "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"},
		{line: "CLIENT SETNAME " + long, two: "+OK\r\n"},
		{line: "CLIENT SETNAME " + long + "n", two: "-ERR Client names cannot be longer than 1024 bytes\r\n"},
		{line: "CLIENT SETNAME me", two: "+OK\r\n"},
		{line: "CLIENT SETINFO LIB-NAME lib", two: "+OK\r\n"},
		{line: "CLIENT SETINFO lib-ver 9.1", two: "+OK\r\n"},
		{line: "CLIENT SETINFO LIB-NAME a\x80b", two: "-ERR lib-name cannot contain spaces, newlines or special characters.\r\n"},
		{line: "CLIENT SETINFO other x", two: "-ERR Unrecognized option 'other'\r\n"},
		{line: "CLIENT NO-EVICT ON", two: "+OK\r\n"},
		{line: "CLIENT NO-EVICT maybe", two: "-ERR syntax error\r\n"},
		{line: "CLIENT NO-TOUCH ON", two: "+OK\r\n"},
		{line: "CLIENT GETREDIR", two: ":-1\r\n"},
		{line: "CLIENT TRACKINGINFO", two: "*6\r\n$5\r\nflags\r\n*1\r\n$3\r\noff\r\n$8\r\nredirect\r\n:-1\r\n$8\r\nprefixes\r\n*0\r\n",
			three: "%3\r\n$5\r\nflags\r\n~1\r\n$3\r\noff\r\n$8\r\nredirect\r\n:-1\r\n$8\r\nprefixes\r\n*0\r\n"},
		{line: "CLIENT TRACKING ON", two: "-" + errTracking + "\r\n"},
		{line: "CLIENT TRACKING ON OPTOUT", two: "-" + errTracking + "\r\n"},
		{line: "CLIENT TRACKING ON BCAST", two: "-" + errTracking + "\r\n"},
		{line: "CLIENT TRACKING ON OPTIN REDIRECT 3", two: "-" + errTracking + "\r\n"},
		{line: "CLIENT TRACKING ON BAD", two: "-ERR syntax error\r\n"},
		{line: "CLIENT TRACKING MAYBE", two: "-ERR syntax error\r\n"},
		{line: "CLIENT TRACKING ON OPTIN NOLOOP", two: "+OK\r\n"},
		{line: "CLIENT TRACKINGINFO", two: "*6\r\n$5\r\nflags\r\n*3\r\n$2\r\non\r\n$5\r\noptin\r\n$6\r\nnoloop\r\n$8\r\nredirect\r\n:0\r\n$8\r\nprefixes\r\n*0\r\n",
			three: "%3\r\n$5\r\nflags\r\n~3\r\n$2\r\non\r\n$5\r\noptin\r\n$6\r\nnoloop\r\n$8\r\nredirect\r\n:0\r\n$8\r\nprefixes\r\n*0\r\n"},
		{line: "CLIENT CACHING YES", two: "-" + errCaching + "\r\n"},
		{line: "CLIENT CACHING NO", two: "+OK\r\n"},
		{line: "CLIENT CACHING x", two: "-ERR syntax error\r\n"},
		{line: "CLIENT TRACKING OFF", two: "+OK\r\n"},
		{line: "CLIENT GETREDIR", two: ":-1\r\n"},
		{line: "CLIENT NO-EVICT OFF", two: "+OK\r\n"},
		{line: "CLIENT NO-TOUCH OFF", two: "+OK\r\n"},
		{line: "CLIENT MAINT_NOTIFICATIONS ON", two: "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.\r\n"},
	})
}

func TestNamesAreOfPrintableBytes(t *testing.T) {
	s := newServer()
	for _, c := range []struct {
		name string
		ok   bool
	}{{"", true}, {"!~", true}, {" ", false}, {"\x7f", false}, {"a\r\nb", false}, {"\xc3\xa4", false}} {
		for _, args := range [][]string{{"CLIENT", "SETNAME", c.name}, {"CLIENT", "SETINFO", "LIB-VER", c.name}, {"HELLO", "2", "SETNAME", c.name}} {
			if got := call(t, s, newConn(s), args...); (got[0] != '-') != c.ok {
				t.Errorf("%q: %q", args, got)
			}
		}
	}
}

func TestTrackingOffForgetsItsOptions(t *testing.T) {
	s := newServer()
	conn := newConn(s)
	call(t, s, conn, "CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP")
	call(t, s, conn, "CLIENT", "TRACKING", "OFF", "NOLOOP")
	if conn.Tracking || conn.NoLoop {
		t.Errorf("tracking %v, no loop %v", conn.Tracking, conn.NoLoop)
	}
}

func TestClientInfoLine(t *testing.T) {
	s := newServer()
	conn := newConn(s)
	conn.Created = now.Add(-90_500_000_000)
	conn.Unix = true
	s.Join(conn)
	for _, line := range []string{"CLIENT SETNAME me", "CLIENT SETINFO LIB-NAME lib", "CLIENT SETINFO LIB-VER 9.1", "CLIENT NO-EVICT ON", "CLIENT NO-TOUCH ON", "CLIENT TRACKING ON OPTIN", "SELECT 4"} {
		call(t, s, conn, strings.Fields(line)...)
	}
	conn.LastCmd, _ = Find(split("CLIENT INFO"))
	const want = "id=7 addr=1.2.3.4:5 laddr=6.7.8.9:6390 name=me age=90 idle=0 flags=teTU db=4 sub=0 psub=0 ssub=0 multi=-1 cmd=client|info user=default redir=0 resp=2 lib-name=lib lib-ver=9.1\n"
	if got := callFlat(t, s, conn, "CLIENT", "INFO"); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	call(t, s, conn, "HELLO", "3")
	if got := call(t, s, conn, "CLIENT", "INFO"); !strings.HasPrefix(got, "=") || !strings.Contains(got, "\r\ntxt:id=7 ") || !strings.Contains(got, " resp=3 ") {
		t.Errorf("RESP3: %q", got)
	}
	if got := callFlat(t, s, newConn(s), "CLIENT", "INFO"); !strings.Contains(got, " flags=N ") || !strings.Contains(got, " cmd=NULL ") {
		t.Errorf("a new connection: %q", got)
	}
}

func TestPassword(t *testing.T) {
	var p Password
	if p.Required() || !p.Check([]byte("anything")) || !p.Check(nil) {
		t.Error("no password asks for one")
	}
	p.Set([]byte("secret"))
	if !p.Required() || !p.Check([]byte("secret")) {
		t.Error("the right password is refused")
	}
	for _, wrong := range []string{"", "s", "secre", "secret ", "Secret", "secret\x00"} {
		if p.Check([]byte(wrong)) {
			t.Errorf("%q is accepted", wrong)
		}
	}
	p.Set(nil)
	if p.Required() {
		t.Error("the empty password is one")
	}
	secret := []byte("secret")
	p.Set(secret)
	if n := testing.AllocsPerRun(100, func() { p.Check(secret) }); n != 0 {
		t.Errorf("%v allocations in a check", n)
	}
}
