// Package store is the contract between the server, which speaks to clients,
// and whoever decides their commands: a single node's engine, or a cluster.
//
// A connection's pipeline becomes one Batch. The server fills it and hands it
// to a Store; the Store runs every request, in order, through the Executor it
// was made with, and the replies come back as bytes.
package store

import "github.com/stint-dev/stint/engine"

// Request is one command: its name and arguments as the client sent them.
type Request struct {
	Args  [][]byte // Args[0] is the name; valid until the batch is done
	Cmd   int32    // index of the command in the server's table
	DB    uint8    // database the connection has selected, 0 to 15
	Proto uint8    // RESP version the reply is written in, 2 or 3
}

// Outcome says what became of a batch.
type Outcome uint8

const (
	// Decided: the replies are in Out.
	Decided Outcome = iota
	// NotApplied: no decision could be made; nothing of the batch was applied,
	// and nothing ever will be. Out is as it was.
	NotApplied
	// Unknown: the batch may have been applied, as a whole, or may still be, or
	// never. Out is as it was.
	Unknown
)

// Batch is what arrived of one connection's pipeline, in order. It is used
// again: a Store keeps nothing of it after Done.
type Batch struct {
	Requests []Request
	Out      []byte       // replies, appended in the order of the requests
	Done     func(*Batch) // called once, on any goroutine, if Run returned false

	// Outcome is set by the Store: whoever fills a batch makes it Decided. Why
	// says in a few words, for people, what stood in the way of a decision.
	Outcome Outcome
	Why     string
}

// Executor runs requests on a transaction, in order, and appends their replies
// to out. The server's command table is the Executor; it must not keep anything
// of them, or tx.
type Executor interface {
	Execute(tx *engine.Tx, requests []Request, out []byte) []byte
}

// Store decides batches. Run may be called from many goroutines at once, with
// a different Batch each.
type Store interface {
	// Run decides the batch. It returns true if the replies are in b.Out
	// already, false if b.Done will be called when they are.
	Run(b *Batch) bool
}
