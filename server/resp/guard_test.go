package resp

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tidwall/redcon"
)

// seen is one answer of a Guard about a command, in a form to compare.
type seen struct {
	n    int
	v    Verdict
	args int
	err  string
}

// walk shows b to a Guard in pieces of the given size and collects its answers
// up to the first that needs more bytes than there are, or is Bad.
func walk(b []byte, l *Limits, authenticated bool, piece int) []seen {
	var g Guard
	var all []seen
	start, shown := 0, 0
	for {
		n, v, err := g.Next(b[start:shown], l, authenticated)
		switch v {
		case More:
			if shown == len(b) {
				return append(all, seen{v: More})
			}
			shown = min(len(b), shown+piece)
			continue
		case Bad:
			return append(all, seen{v: Bad, err: err.Error()})
		}
		all = append(all, seen{n: n, v: v, args: g.Args()})
		start += n
	}
}

func small() *Limits {
	return &Limits{MaxArguments: 12, MaxArgument: 99, MaxCommand: 150, MaxInline: 20,
		MaxArgumentsBefore: 3, MaxArgumentBefore: 10}
}

func TestGuardJudgesEachKindOfInput(t *testing.T) {
	const auth, anon = true, false
	l := small()
	cases := []struct {
		name string
		in   string
		auth bool
		want string // one word a verdict, with the length; the error's text at the end
	}{
		{"nothing", "", auth, "more"},
		{"one command", "*1\r\n$4\r\nPING\r\n", auth, "14 more"},
		{"two commands", "*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", auth, "14 20 more"},
		{"line ends inside an argument", "*1\r\n$4\r\n\r\n\r\n\r\n", auth, "14 more"},
		{"most arguments", "*12\r\n" + strings.Repeat("$1\r\na\r\n", 12), auth, "89 more"},
		{"too many arguments", "*13\r\n", auth, "invalid multibulk length"},
		{"too many arguments, seen before the line ends", "*20", auth, "invalid multibulk length"},
		{"longest argument", "*1\r\n$99\r\n" + strings.Repeat("a", 99) + "\r\n", auth, "110 more"},
		{"argument too long", "*1\r\n$100\r\n", auth, "invalid bulk length"},
		{"longest command", "*2\r\n$99\r\n" + strings.Repeat("a", 99) + "\r\n$33\r\n" + strings.Repeat("a", 33) + "\r\n", auth, "150 more"},
		{"command too long", "*2\r\n$99\r\n" + strings.Repeat("a", 99) + "\r\n$34\r\n", auth, "a command of more than 150 bytes"},
		{"arguments without a password", "*3\r\n" + strings.Repeat("$1\r\na\r\n", 3), anon, "25 more"},
		{"too many arguments without a password", "*4\r\n", anon, "unauthenticated multibulk length"},
		{"longest argument without a password", "*1\r\n$10\r\n0123456789\r\n", anon, "21 more"},
		{"argument too long without a password", "*1\r\n$11\r\n", anon, "unauthenticated bulk length"},

		{"no arguments", "*0\r\n*0\r\n", auth, "empty4 empty4 more"},
		{"fewer than no arguments", "*-1\r\n*-10\r\n*1\r\n$1\r\na\r\n", auth, "empty5 empty6 11 more"},
		{"minus nothing", "*-\r\n", auth, "invalid multibulk length"},
		{"minus zero", "*-0\r\n", auth, "invalid multibulk length"},
		{"far fewer than no arguments", "*-99999999999999999999", auth, "invalid multibulk length"},
		{"empty count", "*\r\n", auth, "invalid multibulk length"},
		{"plus", "*+1\r\n", auth, "invalid multibulk length"},
		{"blank", "* 1\r\n", auth, "invalid multibulk length"},
		{"hex", "*0x1\r\n", auth, "invalid multibulk length"},
		{"leading zero", "*01\r\n", auth, "invalid multibulk length"},
		{"count with a letter", "*1a\r\n", auth, "invalid multibulk length"},
		{"overflow", "*18446744073709551617\r\n", auth, "invalid multibulk length"},
		{"line feed alone", "*1\n", auth, "invalid multibulk length"},
		{"return alone", "*1\r$", auth, "invalid multibulk length"},
		{"count not ended", "*1\r", auth, "more"},
		{"array in an array", "*1\r\n*1\r\n", auth, "expected '$', got '*'"},
		{"a number as an argument", "*1\r\n:1\r\n", auth, "expected '$', got ':'"},
		{"a line break as an argument", "*1\r\n\r\n", auth, "expected '$', got '\\r'"},
		{"absent argument", "*1\r\n$-1\r\n", auth, "invalid bulk length"},
		{"argument of -2", "*1\r\n$-2\r\n", auth, "invalid bulk length"},
		{"the length that panics the parser", "*1\r\n$9223372036854775800\r\n", auth, "invalid bulk length"},
		{"empty length", "*1\r\n$\r\n", auth, "invalid bulk length"},
		{"length with a leading zero", "*1\r\n$04\r\n", auth, "invalid bulk length"},
		{"length ended by a line feed", "*1\r\n$4\nPING\r\n", auth, "invalid bulk length"},
		{"length followed by return alone", "*1\r\n$4\rP", auth, "invalid bulk length"},
		{"argument longer than said", "*1\r\n$3\r\nPING\r\n", auth, "an argument is longer than its length says"},
		{"argument ended by two line feeds", "*1\r\n$4\r\nPING\n\n", auth, "an argument is longer than its length says"},
		{"argument with half a line end", "*1\r\n$4\r\nPING\ra", auth, "an argument is longer than its length says"},
		{"argument not ended", "*1\r\n$4\r\nPING\r", auth, "more"},
		{"framing of Tile38", "$4 PING\r\n", auth, "expected '*' or a command's name, got '$'"},

		{"a line", "PING\r\n", auth, "6 more"},
		{"a line ended by a line feed", "PING\nPING\n", auth, "5 5 more"},
		{"an empty line", "\r\n\nPING\r\n", auth, "empty2 empty1 6 more"},
		{"longest line", strings.Repeat("a", 20) + "\r\n", auth, "22 more"},
		{"longest line, not ended", strings.Repeat("a", 20) + "\r", auth, "more"},
		{"line too long", strings.Repeat("a", 21), auth, "too big inline request"},
		{"line too long by its return", strings.Repeat("a", 20) + "\ra", auth, "too big inline request"},
		{"line too long, ended", strings.Repeat("a", 21) + "\n", auth, "too big inline request"},
		{"a browser's request", "POST / HTTP/1.1\r\n", auth, "this is an HTTP request, and the port speaks the Redis protocol"},
		{"a browser's header", "Host: a\r\n", auth, "this is an HTTP request, and the port speaks the Redis protocol"},
		{"a request for a page", "GET / HTTP/1.1\r\n", auth, "this is an HTTP request, and the port speaks the Redis protocol"},
		{"a request of HTTP/2", "PRI * HTTP/2.0\r\n", auth, "this is an HTTP request, and the port speaks the Redis protocol"},
		{"a request without its version", "GET /\r\n", auth, "7 more"},
		{"a key that looks like one", "TTL / HTTP/1.1\r\n", auth, "16 more"},
		{"a TLS handshake", "\x16\x03\x01\x02\x00", anon, "this is a TLS handshake, and the port speaks the Redis protocol without TLS"},
		{"a command that begins like one", "POSTS\r\n", auth, "7 more"},
		{"garbage", "\x00\xff\x16\x03\x01", auth, "more"},
	}
	for _, c := range cases {
		whole := walk([]byte(c.in), l, c.auth, len(c.in)+1)
		var words []string
		for _, s := range whole {
			switch s.v {
			case More:
				words = append(words, "more")
			case Empty:
				words = append(words, fmt.Sprintf("empty%d", s.n))
			case Complete:
				words = append(words, fmt.Sprint(s.n))
			case Bad:
				words = append(words, strings.TrimPrefix(s.err, "Protocol error: "))
			}
		}
		if got := strings.Join(words, " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		for piece := 1; piece <= 3; piece++ {
			if got := walk([]byte(c.in), l, c.auth, piece); fmt.Sprint(got) != fmt.Sprint(whole) {
				t.Errorf("%s, %d bytes at a time: %v, and whole: %v", c.name, piece, got, whole)
			}
		}
	}
}

