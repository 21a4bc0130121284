package resp

import (
	"bytes"
	"strconv"
)

// Limits bounds what one command may ask for. All numbers are at least 1.
type Limits struct {
	MaxArguments int // arguments of a command, its name included
	MaxArgument  int // bytes of one argument
	MaxCommand   int // bytes of a whole command as sent, its lengths and line ends included
	MaxInline    int // bytes of a command typed as one line, its line end not counted

	// What a client may send before it has authenticated itself: enough for
	// AUTH and HELLO, too little to hold memory. MaxCommand and MaxInline
	// apply unchanged.
	MaxArgumentsBefore int
	MaxArgumentBefore  int // bytes
}

// DefaultLimits returns the bounds of a server without settings of its own.
// A whole command may have 32 MiB: many times the largest command of a real
// client, and little enough that a few of them at once do no harm. A line is
// typed by a person, and may be sent before authentication.
func DefaultLimits() Limits {
	return Limits{
		MaxArguments:       1 << 20,
		MaxArgument:        1 << 20,
		MaxCommand:         32 << 20,
		MaxInline:          4 << 10,
		MaxArgumentsBefore: 10,
		MaxArgumentBefore:  16 << 10,
	}
}

// Verdict is what the Guard says about the bytes that it was shown.
type Verdict uint8

const (
	More     Verdict = iota // the command is not complete: show it again with more bytes
	Complete                // a whole command that the parser may see
	Empty                   // a whole command without a name: to be skipped, unanswered
	Bad                     // not the protocol, or over a limit: the connection has to end
)

// ProtocolError tells why bytes are not a command, in the words that Redis
// uses where it has any.
type ProtocolError struct{ reason string }

// Error returns one line without line breaks, to be sent after "ERR ".
func (e *ProtocolError) Error() string { return "Protocol error: " + e.reason }

// These have no detail and are therefore shared: a refusal costs nothing.
var (
	errMultibulk = &ProtocolError{"invalid multibulk length"}
	errBulk      = &ProtocolError{"invalid bulk length"}
	errNoCRLF    = &ProtocolError{"an argument is longer than its length says"}
	errInline    = &ProtocolError{"too big inline request"}
	errArgsAuth  = &ProtocolError{"unauthenticated multibulk length"}
	errArgAuth   = &ProtocolError{"unauthenticated bulk length"}
	errDollar    = &ProtocolError{"expected '*' or a command's name, got '$'"}
	errHTTP      = &ProtocolError{"this is an HTTP request, and the port speaks the Redis protocol"}
	errQuotes    = &ProtocolError{"unbalanced quotes in request"}
)

// ErrTLS is about a client that begins with a TLS handshake. The transport
// tells the operator too: the client's own error hardly says what is wrong.
var ErrTLS = &ProtocolError{"this is a TLS handshake, and the port speaks the Redis protocol without TLS"}

// tlsHandshake is the first byte of a TLS connection, and of no command.
const tlsHandshake = 0x16

// Guard finds where commands end, and checks every length in them, before
// redcon's parser sees a byte: that one trusts a length, so that a few bytes
// could make it panic or walk for seconds.
//
// It remembers where it stopped. However small the pieces in which a command
// arrives, each byte of an argument or a line is looked at once (the digits of
// a length, at most 20, again when they were cut).
type Guard struct {
	pos  int // bytes of the command found good so far
	args int // arguments of the command
	left int // arguments not yet seen, 0 before the first line is complete
	size int // length of the argument being waited for, -1 while it is unknown
}

// Next looks at b, which begins with the first byte of a command and may hold
// any number of bytes after it. On Complete and Empty, n is the command's
// length and the next call is about the next command; on More, the next call
// has the same bytes and some after them. After Bad the Guard is not used
// again; err is nil otherwise. authenticated says whose bounds apply.
func (g *Guard) Next(b []byte, l *Limits, authenticated bool) (n int, v Verdict, err *ProtocolError) {
	if g.left == 0 {
		if len(b) == 0 {
			return 0, More, nil
		}
		switch b[0] {
		case '*':
			if v, err = g.first(b, l, authenticated); v != Complete {
				return g.done(v), v, err
			}
		case '$':
			// The parser would take it for the framing of another database.
			return 0, Bad, errDollar
		case tlsHandshake:
			return 0, Bad, ErrTLS
		default:
			return g.line(b, l)
		}
	}
	maxArg, errArg := l.MaxArgument, errBulk
	if !authenticated && l.MaxArgumentBefore < maxArg {
		maxArg, errArg = l.MaxArgumentBefore, errArgAuth
	}
	for g.left > 0 {
		if g.size < 0 {
			if g.pos == len(b) {
				return 0, More, nil
			}
			if b[g.pos] != '$' {
				return 0, Bad, &ProtocolError{"expected '$', got " + Quote(b[g.pos:g.pos+1])}
			}
			size, end, v := number(b, g.pos+1, maxArg)
			switch {
			case v == More:
				return 0, More, nil
			case v == tooLarge:
				return 0, Bad, errArg
			case v == Bad:
				return 0, Bad, errBulk
			case end+size+2 > l.MaxCommand:
				return 0, Bad, tooLong(l)
			}
			g.pos, g.size = end, size
		}
		// Subtractions of lengths that were checked: nothing can overflow.
		rest := b[g.pos:]
		if len(rest) > g.size && rest[g.size] != '\r' || len(rest) > g.size+1 && rest[g.size+1] != '\n' {
			return 0, Bad, errNoCRLF
		}
		if len(rest) < g.size+2 {
			return 0, More, nil
		}
		g.pos += g.size + 2
		g.size = -1
		g.left--
	}
	return g.done(Complete), Complete, nil
}

