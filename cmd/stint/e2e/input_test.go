//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestBadArgumentsGetAClearError sends what a confused or hostile client may
// send; each gets an error of its own and the connection goes on.
func TestBadArgumentsGetAClearError(t *testing.T) {
	s := start(t)
	c, other := s.Dial(), s.Dial()
	throttle := func(args ...string) []string { return append([]string{"THROTTLE"}, args...) }
	window := func(args ...string) []string { return append([]string{"WINDOW"}, args...) }
	for _, x := range []struct {
		cmd  []string
		want string // beginning of the error
	}{
		{throttle(), "ERR wrong number of arguments for 'throttle' command"},
		{throttle("k", "10"), "ERR wrong number of arguments for 'throttle' command"},
		{[]string{"NOSUCH", "x"}, "ERR unknown command"},
		{[]string{""}, "ERR unknown command"},
		{throttle("k", "10", "1", "1", "NOW"), "ERR invalid option 'NOW'"},
		{throttle("k", "10", "1", "1", "2"), "ERR "},
		{throttle("k", "10", "1", "PEEK", "FORCE"), "ERR options "},
		{throttle("k", "10", "1", "PEEK", "peek"), "ERR option "},
		{throttle("k", "-1", "1"), "ERR invalid capacity '-1'"},
		{throttle("k", "+1", "1"), "ERR invalid capacity '+1'"},
		{throttle("k", " 1", "1"), "ERR invalid capacity ' 1'"},
		{throttle("k", "1 ", "1"), "ERR invalid capacity '1 '"},
		{throttle("k", "0x10", "1"), "ERR invalid capacity '0x10'"},
		{throttle("k", "1e3", "1"), "ERR invalid capacity '1e3'"},
		{throttle("k", "1.5", "1"), "ERR invalid capacity '1.5'"},
		{throttle("k", "0", "1"), "ERR invalid capacity '0'"},
		{throttle("k", "", "1"), "ERR invalid capacity ''"},
		{throttle("k", "9007199254740992", "1"), "ERR invalid capacity '9007199254740992'"},
		{throttle("k", strings.Repeat("9", 30), "1"), "ERR invalid capacity '9"},
		{throttle("k", "10", "1", "-1"), "ERR invalid cost '-1'"},
		{throttle("k", "10", "1", "1.0"), "ERR invalid cost '1.0'"},
		{throttle("k", "10", "1", "9007199254740992"), "ERR invalid cost '9007199254740992'"},
		{throttle("k", "10", "0"), "ERR invalid rate '0'"},
		{throttle("k", "10", "0.0"), "ERR invalid rate '0.0'"},
		{throttle("k", "10", "NaN"), "ERR invalid rate 'NaN'"},
		{throttle("k", "10", "inf"), "ERR invalid rate 'inf'"},
		{throttle("k", "10", "1/"), "ERR invalid rate '1/'"},
		{throttle("k", "10", "1/0s"), "ERR invalid rate '1/0s'"},
		{throttle("k", "10", "/m"), "ERR invalid rate '/m'"},
		{throttle("k", "10", "-1/m"), "ERR invalid rate '-1/m'"},
		{throttle("k", "10", "1/y"), "ERR invalid rate '1/y'"},
		{throttle("k", "10", "1/m/m"), "ERR invalid rate '1/m/m'"},
		{throttle("k", "10", "1./m"), "ERR invalid rate '1./m'"},
		{throttle("k", "10", ".5/m"), "ERR invalid rate '.5/m'"},
		{throttle("k", "10", "0.1234567891"), "ERR invalid rate '0.1234567891'"},
		{throttle("k", "10", "9007199254740992"), "ERR invalid rate '9007199254740992'"},
		{throttle("k", "10", "1/99999999999999999999w"), "ERR invalid rate '1/9"},
		{throttle("k", "9007199254740991", "1/w"), "ERR capacity '9007199254740991' at rate '1/w'"},
		{throttle("", "10", "1"), "ERR invalid key ''"},
		{throttle(strings.Repeat("k", 5000), "10", "1"), "ERR invalid key 'kkk"},
		{throttle("k", "1\r\n+OK\r\n", "1"), `ERR invalid capacity '1\r\n+OK\r\n'`},
		{[]string{"LEAK", "k", "10", "1", "FORCE"}, "ERR invalid option 'FORCE'"},
		{window("k", "0", "1m"), "ERR invalid limit '0'"},
		{window("k", "10", "0"), "ERR invalid period '0'"},
		{window("k", "10", "1.5s"), "ERR invalid period '1.5s'"},
		{window("k", "10", "-1s"), "ERR invalid period '-1s'"},
		{window("k", "10", "3000w000"), "ERR invalid period"},
		{window("k", "10", "9999999999w"), "ERR invalid period"},
		{window("k", "1000001", "1m", "LOG"), "ERR invalid limit '1000001'"},
		{window("k", "10", "1m", "FIXED", "SLIDING"), "ERR options "},
		{window("k", "10", "1m", "ATMOST"), "ERR invalid option 'ATMOST'"},
		{[]string{"CL.THROTTLE", "k", "-1", "1", "1"}, "ERR "},
		{[]string{"CL.THROTTLE", "k", "10", "0", "1"}, "ERR "},
		{[]string{"CL.THROTTLE", "k", "10", "1", "0"}, "ERR "},
		{[]string{"CL.THROTTLE", "k", "10", "1", "9223372037"}, "ERR "},
		{[]string{"CL.THROTTLE", "k", "9007199254740991", "1", "1"}, "ERR "},
		{[]string{"REFUND", "k", "-1"}, "ERR invalid units '-1'"},
		{[]string{"SELECT", "16"}, "ERR "},
		{[]string{"SELECT", "-1"}, "ERR "},
		{[]string{"SCAN", "x"}, "ERR invalid cursor"},
		{[]string{"SCAN", "0", "COUNT", "0"}, "ERR "},
		{[]string{"SCAN", "0", "MATCH"}, "ERR "},
		{[]string{"HELLO", "4"}, "NOPROTO"},
		{[]string{"CLIENT", "NOSUCH"}, "ERR "},
		{[]string{"CLIENT", "CACHING", "YES"}, "ERR "},
	} {
		got := c.Do(x.cmd...)
		e, ok := got.(Error)
		if !ok || !strings.HasPrefix(string(e), x.want) {
			t.Errorf("%.80q: got %#v, want an error that begins with %q", x.cmd, got, x.want)
		}
		if len(e) > 400 {
			t.Errorf("%.80q: an error of %d bytes", x.cmd, len(e))
		}
		expect(t, c.Do("ECHO", "still in step"), "still in step")
		expect(t, other.Do("PING"), "PONG")
	}
	// None of it has left anything behind.
	expect(t, c.Do("DBSIZE"), int64(0))
}

