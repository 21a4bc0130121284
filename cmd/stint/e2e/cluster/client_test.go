//go:build unix

package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// wire is a connection to a node as a plain client has it: it sends one pipeline
// at a time, and nothing twice.
type wire struct {
	addr string
	c    net.Conn
	r    *bufio.Reader
}

// outcome is what became of a pipeline.
type outcome int

const (
	decided    outcome = iota
	notApplied         // surely nothing of it was, nor will be
	unknown            // it may have been, or may still be
)

func (o outcome) String() string { return [...]string{"decided", "not applied", "unknown"}[o] }

// failure is an error reply.
type failure string

func (f failure) Error() string { return string(f) }

const dialTimeout = time.Second

// callTimeout bounds how long a client waits for an answer: more than the nodes'
// decision timeout, and less than a long pause of a node.
const callTimeout = 1500 * time.Millisecond

// do sends a pipeline and returns its replies. Without them the outcome says what
// is known; err says why.
func (w *wire) do(timeout time.Duration, commands ...[]string) (replies []any, o outcome, err error) {
	if o, err := w.send(timeout, commands...); err != nil {
		return nil, o, err
	}
	return w.receive(len(commands))
}

// send is the first half of do. timeout bounds both.
func (w *wire) send(timeout time.Duration, commands ...[]string) (o outcome, err error) {
	if w.c == nil {
		c, err := net.DialTimeout("tcp", w.addr, dialTimeout)
		if err != nil {
			return notApplied, err
		}
		w.c, w.r = c, bufio.NewReader(c)
	}
	_ = w.c.SetDeadline(time.Now().Add(timeout))
	var text strings.Builder
	for _, c := range commands {
		text.WriteString(encode(c))
	}
	if _, err := io.WriteString(w.c, text.String()); err != nil {
		w.close()
		return unknown, err
	}
	return decided, nil
}

// receive is the second half of do: it reads so many replies.
func (w *wire) receive(n int) (replies []any, o outcome, err error) {
	for range n {
		v, err := readReply(w.r)
		if err != nil {
			w.close()
			return replies, unknown, err
		}
		replies = append(replies, v)
	}
	for _, v := range replies {
		// A pipeline is answered with the one or with the other, never with both.
		if f, ok := v.(failure); ok {
			switch word, _, _ := strings.Cut(string(f), " "); word {
			case "CLUSTERDOWN":
				return replies, notApplied, f
			case "INDETERMINATE":
				return replies, unknown, f
			}
		}
	}
	return replies, decided, nil
}

func (w *wire) close() {
	if w.c != nil {
		_ = w.c.Close()
		w.c = nil
	}
}

// encode writes a command as an array of bulk strings.
func encode(args []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

var errReply = errors.New("not a reply")

// readReply reads a reply of RESP2: a string, an int64, a failure, nil, or a list
// of such.
func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, fmt.Errorf("%w: %q", errReply, line)
	}
	text := strings.TrimRight(line[1:], "\r\n")
	switch line[0] {
	case '+':
		return text, nil
	case '-':
		return failure(text), nil
	case ':':
		return strconv.ParseInt(text, 10, 64)
	case '$':
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, err
		}
		b := make([]byte, n+2)
		_, err = io.ReadFull(r, b)
		return string(b[:n]), err
	case '*':
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, err
		}
		list := make([]any, n)
		for i := range list {
			if list[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("%w: %q", errReply, line)
}
