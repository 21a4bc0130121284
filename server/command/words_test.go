package command

import "testing"

func TestGlobMatch(t *testing.T) {
	cases := []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "", false}, {"*", "", true}, {"*", "abc", true}, {"**", "a", true},
		{"a*", "abc", true}, {"a*", "ba", false}, {"*c", "abc", true}, {"*c", "abcd", false}, {"a*c", "ac", true}, {"a*c", "abcbc", true},
		{"?", "a", true}, {"?", "", false}, {"?", "ab", false}, {"a?c", "abc", true}, {"*?", "", false}, {"*?", "x", true},
		{"[abc]", "b", true}, {"[abc]", "d", false}, {"[^abc]", "d", true}, {"[^abc]", "a", false}, {"[a-c]x", "bx", true}, {"[a-c]x", "dx", false},
		{"[c-a]", "b", true}, {"[a-]", "-", false}, {"[a-]", "^", true} /* a range up to the bracket, as in Redis */, {`[\]]`, "]", true}, {`[\]]`, `\`, false}, {"[]", "a", false}, {"[^]", "a", true},
		{"[a", "a", true}, {"[a", "b", false}, {"[", "a", false}, {"x[", "x", false},
		{`\*`, "*", true}, {`\*`, "a", false}, {`a\`, `a\`, true}, {`\\`, `\`, true}, {"A", "a", false},
		{"a*b*c", "a1b2c", true}, {"a*b*c", "a1c2b", false}, {"*a*a*", "aa", true}, {"*a*a*", "a", false}, {"k:[0-9]*", "k:7x", true}, {"k:[0-9]*", "k:x7", false},
	}
	for _, c := range cases {
		if got, _ := globMatch([]byte(c.pattern), []byte(c.s)); got != c.want {
			t.Errorf("globMatch(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
	if !globMatchFold([]byte("MAX*"), "maxmemory") || globMatchFold([]byte("MAX*"), "minmemory") {
		t.Error("globMatchFold takes no regard of case")
	}
}

// FuzzGlob compares with the definition written down naively. Texts are short:
// the naive way takes exponential time.
func FuzzGlob(f *testing.F) {
	f.Add([]byte("a*b?[c-e]"), []byte("axxbyd"))
	f.Add([]byte(`*\*[^x]`), []byte("a*b"))
	f.Fuzz(func(t *testing.T, pattern, s []byte) {
		if len(pattern) > 12 || len(s) > 12 {
			return
		}
		got, work := globMatch(pattern, s)
		if got != naiveGlob(pattern, s) {
			t.Errorf("globMatch(%q, %q) = %v", pattern, s, got)
		}
		if most := 2 * (len(pattern) + 1) * (len(s) + 1); work > most {
			t.Errorf("globMatch(%q, %q) looks at %d bytes, more than %d", pattern, s, work, most)
		}
	})
}

func naiveGlob(pattern, s []byte) bool {
	if len(pattern) == 0 {
		return len(s) == 0
	}
	if pattern[0] == '*' {
		for i := 0; i <= len(s); i++ {
			if naiveGlob(pattern[1:], s[i:]) {
				return true
			}
		}
		return false
	}
	if len(s) == 0 {
		return false
	}
	next, ok := globOne(pattern, 0, s[0])
	return ok && naiveGlob(pattern[next:], s[1:])
}

func TestFoldEqual(t *testing.T) {
	for _, c := range []struct {
		arg, word string
		want      bool
	}{{"peek", "PEEK", true}, {"PeEk", "PEEK", true}, {"PEE", "PEEK", false}, {"PEEKS", "PEEK", false}, {"", "PEEK", false}, {"no-evict", "NO-EVICT", true}, {"[", "{", false}, {"@", "`", false}} {
		if got := foldEqual([]byte(c.arg), c.word); got != c.want {
			t.Errorf("foldEqual(%q, %q) = %v", c.arg, c.word, got)
		}
	}
}

func TestParseNumber(t *testing.T) {
	const most = 1<<64 - 1
	for _, c := range []struct {
		arg  string
		max  uint64
		want uint64
		ok   bool
	}{
		{"0", most, 0, true}, {"0", 0, 0, true}, {"7", 9, 7, true}, {"10", 10, 10, true}, {"11", 10, 0, false}, {"9", 8, 0, false}, {"1", 0, 0, false},
		{"18446744073709551615", most, most, true}, {"18446744073709551616", most, 0, false}, {"99999999999999999999", most, 0, false},
		{"", most, 0, false}, {"+1", most, 0, false}, {"-1", most, 0, false}, {"-0", most, 0, false}, {"01", most, 0, false}, {"00", most, 0, false},
		{" 1", most, 0, false}, {"1 ", most, 0, false}, {"1_0", most, 0, false}, {"0x1", most, 0, false}, {"1e1", most, 0, false}, {"1.", most, 0, false}, {"a", most, 0, false}, {"/", most, 0, false}, {":", most, 0, false},
	} {
		if got, ok := parseNumber([]byte(c.arg), c.max); got != c.want || ok != c.ok {
			t.Errorf("parseNumber(%q, %d) = %d, %v; want %d, %v", c.arg, c.max, got, ok, c.want, c.ok)
		}
	}
}