func TestBinaryAndLongKeysWork(t *testing.T) {
	c := start(t).Dial()
	for _, key := range []string{"\x00", "a\r\nb", "\xff\xfe", strings.Repeat("k", 4096), " ", "é"} {
		expect(t, c.Do("THROTTLE", key, "10", "1/h"), ints(1, 10, 9, 0, 3600000))
		expect(t, c.Do("EXISTS", key), int64(1))
	}
	expect(t, c.Do("DBSIZE"), int64(6))
}

// TestBadProtocolIsAnsweredAndClosed sends what is no RESP. Each connection is
// told so and closed; the replies of commands before it arrive first.
func TestBadProtocolIsAnsweredAndClosed(t *testing.T) {
	s := start(t)
	other := s.Dial()
	for name, text := range map[string]string{
		"bulk length that overflows":    "*1\r\n$9223372036854775800\r\n",
		"bulk length of 20 digits":      "*1\r\n$99999999999999999999\r\n",
		"negative bulk":                 "*1\r\n$-1\r\n",
		"more negative bulk":            "*1\r\n$-2\r\n",
		"bulk over the limit":           "*1\r\n$1048577\r\n",
		"300 million arguments":         "*300000000\r\n",
		"a million nested arrays":       strings.Repeat("*1\r\n", 1_000_000),
		"no dollar":                     "*1\r\n:5\r\n",
		"no number":                     "*x\r\n",
		"bulk without line end":         "*1\r\n$4\r\nPINGxx",
		"a bulk alone":                  "$4\r\nPING\r\n",
		"an endless inline line":        strings.Repeat("x", 5000),
		"an inline line of many spaces": strings.Repeat(" ", 5000) + "PING\r\n",
		"unbalanced quotes":             "PING \"x\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := s.Dial()
			c.t = t
			c.Raw(command("ECHO", "before"))
			expect(t, c.Reply(), "before")
			// The server may close before it has taken all of a long text.
			_, _ = c.Write([]byte(text))
			expectError(t, c.Reply(), "ERR Protocol error: ")
			expect(t, other.Do("PING"), "PONG")
		})
	}
	expect(t, other.Do("THROTTLE", "k", "10", "1/h"), ints(1, 10, 9, 0, 3600000))
}

// TestGarbageHarmsNobody sends bytes of every value in many orders.
func TestGarbageHarmsNobody(t *testing.T) {
	s := start(t)
	other := s.Dial()
	x := uint32(1)
	for range 200 {
		garbage := make([]byte, 2000)
		for i := range garbage {
			x ^= x << 13 // xorshift: the same bytes in every run
			x ^= x >> 17
			x ^= x << 5
			garbage[i] = byte(x)
		}
		c := s.Dial()
		_, _ = c.Write(garbage)
		c.Close()
		expect(t, other.Do("PING"), "PONG")
	}
	for i, text := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00", "\r\n\r\n\r\n", "*0\r\n*-1\r\n"} {
		c := s.Dial()
		_, _ = c.Write([]byte(text))
		c.Close()
		expect(t, other.Do("ECHO", fmt.Sprint(i)), fmt.Sprint(i))
	}
	if strings.Contains(s.Log(), "panic") {
		t.Errorf("a connection panicked:\n%s", s.Log())
	}
}
