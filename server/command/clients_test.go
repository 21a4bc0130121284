package command

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// crowd is a server with three connections, of which the second asks. Kill
// knows them and records.
func crowd(t *testing.T) (s *Server, me *Conn, killed *[]uint64) {
	t.Helper()
	s, killed = newServer(), new([]uint64)
	conns := map[uint64]*Conn{}
	for _, c := range []struct {
		id   uint64
		addr string
		age  time.Duration
	}{{12, "1.1.1.1:10", 50 * time.Second}, {3, "1.1.1.1:9", 100 * time.Second}, {40, "/run/s.sock:0", 5 * time.Second}} {
		conn := NewConn(s, c.id, c.addr, "6.7.8.9:6390")
		conn.Created, conn.Unix = now.Add(-c.age), c.id == 40
		s.Join(&conn)
		conns[c.id] = &conn
	}
	s.Kill = func(id uint64) bool {
		*killed = append(*killed, id)
		return conns[id] != nil
	}
	return s, conns[12], killed
}

func TestClientListShowsWhatOthersHavePublished(t *testing.T) {
	s, me, _ := crowd(t)
	s.ConnTraffic = func(id uint64) (ConnTraffic, bool) {
		// The connection 40 has gone, but its session not yet.
		return ConnTraffic{BytesIn: id * 100, BytesOut: id * 200, Commands: id, Held: int64(id) * 1000}, id != 40
	}
	other := NewConn(s, 5, "9.9.9.9:1", "6.7.8.9:6390")
	other.Created = now.Add(-7 * time.Second)
	s.Join(&other)
	for _, line := range []string{"HELLO 3 SETNAME web", "SELECT 3", "CLIENT SETINFO LIB-NAME x", "CLIENT NO-TOUCH ON", "RESET", "SELECT 2", "CLIENT SETNAME late"} {
		observeConn(t, s, &other, 0, strings.Fields(line)...)
	}
	other.Name = "unpublished"
	exists, _ := Find(split("EXISTS k"))
	other.Begin(exists.Index(), Ticks()-(4*time.Second+time.Second/2).Nanoseconds())
	me.Proto, me.DB = 3, 9
	me.LastCmd, _ = Find(split("CLIENT LIST"))
	want := "id=3 addr=1.1.1.1:9 laddr=6.7.8.9:6390 name= age=100 idle=100 flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 omem=3000 cmd=NULL user=default redir=-1 resp=2 lib-name= lib-ver= tot-net-in=300 tot-net-out=600 tot-cmds=3\n" +
		"id=5 addr=9.9.9.9:1 laddr=6.7.8.9:6390 name=late age=7 idle=4 flags=N db=2 sub=0 psub=0 ssub=0 multi=-1 omem=5000 cmd=exists user=default redir=-1 resp=2 lib-name=x lib-ver= tot-net-in=500 tot-net-out=1000 tot-cmds=5\n" +
		"id=12 addr=1.1.1.1:10 laddr=6.7.8.9:6390 name= age=50 idle=0 flags=N db=9 sub=0 psub=0 ssub=0 multi=-1 omem=12000 cmd=client|list user=default redir=-1 resp=3 lib-name= lib-ver= tot-net-in=1200 tot-net-out=2400 tot-cmds=12\n"
	if got := callFlat(t, s, me, "CLIENT", "LIST"); got != "txt:"+want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	s.Leave(&other)
	s.Leave(&other)
	if got := callFlat(t, s, me, "CLIENT", "LIST"); strings.Contains(got, "id=5 ") || strings.Count(got, "\n") != 2 {
		t.Errorf("after one has left:\n%s", got)
	}
	// A connection that takes a number again does not lose its place to the
	// one that leaves late.
	again := NewConn(s, 5, "", "")
	s.Join(&again)
	s.Leave(&other)
	if len(s.clients.list()) != 4 {
		t.Error("one connection has taken another out of the list")
	}
}

