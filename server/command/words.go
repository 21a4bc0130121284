package command

import "bytes"

// lowerByte is b in lower case if it is an ASCII letter, else b.
func lowerByte(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + ('a' - 'A')
	}
	return b
}

// foldEqual says whether arg is word, whatever the case of its ASCII letters.
// word is in one case throughout or not: both sides are folded.
func foldEqual(arg []byte, word string) bool {
	if len(arg) != len(word) {
		return false
	}
	for i, b := range arg {
		if lowerByte(b) != lowerByte(word[i]) {
			return false
		}
	}
	return true
}

// globMatchFold is globMatch with the pattern in any case; s is in lower case.
func globMatchFold(pattern []byte, s string) bool {
	return globMatch(bytes.ToLower(pattern), []byte(s))
}

// globMatch says whether s matches the pattern: * is any run of bytes, ? any
// one, [abc], [a-z], [^a] one of a class, and a backslash takes the next byte
// as it is. Bytes are compared as they are, without regard to any encoding.
//
// A mismatch goes back only to the last star: an earlier one can gain nothing
// by taking more. So the time is at most len(pattern)·len(s), whatever a
// client sends.
func globMatch(pattern, s []byte) bool {
	p, i := 0, 0
	star, from := -1, 0 // pattern after the last star, and where s stood then
	for i < len(s) {
		if p < len(pattern) {
			if pattern[p] == '*' {
				p++
				star, from = p, i
				continue
			}
			if next, ok := globOne(pattern, p, s[i]); ok {
				p = next
				i++
				continue
			}
		}
		if star < 0 {
			return false
		}
		from++
		p, i = star, from
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// globOne matches one byte against the element of the pattern at p, which is
// no star, and returns where the next element begins.
func globOne(pattern []byte, p int, b byte) (next int, ok bool) {
	switch pattern[p] {
	case '?':
		return p + 1, true
	case '[':
		return globClass(pattern, p+1, b)
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	}
	return p + 1, pattern[p] == b
}

// globClass matches b against the class whose members begin at p. A class that
// is not closed ends with the pattern.
func globClass(pattern []byte, p int, b byte) (next int, ok bool) {
	not := p < len(pattern) && pattern[p] == '^'
	if not {
		p++
	}
	for ; p < len(pattern) && pattern[p] != ']'; p++ {
		switch {
		case pattern[p] == '\\' && p+1 < len(pattern):
			p++
			ok = ok || pattern[p] == b
		case p+2 < len(pattern) && pattern[p+1] == '-':
			low, high := pattern[p], pattern[p+2]
			if low > high {
				low, high = high, low
			}
			ok = ok || low <= b && b <= high
			p += 2
		default:
			ok = ok || pattern[p] == b
		}
	}
	if p < len(pattern) {
		p++ // the bracket
	}
	return p, ok != not
}
