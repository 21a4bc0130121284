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

// parseNumber reads a number that a client chose or was given: decimal digits
// up to max, no sign, no zero in front.
func parseNumber(arg []byte, max uint64) (n uint64, ok bool) {
	if len(arg) == 0 || len(arg) > 1 && arg[0] == '0' {
		return 0, false
	}
	for _, b := range arg {
		d := uint64(b - '0')
		if d > 9 || d > max || n > (max-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// maxPattern bounds a pattern, or several in one command together, in bytes:
// as long as the longest key.
const maxPattern = 4096

// globMatchFold is globMatch with the pattern in any case; s is in lower case.
func globMatchFold(pattern []byte, s string) bool {
	ok, _ := globMatch(bytes.ToLower(pattern), []byte(s))
	return ok
}

// globMatch says whether s matches the pattern: * is any run of bytes, ? any
// one, [abc], [a-z], [^a] one of a class, and a backslash takes the next byte
// as it is. Bytes are compared as they are, without regard to any encoding.
//
// A mismatch goes back only to the last star: an earlier one can gain nothing
// by taking more. So the work, bytes of the pattern looked at, is at most
// 2·len(pattern)·(len(s)+1): a lot, if a client wants it.
func globMatch(pattern, s []byte) (ok bool, work int) {
	p, i := 0, 0
	star, from := -1, 0 // pattern after the last star, and where s stood then
	for i < len(s) {
		work++
		if p < len(pattern) {
			if pattern[p] == '*' {
				p++
				star, from = p, i
				continue
			}
			next, ok := globOne(pattern, p, s[i])
			work += next - p
			if ok {
				p = next
				i++
				continue
			}
		}
		if star < 0 {
			return false, work
		}
		from++
		p, i = star, from
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
		work++
	}
	return p == len(pattern), work
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