func TestClientListFilters(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "3 12 40"}, {"TYPE normal", "3 12 40"}, {"type NORMAL", "3 12 40"}, {"TYPE master", ""}, {"TYPE replica", ""}, {"TYPE slave", ""}, {"TYPE pubsub", ""},
		{"ID 12", "12"}, {"id 40 7 3 3", "3 40"}, {"ID 99", ""}, {"ID 0", ""},
		{"TYPE", "ERR syntax error"}, {"ID", "ERR syntax error"}, {"x", "ERR syntax error"}, {"TYPE normal ID 3", "ERR syntax error"}, {"TYPE normal x", "ERR syntax error"},
		{"TYPE x", "ERR Unknown client type 'x'"}, {"ID x", "ERR Invalid client ID"}, {"ID 3 -1", "ERR Invalid client ID"}, {"ID 03", "ERR Invalid client ID"},
	} {
		s, me, _ := crowd(t)
		got := callFlat(t, s, me, append([]string{"CLIENT", "LIST"}, strings.Fields(c.args)...)...)
		if !strings.HasPrefix(got, "-") {
			var ids []string
			for line := range strings.Lines(got) {
				ids = append(ids, strings.TrimPrefix(strings.Fields(line)[0], "id="))
			}
			got = strings.Join(ids, " ")
		}
		if strings.TrimPrefix(got, "-") != c.want {
			t.Errorf("CLIENT LIST %s: %q, want %q", c.args, got, c.want)
		}
	}
}

func TestClientKill(t *testing.T) {
	for _, c := range []struct {
		args  string
		want  string // the reply
		ids   string // asked to be killed
		close bool   // the own connection
	}{
		{"1.1.1.1:9", "+OK", "[3]", false},
		{"1.1.1.1:10", "+OK", "[]", true},
		{"/run/s.sock:0", "+OK", "[40]", false},
		{"1.1.1.1:99", "-ERR No such client", "[]", false},
		{"ID", "-ERR No such client", "[]", false},
		{"ID 3", ":1", "[3]", false},
		{"id 99", ":0", "[]", false},
		{"ID 12", ":0", "[]", false},
		{"ID 12 SKIPME no", ":1", "[]", true},
		{"SKIPME yes", ":2", "[3 40]", false},
		{"SKIPME NO", ":3", "[3 40]", true},
		{"TYPE normal", ":2", "[3 40]", false},
		{"TYPE pubsub", ":0", "[]", false},
		{"TYPE pubsub TYPE normal", ":0", "[]", false},
		{"USER default", ":2", "[3 40]", false},
		{"ADDR 1.1.1.1:9", ":1", "[3]", false},
		{"ADDR 1.1.1.1:9 ID 40", ":0", "[]", false},
		{"LADDR 6.7.8.9:6390", ":2", "[3 40]", false},
		{"LADDR 6.7.8.9:1", ":0", "[]", false},
		{"MAXAGE 100", ":1", "[3]", false},
		{"MAXAGE 101", ":0", "[]", false},
		{"MAXAGE 5 SKIPME no", ":3", "[3 40]", true},
		{"MAXAGE 6 SKIPME no", ":2", "[3]", true},
		{"MAXAGE 9223372036854775807", ":0", "[]", false},
		{"ID 3 ID 40", ":1", "[40]", false},
		{"ID 0", "-ERR client-id should be greater than 0", "[]", false},
		{"ID x", "-ERR client-id should be greater than 0", "[]", false},
		{"ID -1", "-ERR client-id should be greater than 0", "[]", false},
		{"ID 99999999999999999999", "-ERR client-id should be greater than 0", "[]", false},
		{"ID 3 x", "-ERR syntax error", "[]", false},
		{"ID 3 ADDR", "-ERR syntax error", "[]", false},
		{"x y", "-ERR syntax error", "[]", false},
		{"SKIPME maybe", "-ERR syntax error", "[]", false},
		{"ID 3 SKIPME maybe", "-ERR syntax error", "[]", false},
		{"TYPE x", "-ERR Unknown client type 'x'", "[]", false},
		{"USER root", "-ERR No such user 'root'", "[]", false},
		{"MAXAGE x", "-ERR maxage is not an integer or out of range", "[]", false},
		{"MAXAGE 0", "-ERR maxage should be greater than 0", "[]", false},
		{"MAXAGE -1", "-ERR maxage is not an integer or out of range", "[]", false},
		{"", "-ERR wrong number of arguments for 'client|kill' command", "[]", false},
	} {
		s, me, killed := crowd(t)
		told := ""
		s.Killed = func(n int64, which, by string) { told += fmt.Sprintf("%d of %s by %s", n, which, by) }
		got := callFlat(t, s, me, append([]string{"CLIENT", "KILL"}, strings.Fields(c.args)...)...)
		want := ""
		if n := strings.TrimLeft(strings.Replace(c.want, "+OK", ":1", 1), ":"); n != "0" && n[0] != '-' {
			want = fmt.Sprintf("%s of '%s' by 1.1.1.1:10", n, c.args)
		}
		if told != want {
			t.Errorf("CLIENT KILL %s: told %q, want %q", c.args, told, want)
		}
		if got != c.want || fmt.Sprint(*killed) != c.ids || me.Closing != c.close {
			t.Errorf("CLIENT KILL %s: %q, killed %v, closing %v; want %q, %s, %v", c.args, got, *killed, me.Closing, c.want, c.ids, c.close)
		}
	}
}