func TestGuardCountsArguments(t *testing.T) {
	var g Guard
	l := DefaultLimits()
	in := []byte("*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\nPING\r\n")
	n, v, _ := g.Next(in, &l, true)
	if v != Complete || g.Args() != 3 {
		t.Fatalf("verdict %d with %d arguments, want a complete command of 3", v, g.Args())
	}
	if _, v, _ = g.Next(in[n:], &l, true); v != Complete || g.Args() != 0 {
		t.Fatalf("verdict %d with %d arguments, want a complete line with none counted", v, g.Args())
	}
}

func TestNumberIsExactAtItsBound(t *testing.T) {
	for _, max := range []int{1, 9, 10, 99, 100, 4096, math.MaxInt} {
		for _, d := range []int{-1, 0, 1} {
			text := fmt.Sprint(uint64(max) + uint64(d))
			n, end, v := number([]byte(text+"\r\n"), 0, max)
			if d > 0 {
				if v != tooLarge {
					t.Errorf("%s with bound %d: verdict %d, want too large", text, max, v)
				}
				continue
			}
			if v != Complete || n != max+d || end != len(text)+2 {
				t.Errorf("%s with bound %d: %d up to %d, verdict %d", text, max, n, end, v)
			}
		}
	}
}

// A slow sender must not make the server look at the same bytes again and
// again: the work for a command that comes byte by byte grows with its length,
// not with its square. Counted, not timed: what was scanned is remembered.
func TestGuardRemembersWhereItStopped(t *testing.T) {
	l := DefaultLimits()
	var g Guard
	in := []byte("*3\r\n$1\r\na\r\n$5\r\nhello\r\n$900000\r\n")
	for i := 1; i <= len(in); i++ {
		if _, v, err := g.Next(in[:i], &l, true); v != More {
			t.Fatalf("verdict %d after %d bytes: %v", v, i, err)
		}
	}
	if g.pos != len(in) || g.left != 1 || g.size != 900000 {
		t.Errorf("the guard stopped at byte %d of %d with %d arguments left", g.pos, len(in), g.left)
	}
	g = Guard{}
	line := bytes.Repeat([]byte("a"), 4000)
	g.Next(line, &l, true)
	if g.pos != len(line) {
		t.Errorf("the guard stopped at byte %d of a line of %d", g.pos, len(line))
	}
}

