package resp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestLinesAreSplitByTheRulesOfRedis(t *testing.T) {
	for _, c := range []struct {
		line  string
		words []string // nil: unbalanced quotes
	}{
		{"", []string{}},
		{" \t \r\n", []string{}},
		{"PING", []string{"PING"}},
		{"PING\r\n", []string{"PING"}},
		{"PING\n", []string{"PING"}},
		{"  a\tb \t c  \r\n", []string{"a", "b", "c"}},
		{"a\rb\r\r\n", []string{"a", "b"}},
		{"\v a\x00b", []string{"\v", "a\x00b"}},
		{`ECHO "x y"`, []string{"ECHO", "x y"}},
		{`a "" ''`, []string{"a", "", ""}},
		{`"\n\r\t\b\a\\\"\q"`, []string{"\n\r\t\b\a\\\"q"}},
		{`"\x41\xfF\x0g\xg0\x4"`, []string{"A\xffx0gxg0x4"}},
		{`"\x4`, nil},
		{`'\n\'"'`, []string{`\n'"`}},
		{`a"b c"`, []string{"ab c"}},
		{`a'b c' d`, []string{"ab c", "d"}},
		{`"a"b`, nil},
		{`'a'b`, nil},
		{`"a`, nil},
		{`'a`, nil},
		{`'a\'`, nil},
		{`"a\"`, nil},
		{`"a\`, nil},
		{`a "`, nil},
		{`"a" 'b"`, nil},
		{`\a\"b`, nil},
		{`\a\n`, []string{`\a\n`}},
		{"\"a\"\tb", []string{"a", "b"}},
	} {
		words, err := AppendWords(nil, []byte(c.line))
		if c.words == nil {
			if err == nil || err.Error() != "Protocol error: unbalanced quotes in request" {
				t.Errorf("%q: words %q, error %v", c.line, words, err)
			}
			continue
		}
		if err != nil || fmt.Sprintf("%q", words) != fmt.Sprintf("%q", c.words) {
			t.Errorf("%q: words %q, error %v; want %q", c.line, words, err, c.words)
		}
	}
}

func TestWordsOfALineDoNotTouch(t *testing.T) {
	words, err := AppendWords([][]byte{[]byte("before")}, []byte("a bc"))
	if err != nil || len(words) != 3 || string(words[0]) != "before" {
		t.Fatalf("words %q, error %v", words, err)
	}
	_ = append(words[1], "xyz"...)
	if string(words[2]) != "bc" {
		t.Errorf("an append to one word makes the next one %q", words[2])
	}
}

// Lines are split before authentication: none may cost more than its length,
// or memory. Time is not measured; that each byte is looked at once can be
// seen in the code, and what took the square of it was another parser.
func TestSplittingALineDoesNotAllocate(t *testing.T) {
	const n = 4096
	room := make([][]byte, 0, MaxWords(n))
	for name, text := range map[string]string{
		"one letter each": strings.Repeat("a ", n/2), "blanks": strings.Repeat(" ", n-1) + "a", "one word": strings.Repeat("a", n),
		"escapes": `"` + strings.Repeat(`\x41`, n/4-1) + `"`, "quotes": strings.Repeat(`"" `, n/3),
	} {
		line := make([]byte, len(text))
		allocs := testing.AllocsPerRun(10, func() {
			copy(line, text)
			if words, err := AppendWords(room[:0], line); err != nil || len(words) == 0 || len(words) > cap(room) {
				t.Fatalf("%s: %d words, error %v", name, len(words), err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations, want 0", name, allocs)
		}
	}
}

// FuzzAppendWords compares with words that are known: any list of them,
// written with quotes and escapes, is read back; and any line is either
// refused or read as words that can be written and read back.
func FuzzAppendWords(f *testing.F) {
	for _, s := range []string{"a b", `"a\x00\n" 'b\'c'`, "\ta \"", `"\x4"`, "a'b'", " \r\n", "x\"y\" z"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line = line[:i+1]
		}
		words, err := AppendWords(nil, bytes.Clone(line))
		if err != nil {
			return
		}
		if len(words) > MaxWords(len(line)) {
			t.Fatalf("%q has %d words, more than %d", line, len(words), MaxWords(len(line)))
		}
		var again []byte
		for _, w := range words {
			again = append(again, '"')
			for _, c := range w {
				again = fmt.Appendf(again, `\x%02x`, c)
			}
			again = append(again, "\"\t"...)
		}
		back, err := AppendWords(nil, again)
		if err != nil || fmt.Sprintf("%q", back) != fmt.Sprintf("%q", words) {
			t.Fatalf("%q is read as %q, and that written down as %q, %v", line, words, back, err)
		}
	})
}
