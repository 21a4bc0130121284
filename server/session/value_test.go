package session

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// skipValue takes one RESP value off the front of b and returns the rest. It
// is strict: what it accepts, any client can read.
func skipValue(b []byte) ([]byte, error) {
	line, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || len(line) == 0 {
		return nil, errors.New("no line")
	}
	if bytes.ContainsAny(line, "\r\n") {
		return nil, fmt.Errorf("line break within %q", line)
	}
	switch line[0] {
	case '+', '-', ':', ',', '#', '(', '_':
		return rest, nil
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < -1 {
		return nil, fmt.Errorf("length %q", line)
	}
	switch line[0] {
	case '$', '=':
		if n == -1 {
			return rest, nil
		}
		if len(rest) < n+2 || string(rest[n:n+2]) != "\r\n" {
			return nil, fmt.Errorf("string of %d bytes is not closed", n)
		}
		return rest[n+2:], nil
	case '*', '~', '>', '%':
		if line[0] == '%' {
			n *= 2
		}
		for ; n > 0; n-- {
			if rest, err = skipValue(rest); err != nil {
				return nil, err
			}
		}
		return rest, nil
	}
	return nil, fmt.Errorf("kind of %q", line)
}
