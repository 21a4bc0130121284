// Package command is the table of commands: the only place that knows what a
// command is called, how many arguments it takes, where its keys stand and
// what it does. Arity checks, the replies of COMMAND and docs/commands.md all
// come from it.
//
// There are two kinds. A store command is a function on an engine.Tx: a
// session puts it into a store.Batch and whoever decides the batch runs it
// through the Executor, on any goroutine. A connection command works on the
// state of one connection and what the server tells of itself: the session
// runs it, between batches, on the connection's goroutine.
//
// The package does no I/O and starts no goroutine. The table never changes
// once the program runs, so anyone may read it at any time.
package command

import (
	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
	"github.com/stint-dev/stint/server/resp"
)

// Command is one row of the table. Exactly one of Run, Conn and Sub is set,
// except that a container which can also be called by itself has Conn too.
type Command struct {
	Name    string // lower case; of a subcommand only its own part, "setname"
	Group   string // one of Groups
	Syntax  string // the arguments after the name as in the documentation: key capacity [cost] [PEEK | FORCE]
	Summary string // one sentence without a full stop
	Since   string // version of this server that had it first

	// Arity counts the name (of a subcommand both words) and the arguments:
	// exactly so many if above 0, at least -Arity if below.
	Arity int
	Flags Flags

	// The keys stand at FirstKey, FirstKey+Step … LastKey, counted from the
	// name; a negative LastKey counts from the end (-1 is the last argument).
	// FirstKey 0: the command has no keys, Step is 0 as well.
	FirstKey, LastKey, Step int

	Run  func(*Ctx)     // a store command
	Conn func(*ConnCtx) // a connection command
	Sub  []Command      // a container: the second word says which

	full  string   // "client|setname"; the name of one that is no subcommand
	index int32    // position in the table's list
	outer *Command // the container of a subcommand
}

// FullName is the name as errors and COMMAND write it: client|setname.
func (c *Command) FullName() string { return c.full }

// Index is the command's number in the table, for store.Request.Cmd. It holds
// for one build of the program only: never store or send it.
func (c *Command) Index() int32 { return c.index }

// Store says whether the command runs on the store rather than on the
// connection.
func (c *Command) Store() bool { return c.Run != nil }

// Immediate says that the command is decided at once and has a small reply,
// whatever the state of the server is.
func (c *Command) Immediate() bool { return c.Flags&(Fast|Slow) == Fast }

// oneKey says that the command is short and about one key, its first argument.
func (c *Command) oneKey() bool {
	return c.FirstKey == 1 && c.LastKey == 1 && c.Run != nil && c.Flags&Slow == 0
}

// takes says whether n words, the name included, suit the command's arity.
func (c *Command) takes(n int) bool {
	if c.Arity >= 0 {
		return n == c.Arity
	}
	return n >= -c.Arity
}

// Groups are the families of commands in the order of the documentation.
var Groups = []string{"limiter", "keys", "connection", "server", "cluster"}

// Flags say what a command does, for the session and for COMMAND.
type Flags uint16

// The flags.
const (
	Write    Flags = 1 << iota // may change the keyspace
	ReadOnly                   // reads the keyspace
	DenyOOM                    // may need memory: refused at the memory limit
	Admin                      // changes or saves the server
	Fast                       // constant time, or nearly
	NoAuth                     // runs before authentication
	Slow                       // may take long: not for an event loop
)

// flagNames are the words that COMMAND replies, in the order of the bits.
var flagNames = []string{"write", "readonly", "denyoom", "admin", "fast", "no_auth", "slow"}

// names lists the words of the flags that are set.
func (f Flags) names() []string {
	var out []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// Ctx is what a store command works with. It is used again after Run returns:
// a command keeps nothing of it.
type Ctx struct {
	Tx   *engine.Tx  // on the database DB, at the batch's time
	Args [][]byte    // as sent, Args[0] is the name; the count suits the arity
	DB   uint8       // database the connection has selected
	W    resp.Writer // takes exactly one reply

	Debug bool      // commands for tests are allowed
	share *Fallback // not nil: decides by a share of each limit

	// The bucket's limit that was read last in this batch, and from what.
	capacity, rate []byte
	bucket         limit.BucketLimit
}

// ConnCtx is what a connection command works with.
type ConnCtx struct {
	Conn   *Conn       // the connection's state, changed in place
	Server *Server     // what the server tells of itself
	Args   [][]byte    // as sent, the name included; the count suits the arity
	W      resp.Writer // takes exactly one reply
}
