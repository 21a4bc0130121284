package load

import "bytes"

// reply is what the generator wants to know of one reply.
type reply struct {
	first    int64  // the reply if it is an integer, else its first element if that is one
	hasFirst bool   // there is such an integer
	failure  []byte // text of an error in it, nil if there is none; points into the input
}

// nextReply measures the reply at the start of b, RESP2 or RESP3, and returns
// how many bytes it takes: 0 if it is not complete yet, -1 if these bytes can
// not be a reply. It does not allocate.
func nextReply(b []byte) (r reply, n int) {
	// open counts the values still to come: aggregates add their elements, so
	// nesting needs no stack.
	for open, index := 1, 0; open > 0; index++ {
		rest := b[n:]
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			return reply{}, 0
		}
		if end < 2 || rest[end-1] != '\r' {
			return reply{}, -1
		}
		line := rest[1 : end-1]
		n += end + 1
		open--
		switch rest[0] {
		case '+', '_', ',', '#', '(':
		case '-':
			r.failure = line
		case ':':
			v, ok := integer(line)
			if !ok {
				return reply{}, -1
			}
			if index == 0 || index == 1 && b[0] == '*' {
				r.first, r.hasFirst = v, true
			}
		case '$', '=', '!':
			size, ok := integer(line)
			if !ok || size < -1 || size > maxReply {
				return reply{}, -1
			}
			if size < 0 {
				break
			}
			if len(b)-n < int(size)+2 {
				return reply{}, 0
			}
			if rest[0] == '!' {
				r.failure = b[n : n+int(size)]
			}
			n += int(size) + 2
		case '*', '~', '>', '%', '|':
			count, ok := integer(line)
			if !ok || count < -1 || count > maxReply {
				return reply{}, -1
			}
			if rest[0] == '%' || rest[0] == '|' {
				count *= 2
			}
			open += int(max(count, 0))
			if rest[0] == '|' {
				open++ // attributes come before the value they describe
			}
		default:
			return reply{}, -1
		}
	}
	return r, n
}

// integer reads a decimal with an optional minus sign. At most 18 digits: no
// reply that is counted here is longer, and that many cannot overflow.
func integer(b []byte) (v int64, ok bool) {
	digits := b
	if len(b) > 0 && b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 18 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	if len(digits) < len(b) {
		v = -v
	}
	return v, true
}