func TestGuardAndParserDoNotAllocate(t *testing.T) {
	l := DefaultLimits()
	in := []byte("*5\r\n$8\r\nTHROTTLE\r\n$5\r\nk:123\r\n$2\r\n10\r\n$2\r\n20\r\n$1\r\n1\r\n")
	args := make([][]byte, 0, 8)
	var g Guard
	n := testing.AllocsPerRun(100, func() {
		n, v, _ := g.Next(in, &l, true)
		if v != Complete || n != len(in) {
			t.Fatalf("verdict %d, %d bytes", v, n)
		}
		if _, args, _, _, _ = redcon.ReadNextCommand(in[:n], args[:0]); len(args) != 5 {
			t.Fatalf("%d arguments", len(args))
		}
	})
	if n != 0 {
		t.Errorf("a command allocates %v times before it is run, want 0", n)
	}
}

// Whatever arrives, in pieces of any size: neither guard nor parsers panic,
// the pieces make no difference, and what the guard calls complete the parser
// reads to its last byte.
func FuzzGuard(f *testing.F) {
	for _, s := range []string{
		"*1\r\n$4\r\nPING\r\n", "*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n", "*0\r\n*-1\r\n*-12\r\n", "PING\r\n", "SET a 'b c' \"d\\n\"\r\n",
		"*1\r\n$9223372036854775800\r\n", "*300000000\r\n", "*1\r\n$-1\r\n", "$4 PING\r\n", "*1\r\n*1\r\n$1\r\na\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\n", "'a\r\n", "\r\n\n \n", "*1\r\n$00\r\n\r\n", "*10\r\n$1\r\na\r\n$98\r\n", "a b  c\r\r\n",
	} {
		f.Add([]byte(s), uint8(1), true)
		f.Add([]byte(s+s), uint8(3), false)
	}
	l := small()
	f.Fuzz(func(t *testing.T, b []byte, piece uint8, authenticated bool) {
		whole := walk(b, l, authenticated, len(b)+1)
		if pieces := walk(b, l, authenticated, int(piece)+1); fmt.Sprint(pieces) != fmt.Sprint(whole) {
			t.Fatalf("whole: %v, in pieces of %d: %v", whole, int(piece)+1, pieces)
		}
		for _, s := range whole {
			switch s.v {
			case Complete:
				if b[0] != '*' {
					if words, _ := AppendWords(nil, bytes.Clone(b[:s.n])); len(words) > MaxWords(s.n) {
						t.Fatalf("%q has %d words", b[:s.n], len(words))
					}
					break
				}
				done, args, _, left, err := redcon.ReadNextCommand(b[:s.n], nil)
				if err != nil {
					t.Fatalf("the parser refuses %q: %v", b[:s.n], err)
				}
				if !done || len(left) != 0 || len(args) != s.args {
					t.Fatalf("the parser reads %q as %q, done %v, and leaves %q", b[:s.n], args, done, left)
				}
			case Bad:
				if strings.ContainsAny(s.err, "\r\n") {
					t.Fatalf("a line break in the error %q", s.err)
				}
			}
			b = b[s.n:]
		}
	})
}
