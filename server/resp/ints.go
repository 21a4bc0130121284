package resp

import (
	"bytes"
	"strconv"
)

// ParseInts5 reads what Writer.Ints5 has written, and nothing else.
func ParseInts5(b []byte) (n [5]int64, ok bool) {
	b, ok = bytes.CutPrefix(b, []byte("*5\r\n"))
	for i := range n {
		line, rest, found := bytes.Cut(b, []byte("\r\n"))
		if !ok || !found || len(line) < 2 || line[0] != ':' {
			return n, false
		}
		v, err := strconv.ParseInt(string(line[1:]), 10, 64)
		if err != nil {
			return n, false
		}
		n[i], b = v, rest
	}
	return n, len(b) == 0
}
