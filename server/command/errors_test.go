package command

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-dev/stint/engine"
)

// The first word of an error is what programs match, and the rest is what
// people read: both are fixed here.
func TestErrorLines(t *testing.T) {
	arg := []byte("5/x")
	for _, c := range []struct{ got, want string }{
		{ErrRate(arg), "ERR invalid rate '5/x': want N or N/P with P like 30s, m, 1h"},
		{ErrCapacity(arg), "ERR invalid capacity '5/x': want a whole number from 1 to 9007199254740991"},
		{ErrLimit(arg), "ERR invalid limit '5/x': want a whole number from 1 to 9007199254740991"},
		{ErrLogLimit(arg), "ERR invalid limit '5/x': want a whole number from 1 to 1000000 for LOG"},
		{ErrCost(arg), "ERR invalid cost '5/x': want a whole number from 0 to 9007199254740991"},
		{ErrUnits(arg), "ERR invalid units '5/x': want a whole number from 0 to 9007199254740991"},
		{ErrPeriod(arg), "ERR invalid period '5/x': want seconds or a number with ms, s, m, h, d or w, from 1ms to 2^61 ns"},
		{ErrKey(nil), "ERR invalid key '': want 1 to 4096 bytes"},
		{ErrOption(arg, "PEEK or FORCE"), "ERR invalid option '5/x': want PEEK or FORCE"},
		{ErrOptionTwice("PEEK"), "ERR option PEEK is given twice"},
		{ErrOptionsExclude("PEEK", "FORCE"), "ERR options PEEK and FORCE exclude each other"},
		{ErrFill([]byte("9"), []byte("1/w")), "ERR capacity '9' at rate '1/w' takes too long to fill: want at most 2^62 ns (146 years)"},
		{ErrArity("client|id"), "ERR wrong number of arguments for 'client|id' command"},
		{ErrEngine(engine.ErrWrongType), ErrWrongType},
		{ErrEngine(fmt.Errorf("x: %w", engine.ErrOOM)), ErrOOM},
		{ErrEngine(errors.New("other")), "ERR other"},
		{ErrNoAuth, "NOAUTH Authentication required."},
		{ErrWrongPass, "WRONGPASS invalid username-password pair or user is disabled."},
		{ErrNoProto, "NOPROTO unsupported protocol version"},
		{ErrSyntax, "ERR syntax error"},
		{ErrNoCluster, "ERR This instance has cluster support disabled"},
	} {
		if c.got != c.want {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
}

// Clients resend by themselves on certain words; none of them may begin an
// error that a command replies.
func TestErrorWordsAreThoseOfTheContract(t *testing.T) {
	word := regexp.MustCompile(`^(ERR|WRONGTYPE|NOAUTH|WRONGPASS|NOPROTO|OOM) [^\r\n]+$`)
	for _, line := range []string{ErrSyntax, ErrInternal, ErrWrongType, ErrOOM, ErrLogFull, ErrEmptyKey, ErrNoAuth, ErrWrongPass, ErrNoProto, ErrNoPassword,
		ErrNoCluster, ErrNoDebug, ErrCursor, errProtocolVersion, errHelloNoAuth, errNotInteger, errDBIndex, errTracking, errCaching, errKeysArity, errKeysInvalid, errKeysNone} {
		if !word.MatchString(line) || strings.Contains(strings.ToLower(line), "max number of clients") {
			t.Errorf("%q", line)
		}
	}
}

func TestErrorsNeverBreakTheLine(t *testing.T) {
	evil := []byte("\r\n+OK\r\n" + strings.Repeat("x", 1000))
	for _, line := range []string{ErrRate(evil), ErrKey(evil), ErrOption(evil, "x"), ErrFill(evil, evil), ErrUnknownSub("client", evil), ErrUnknown([][]byte{evil, evil})} {
		if strings.ContainsAny(line, "\r\n") || len(line) > 400 {
			t.Errorf("%d bytes: %q", len(line), line)
		}
	}
}

// TestHabitsOfRedisGetAHint fails when someone who types what Redis has is
// told only that it is unknown.
func TestHabitsOfRedisGetAHint(t *testing.T) {
	for name, want := range map[string]string{
		"KEYS": "SCAN", "expire": "TTL", "Shutdown": "SIGTERM", "EVAL": "THROTTLE", "INCR": "THROTTLE", "MONITOR": "INFO", "ACL": "--requirepass-file",
	} {
		got := ErrUnknown([][]byte{[]byte(name), []byte("x")})
		if !strings.HasPrefix(got, "ERR unknown command '"+name+"', with args beginning with: 'x' (") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want a hint at %s", name, got, want)
		}
		if cmd, _ := Find([][]byte{[]byte(name), []byte("x")}); cmd != nil {
			t.Errorf("%s exists", name)
		}
	}
	if got := ErrUnknown([][]byte{[]byte("NOPE")}); got != "ERR unknown command 'NOPE', with args beginning with: " {
		t.Errorf("NOPE: %q", got)
	}
}