// Args returns how many arguments the command that Next last called Complete
// has; 0 if it is a line, which is to be split by AppendWords.
func (g *Guard) Args() int { return g.args }

// first checks the line that begins a command: '*' and how many arguments
// follow. Complete means that it is there and positive.
func (g *Guard) first(b []byte, l *Limits, authenticated bool) (Verdict, *ProtocolError) {
	if len(b) > 1 && b[1] == '-' {
		return g.negative(b)
	}
	maxArgs, errArgs := l.MaxArguments, errMultibulk
	if !authenticated && l.MaxArgumentsBefore < maxArgs {
		maxArgs, errArgs = l.MaxArgumentsBefore, errArgsAuth
	}
	count, end, v := number(b, 1, maxArgs)
	switch {
	case v == More:
		return More, nil
	case v == tooLarge:
		return Bad, errArgs
	case v == Bad:
		return Bad, errMultibulk
	case count == 0:
		g.pos = end
		return Empty, nil
	}
	g.pos, g.args, g.left, g.size = end, count, count, -1
	return Complete, nil
}

// negative handles a command of -1 or fewer arguments: Redis skips it as it
// skips one of none, and so it is here; the parser never sees it.
func (g *Guard) negative(b []byte) (Verdict, *ProtocolError) {
	if len(b) > 2 && b[2] == '0' {
		return Bad, errMultibulk
	}
	const most = 1<<31 - 1 // any bound keeps the line short
	_, end, v := number(b, 2, most)
	switch v {
	case More:
		return More, nil
	case Complete:
		g.pos = end
		return Empty, nil
	}
	return Bad, errMultibulk
}

// line finds the end of a command typed as one line. A line without a single
// character is Empty; one of blanks is left to AppendWords.
func (g *Guard) line(b []byte, l *Limits) (int, Verdict, *ProtocolError) {
	at := bytes.IndexByte(b[g.pos:], '\n')
	if at < 0 {
		// The end may be of two bytes, of which the first can be here.
		if len(b) > l.MaxInline+1 || len(b) == l.MaxInline+1 && b[l.MaxInline] != '\r' {
			return 0, Bad, errInline
		}
		g.pos = len(b)
		return 0, More, nil
	}
	end := g.pos + at
	text := trimLineEnd(b[:end+1])
	switch {
	case len(text) > l.MaxInline:
		return 0, Bad, errInline
	case isHTTP(text):
		return 0, Bad, errHTTP
	}
	g.pos, g.args = end+1, 0
	if len(text) == 0 {
		return g.done(Empty), Empty, nil
	}
	return g.done(Complete), Complete, nil
}

// isHTTP reports whether a line is the first of an HTTP request, or one that a
// web page can make a browser send here. Its later lines could be commands, so
// the connection has to end at the first one.
func isHTTP(line []byte) bool {
	const n, version = len("POST "), len(" HTTP/1.1")
	if len(line) < n {
		return false
	}
	if bytes.EqualFold(line[:n], []byte("post ")) || bytes.EqualFold(line[:n], []byte("host:")) {
		return true
	}
	if len(line) < version || !bytes.HasPrefix(line[len(line)-version:], []byte(" HTTP/")) {
		return false
	}
	for _, method := range httpMethods {
		if bytes.HasPrefix(line, method) {
			return true
		}
	}
	return false
}

// httpMethods are the words that requests begin with but for POST; PRI begins
// the preface of HTTP/2. None of them is a command here.
var httpMethods = [][]byte{
	[]byte("GET "), []byte("HEAD "), []byte("PUT "), []byte("PATCH "), []byte("DELETE "),
	[]byte("OPTIONS "), []byte("CONNECT "), []byte("TRACE "), []byte("PRI "),
}

// done returns the length of the command and makes the Guard ready for the
// next, unless the verdict leaves it in the middle of one.
func (g *Guard) done(v Verdict) int {
	if v == More || v == Bad {
		return 0
	}
	n := g.pos
	g.pos, g.left, g.size = 0, 0, -1
	return n
}

// tooLarge is the verdict of number about digits that exceed the bound.
const tooLarge = Bad + 1

// number reads decimal digits from b[i:] up to the line's end and returns the
// number and where the next line begins. As in Redis it has no sign, blanks or
// leading zeros. It fails at the first byte that cannot be right, so the
// answer is the same however the bytes arrive, and the digits looked at again
// after More are never more than those of max, which is at least 1.
func number(b []byte, i, max int) (n, end int, v Verdict) {
	start := i
	for ; i < len(b); i++ {
		c := b[i]
		if c == '\r' {
			break
		}
		if c < '0' || c > '9' || i > start && n == 0 {
			return 0, 0, Bad
		}
		d := int(c - '0')
		if n > (max-d)/10 || d > max {
			return 0, 0, tooLarge
		}
		n = n*10 + d
	}
	switch {
	case i == len(b):
		return 0, 0, More
	case i == start:
		return 0, 0, Bad
	case i+1 == len(b):
		return 0, 0, More
	case b[i+1] != '\n':
		return 0, 0, Bad
	}
	return n, i + 2, Complete
}

// tooLong is the error of a whole command over its limit.
func tooLong(l *Limits) *ProtocolError {
	return &ProtocolError{"a command of more than " + strconv.Itoa(l.MaxCommand) + " bytes"}
}
