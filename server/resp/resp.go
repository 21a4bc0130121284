// Package resp is the wire format: the Guard checks what a client sent before
// a parser sees it, the Writer appends replies in RESP2 or RESP3.
//
// It knows no command, does no I/O and starts no goroutine. Values of this
// package belong to one connection and are used by one goroutine at a time.
package resp

// Versions of the protocol that a connection can speak. A connection begins
// with RESP2; HELLO changes it.
const (
	RESP2 = 2
	RESP3 = 3
)

// FlushBytes is how many bytes of replies are enough for one write: whoever
// gathers more lets the client take them first.
const FlushBytes = 64 << 10
