package resp

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

func TestWriterBytesOfBothVersions(t *testing.T) {
	cases := []struct {
		name  string
		write func(w *Writer)
		two   string
		three string // empty: the same as two
	}{
		{"zero", func(w *Writer) { w.Int(0) }, ":0\r\n", ""},
		{"ten", func(w *Writer) { w.Int(10) }, ":10\r\n", ""},
		{"negative", func(w *Writer) { w.Int(-1) }, ":-1\r\n", ""},
		{"largest", func(w *Writer) { w.Int(math.MaxInt64) }, ":9223372036854775807\r\n", ""},
		{"smallest", func(w *Writer) { w.Int(math.MinInt64) }, ":-9223372036854775808\r\n", ""},
		{"five", func(w *Writer) { w.Ints5(1, 9, 10, 99, 100) }, "*5\r\n:1\r\n:9\r\n:10\r\n:99\r\n:100\r\n", ""},
		{"five at bounds", func(w *Writer) { w.Ints5(0, -1, math.MinInt64, math.MaxInt64, -10) },
			"*5\r\n:0\r\n:-1\r\n:-9223372036854775808\r\n:9223372036854775807\r\n:-10\r\n", ""},
		{"bulk", func(w *Writer) { w.Bulk([]byte("a\r\n\x00")) }, "$4\r\na\r\n\x00\r\n", ""},
		{"nil bulk", func(w *Writer) { w.Bulk(nil) }, "$0\r\n\r\n", ""},
		{"bulk string", func(w *Writer) { w.BulkString("hello world") }, "$11\r\nhello world\r\n", ""},
		{"bulk int", func(w *Writer) { w.BulkInt(math.MinInt64) }, "$20\r\n-9223372036854775808\r\n", ""},
		{"simple", func(w *Writer) { w.Simple("PONG") }, "+PONG\r\n", ""},
		{"simple with a line break", func(w *Writer) { w.Simple("a\r\nb") }, "+a  b\r\n", ""},
		{"ok", func(w *Writer) { w.OK() }, "+OK\r\n", ""},
		{"error", func(w *Writer) { w.Error("ERR syntax error") }, "-ERR syntax error\r\n", ""},
		{"error with a line break", func(w *Writer) { w.Error("ERR a\r\n+OK\n") }, "-ERR a  +OK \r\n", ""},
		{"null", func(w *Writer) { w.Null() }, "$-1\r\n", "_\r\n"},
		{"null array", func(w *Writer) { w.NullArray() }, "*-1\r\n", "_\r\n"},
		{"array", func(w *Writer) { w.Array(12) }, "*12\r\n", ""},
		{"empty array", func(w *Writer) { w.Array(0) }, "*0\r\n", ""},
		{"map", func(w *Writer) { w.Map(7) }, "*14\r\n", "%7\r\n"},
		{"set", func(w *Writer) { w.Set(3) }, "*3\r\n", "~3\r\n"},
		{"push", func(w *Writer) { w.Push(2) }, "*2\r\n", ">2\r\n"},
		{"double", func(w *Writer) { w.Double(1.5) }, "$3\r\n1.5\r\n", ",1.5\r\n"},
		{"whole double", func(w *Writer) { w.Double(10) }, "$2\r\n10\r\n", ",10\r\n"},
		{"zero double", func(w *Writer) { w.Double(0) }, "$1\r\n0\r\n", ",0\r\n"},
		{"small double", func(w *Writer) { w.Double(1e-300) }, "$6\r\n1e-300\r\n", ",1e-300\r\n"},
		{"large double", func(w *Writer) { w.Double(-1e300) }, "$7\r\n-1e+300\r\n", ",-1e+300\r\n"},
		{"inf", func(w *Writer) { w.Double(math.Inf(1)) }, "$3\r\ninf\r\n", ",inf\r\n"},
		{"minus inf", func(w *Writer) { w.Double(math.Inf(-1)) }, "$4\r\n-inf\r\n", ",-inf\r\n"},
		{"nan", func(w *Writer) { w.Double(math.NaN()) }, "$3\r\nnan\r\n", ",nan\r\n"},
		{"true", func(w *Writer) { w.Bool(true) }, ":1\r\n", "#t\r\n"},
		{"false", func(w *Writer) { w.Bool(false) }, ":0\r\n", "#f\r\n"},
		{"verbatim", func(w *Writer) { w.Verbatim("txt", "a\nb") }, "$3\r\na\nb\r\n", "=7\r\ntxt:a\nb\r\n"},
		{"verbatim with an odd format", func(w *Writer) { w.Verbatim("m", "a") }, "$1\r\na\r\n", "=5\r\nm  :a\r\n"},
		{"big number", func(w *Writer) { w.BigNumber("-123") }, "$4\r\n-123\r\n", "(-123\r\n"},
	}
	for _, c := range cases {
		if c.three == "" {
			c.three = c.two
		}
		for proto, want := range map[uint8]string{0: c.two, RESP2: c.two, RESP3: c.three} {
			w := Writer{B: []byte("before"), Proto: proto}
			c.write(&w)
			if got := string(w.B); got != "before"+want {
				t.Errorf("%s in version %d: %q, want %q after the bytes before", c.name, proto, got, want)
			}
		}
	}
}

func TestQuoteNeverBreaksALineAndIsCut(t *testing.T) {
	cases := []struct{ arg, want string }{
		{"", "''"},
		{"5/x", "'5/x'"},
		{"a'b\\c", `'a\'b\\c'`},
		{"a\r\n+OK\r\n", `'a\r\n+OK\r\n'`},
		{"\t\x00\x7f\xff ~", `'\t\x00\x7f\xff ~'`},
		{"\u00e9", `'\xc3\xa9'`},
		{strings.Repeat("a", 64), "'" + strings.Repeat("a", 64) + "'"},
		{strings.Repeat("a", 65), "'" + strings.Repeat("a", 64) + "'..."},
		{strings.Repeat("a", 61) + "\x01", "'" + strings.Repeat("a", 61) + "'..."},
		{strings.Repeat("a", 60) + "\x01", "'" + strings.Repeat("a", 60) + `\x01'`},
		{strings.Repeat("a", 61) + "\x01b", "'" + strings.Repeat("a", 61) + "'..."},
		{strings.Repeat("a", 1<<20), "'" + strings.Repeat("a", 64) + "'..."},
	}
	for _, c := range cases {
		if got := Quote([]byte(c.arg)); got != c.want {
			t.Errorf("Quote(%.80q) = %s, want %s", c.arg, got, c.want)
		}
	}
	for c := range 256 {
		q := AppendQuoted(nil, []byte{byte(c)})
		if bytes.ContainsFunc(q, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("byte %d is quoted as %q, with a byte that is not printable", c, q)
		}
	}
}

func TestRepliesDoNotAllocate(t *testing.T) {
	w := Writer{B: make([]byte, 0, 1024), Proto: RESP3}
	bulk := []byte("value")
	n := testing.AllocsPerRun(100, func() {
		w.B = w.B[:0]
		w.Ints5(1, 1<<40, 3, -1, 5)
		w.Int(123456)
		w.BulkInt(123456)
		w.Bulk(bulk)
		w.Null()
		w.Map(3)
		w.Double(1.5)
		w.Bool(true)
		w.Verbatim("txt", "text")
		w.Error("ERR syntax error")
		w.Simple("OK")
	})
	if n != 0 {
		t.Errorf("replies allocate %v times, want 0", n)
	}
}
