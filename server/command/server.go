package command

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/engine"
)

// RedisVersion is the version of Redis whose protocol and handshakes this
// server speaks: what clients compare their needs with.
const RedisVersion = "7.4.0"

// Server is what connection commands know of the server. It is filled before
// the first connection and not changed afterwards, the counters and what the
// functions do apart. Fields that are nil mean that there is no such thing;
// the functions must be safe for use by many goroutines.
type Server struct {
	Version string    // of this program
	RunID   string    // 40 hexadecimal digits, new for each run
	Started time.Time // start of the process
	Port    int       // of the first TCP listener, 0 if there is none

	Password Password
	Config   Config
	Counters Counters

	// Fallback answers what cannot be decided.
	Fallback Fallback

	// Undecided counts commands without a decision.
	Undecided struct {
		NotApplied atomic.Int64 // answered CLUSTERDOWN
		Unknown    atomic.Int64 // answered INDETERMINATE
	}

	Now        func() time.Time     // the wall clock; nil: time.Now
	Clock      func() int64         // the clock of decisions, unix ns; nil: the wall clock
	ClockAhead func() time.Duration // how far that is ahead of the wall clock; nil: not at all
	Keyspace   func() engine.Stats  // counts at the clock's time
	Traffic    func() Traffic       // what the transports counted
	Persist    Persister            // nil: nothing is saved
	TLS        func() TLSInfo       // nil: no address has TLS
	Debug      Debugger             // nil: DEBUG is refused
	Cluster    Cluster              // nil: this server is part of none

	// ConnTraffic is what the connection of that ID has moved, and whether it
	// is still there; nil: that is not known. Kill closes a connection and
	// reports whether there was one; nil: none can be closed. Killed is told of
	// a CLIENT KILL that has closed n connections, at least one, with the words
	// it meant them by, quoted, and the address of the client that sent it.
	ConnTraffic func(id uint64) (ConnTraffic, bool)
	Kill        func(id uint64) bool
	Killed      func(n int64, which, by string)

	// ResetTraffic sets the transports' counters to 0 for CONFIG RESETSTAT.
	ResetTraffic func()

	clients clients
	usage   usages
	errors  errorKinds
	slow    slowLog
	spikes  spikes
	rate    rate

	attending sync.Mutex
	attention atomic.Int64 // ns plus 1 from which a batch is looked at closer; 0: none
}

// Counters count what sessions do.
type Counters struct {
	Commands     atomic.Int64 // commands run, errors included
	AuthFailures atomic.Int64 // wrong passwords
	CrossClosed  atomic.Int64 // connections closed because they speak HTTP
}

// reset sets all counters to 0.
func (c *Counters) reset() {
	c.Commands.Store(0)
	c.AuthFailures.Store(0)
	c.CrossClosed.Store(0)
}

// Traffic is what the transports counted since the start or the last reset.
type Traffic struct {
	Clients        int64 // connections open now
	MaxClients     int64 // the most allowed; 0 no bound
	Accepted       int64 // connections accepted
	Rejected       int64 // connections refused: too many, or protected mode
	BytesIn        int64
	BytesOut       int64
	ProtocolErrors int64 // connections closed for what was no RESP
	OutputClosed   int64 // connections closed because the client did not read
	Panics         int64 // connections closed by a fault of this program
	IdleClosed     int64 // connections closed because they were silent for too long
	TLSClosed      int64 // connections closed because they began with a TLS handshake on a plain port
	TLSFailed      int64 // connections closed because their TLS handshake failed
	AcceptErrors   int64 // connections that the system could not hand over
	HeldInput      int64 // bytes held now of commands too large for the ordinary buffer
	HeldReplies    int64 // bytes held now of replies that clients have not taken
}

// TLSInfo describes the certificate in use, for INFO.
type TLSInfo struct {
	ValidFrom, ValidUntil time.Time
	ClientCertificates    bool // clients must show one
}

// Persister saves the keyspace.
type Persister interface {
	Save() error           // returns when everything decided before the call is on disk
	BackgroundSave() error // begins a save and returns
	LastSave() time.Time   // of the last one that succeeded; zero: none yet
	Info() PersistInfo
}

// PersistInfo is the state of saving, for INFO.
type PersistInfo struct {
	Durability   string        // none, interval
	Interval     time.Duration // time between two flushes
	Saving       bool          // a flush is running
	LastDuration time.Duration // of the last flush that succeeded
	LastKeys     int64         // changed keys in it
	LastBytes    int64         // bytes it wrote
	Flushes      int64         // flushes that wrote something
	Failures     int64         // flushes that failed
	Failing      int64         // failures since all was well; 0: it is
	LastError    string        // of the last failure
	FileBytes    int64         // size of the state file
	Compacting   bool          // the whole state is being written anew
	Compactions  int64         // how often it was
	Changed      int64         // changes that are not on disk, about
}

// Debugger is the test clock and what goes with it.
type Debugger interface {
	FreezeClock(ns int64) // unix ns; the clock stands still there
	RunClock()            // the clock runs again
	Reset() error         // empties everything and forgets the latest time seen
}

// now is the wall clock.
func (s *Server) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// clock is the time of decisions, unix ns.
func (s *Server) clock() int64 {
	if s.Clock != nil {
		return s.Clock()
	}
	return s.now().UnixNano()
}

// traffic is what the transports counted, zero without any.
func (s *Server) traffic() Traffic {
	if s.Traffic == nil {
		return Traffic{}
	}
	return s.Traffic()
}

// keyspace counts the keyspace, zero without one.
func (s *Server) keyspace() engine.Stats {
	if s.Keyspace == nil {
		return engine.Stats{}
	}
	return s.Keyspace()
}
