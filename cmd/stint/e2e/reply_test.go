//go:build unix

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// Replies of the raw reader. Bulk and simple strings are both string: where
// the difference matters tests compare bytes.
type (
	// Error is an error reply without its "-".
	Error string
	// Map is a RESP3 map with its pairs in order.
	Map []any
)

// readReply reads one reply of RESP2 or RESP3. Null is nil whatever its type.
func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || !strings.HasSuffix(line, "\r\n") {
		return nil, fmt.Errorf("%q is no line of RESP", line)
	}
	text := line[1 : len(line)-2]
	switch line[0] {
	case '+':
		return text, nil
	case '-':
		return Error(text), nil
	case ':':
		return strconv.ParseInt(text, 10, 64)
	case ',':
		return strconv.ParseFloat(text, 64)
	case '#':
		return text == "t", nil
	case '_':
		return nil, nil
	case '$', '=':
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, err
		}
		body := make([]byte, n+2)
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, err
		}
		return string(body[:n]), nil
	case '*', '~', '>', '%':
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, err
		}
		if line[0] == '%' {
			n *= 2
		}
		items := make([]any, n)
		for i := range items {
			if items[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		if line[0] == '%' {
			return Map(items), nil
		}
		return items, nil
	}
	return nil, fmt.Errorf("%q is no reply", line)
}

// ints is the reply of a decision.
func ints(n ...int64) []any {
	all := make([]any, len(n))
	for i, v := range n {
		all[i] = v
	}
	return all
}

// expect compares a reply.
func expect(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %#v, want %#v", got, want)
	}
}

// expectError wants an error that begins with a prefix.
func expectError(t *testing.T, got any, prefix string) {
	t.Helper()
	if e, ok := got.(Error); !ok || !strings.HasPrefix(string(e), prefix) {
		t.Fatalf("got %#v, want an error that begins with %q", got, prefix)
	}
}

// infoField is a field of an INFO reply, "" if there is none.
func infoField(reply any, name string) string {
	text, _ := reply.(string)
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimRight(v, "\r\n")
		}
	}
	return ""
}