// TestClientKillCountsWhatItClosed fails when a connection that has ended in
// the meantime, or an empty address, counts.
func TestClientKillCountsWhatItClosed(t *testing.T) {
	s, me, _ := crowd(t)
	s.Kill = func(id uint64) bool { return id == 40 }
	for _, want := range []string{":1", ":0"} {
		if got := callFlat(t, s, me, "CLIENT", "KILL", "TYPE", "normal"); got != want {
			t.Errorf("%q, want %s", got, want)
		}
	}
	for _, args := range [][]string{{""}, {"ADDR", ""}, {"LADDR", ""}} {
		if got := callFlat(t, s, me, append([]string{"CLIENT", "KILL"}, args...)...); got != ":0" && got != "-ERR No such client" {
			t.Errorf("CLIENT KILL %q: %q", args, got)
		}
	}
	s.Kill = nil
	if got := callFlat(t, s, me, "CLIENT", "KILL", "TYPE", "normal"); got != ":0" {
		t.Errorf("without transports: %q, want :0", got)
	}
}

// FuzzClientFilters holds the filters to: no panic, one reply that can be read,
// and nobody is killed by a command that is refused.
func FuzzClientFilters(f *testing.F) {
	for _, line := range []string{
		"ID 3", "ADDR 1.1.1.1:9 SKIPME no", "LADDR x TYPE normal USER default MAXAGE 5", "TYPE pubsub", "1.1.1.1:9", "ID 3 12 40", "ID", "SKIPME yes MAXAGE 9223372036854775807", "ID \r\n",
	} {
		f.Add("KILL", line)
		f.Add("LIST", line)
	}
	f.Fuzz(func(t *testing.T, sub, line string) {
		if !strings.EqualFold(sub, "KILL") && !strings.EqualFold(sub, "LIST") {
			return
		}
		s, me, killed := crowd(t)
		args := append([]string{"CLIENT", sub}, strings.Split(line, " ")...)
		got := callFlat(t, s, me, args...)
		if strings.HasPrefix(got, "-") && (len(*killed) > 0 || me.Closing) {
			t.Errorf("%q: %q, and killed %v, closing %v", args, got, *killed, me.Closing)
		}
		if strings.EqualFold(sub, "LIST") && len(*killed) > 0 {
			t.Errorf("%q killed %v", args, *killed)
		}
	})
}
