// Package transport moves bytes between clients and sessions: it accepts
// connections, reads what arrives, has it checked and parsed, hands the
// commands to the connection's Session and writes the replies.
//
// It knows no command and decides nothing. What it guards is the process: how
// many clients there are, what each may make the server hold, for how long one
// may block or keep silent, and that a fault in one connection ends only that.
//
// netconn.go and conn.go are the transport over net.Conn, with a goroutine a
// connection, on every platform and for every net.Listener. loop_linux.go serves plain
// connections from a few event loops as long as they need no wait, on Linux.
package transport

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/stint-dev/stint/server/resp"
)

// Session is one connection's side of the protocol, without I/O. Its methods
// are called by one goroutine at a time, never at once.
type Session interface {
	// Command takes the next command of a pipeline: its name and arguments, at
	// least one. They are valid until the last Flush of the batch returns; one
	// kept for longer would change, and keep alive a buffer that was given up.
	//
	// wait allows a command that may take long, or have a large reply. Without
	// it such a command is not taken: Command returns false, and the same one
	// comes again, with wait.
	Command(args [][]byte, wait bool) (taken bool)

	// Flush decides what was collected, in order, and appends the replies to
	// out. cut says that the client has sent, or may have sent, more in one go
	// than was collected; it is the same in all calls for a batch. Once out has resp.FlushBytes or more it stops after the command at hand
	// and returns more: the transport writes and calls again, with no command
	// in between, so that a client that takes its replies may ask for any
	// number, and one that does not is not worked for.
	//
	// end, if not nil, asks for the connection to be closed once the replies
	// are written, and says why; what the client sent after that command is
	// not looked at. An end with a method OverOutput that returns true says
	// that a reply was too large to be sent. Flush may wait. It does not keep
	// out.
	Flush(out []byte, cut bool) (reply []byte, more bool, end error)

	// Authenticated says whose bounds hold for the commands to come. It is
	// asked after each batch: as long as it is false, a Flush follows every
	// command.
	Authenticated() bool

	// Closed tells that the connection has ended. It is the last call.
	Closed()
}

// ConnInfo is what a Session may know of its connection.
type ConnInfo struct {
	ID     uint64 // 1 for the first connection, never used again
	Remote net.Addr
	Local  net.Addr
	Unix   bool // a unix socket: its file's mode has said who may connect
	TLS    bool // over TLS; the handshake is done

	// Kill closes the connection at once, also in the middle of a reply. It
	// may be called from any goroutine, any number of times.
	Kill func()
}

// Options are the settings of a Server. Zero values mean the defaults that the
// comments give.
type Options struct {
	// NewSession makes the Session of a new connection. Required. It is called
	// on the connection's own goroutine.
	NewSession func(ConnInfo) Session

	// Admit returns the error line that turns a new connection away, such as
	// "DENIED …", or nothing to let it in. It runs on the accepting goroutine
	// and must not wait or panic. Nil admits everyone.
	Admit func(net.Conn) string

	Limits resp.Limits // of one command; resp.DefaultLimits if all are zero

	// Loops is how many event loops serve plain connections that need no wait.
	// With 0, and on other systems than Linux, a goroutine serves each
	// connection. Sessions must decide at once what they take without wait.
	Loops int

	MaxClients  int           // connections at a time; 10,000; below 0: no limit
	IdleTimeout time.Duration // a connection silent for longer is closed; 0: never

	// StallTimeout closes a connection that has sent a part of a command, of
	// more than 4 KiB, and in all this time neither its end nor 64 KiB more:
	// what it holds is room that others may need; 30 s. A smaller part costs no
	// more than a silent connection and may wait for IdleTimeout.
	StallTimeout time.Duration

	// WriteTimeout closes a connection whose client in all this time takes
	// neither 64 KiB of its replies nor what is left of them; 10 s.
	WriteTimeout time.Duration

	// MaxOutput bounds one reply, in bytes; 64 MiB. What a Flush returns beyond
	// this and resp.FlushBytes closes the connection.
	MaxOutput int

	// MaxInput bounds what all connections together hold of commands too large
	// for the ordinary buffer, in bytes; 1 GiB. MaxReplies does the same for
	// the replies that clients have not taken yet.
	MaxInput, MaxReplies int64

	Log *slog.Logger // nil: nothing is logged
}

// Bounds that are not settings.
const (
	bufSmall = 4 << 10  // bytes a connection reads into at first and when it has been silent
	bufLarge = 64 << 10 // the most it keeps between commands

	// A Flush follows after so many commands or bytes of them at the latest, so
	// that neither the wait for the first reply nor memory grows with the
	// pipeline. A client may send any number: what follows is the next batch.
	batchCommands = 1024
	batchBytes    = 64 << 10

	leastProgress = 64 << 10              // bytes that a slow client has to move in a time-out
	lastLook      = 10 * time.Millisecond // for what else it takes when that is over

	quietAfter = 10 * time.Second // silence after which buffers shrink

	lingerFor     = 500 * time.Millisecond // how long a refused client's input is still read
	lingerBytes   = 16 << 20
	lingerLongest = 5 * time.Second       // the same of one that still takes replies
	lingerQuiet   = 20 * time.Millisecond // at a stop: how long nothing may come before the client counts as silent
	lingerMost    = 16                    // connections being turned away that get this care at a time

	backoffMin = 5 * time.Millisecond // after a failed accept, doubled each time
	backoffMax = time.Second

	tlsLogEvery = time.Minute // the pause between two log lines about TLS handshakes

	idleBytes    = 8 << 10  // about what a connection on a goroutine takes when it is silent
	collectFrom  = 16 << 20 // garbage of connections, bytes, that is worth a collection,
	collectEvery = 10 * time.Second

	watchEvery = time.Second // how often connections are looked at: the precision of all time limits
)

// withDefaults returns o with its zero values filled in, or a sentence about
// what cannot be.
func (o Options) withDefaults() (Options, error) {
	if o.NewSession == nil {
		return o, errors.New("transport: NewSession is missing")
	}
	if o.Limits == (resp.Limits{}) {
		o.Limits = resp.DefaultLimits()
	}
	for name, n := range map[string]int{
		"MaxArguments": o.Limits.MaxArguments, "MaxArgument": o.Limits.MaxArgument,
		"MaxCommand": o.Limits.MaxCommand, "MaxInline": o.Limits.MaxInline,
		"MaxArgumentsBefore": o.Limits.MaxArgumentsBefore, "MaxArgumentBefore": o.Limits.MaxArgumentBefore,
	} {
		if n < 1 {
			return o, fmt.Errorf("transport: the limit %s is %d, want at least 1", name, n)
		}
	}
	if o.Loops < 0 || o.IdleTimeout < 0 || o.StallTimeout < 0 || o.WriteTimeout < 0 || o.MaxOutput < 0 || o.MaxInput < 0 || o.MaxReplies < 0 {
		return o, errors.New("transport: a time-out, bound or number of event loops is below 0")
	}
	if o.MaxClients == 0 {
		o.MaxClients = 10_000
	}
	if o.StallTimeout == 0 {
		o.StallTimeout = 30 * time.Second
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 10 * time.Second
	}
	if o.MaxOutput == 0 {
		o.MaxOutput = 64 << 20
	}
	if o.MaxInput == 0 {
		o.MaxInput = 1 << 30
	}
	if o.MaxReplies == 0 {
		o.MaxReplies = 1 << 30
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Stats is what a Server has counted since it was made. Bytes are of
// connections let in, as they were read from and given to the operating system.
type Stats struct {
	Current        int    // connections now
	Accepted       uint64 // connections let in
	Rejected       uint64 // turned away because there were MaxClients
	Denied         uint64 // turned away by Admit
	AcceptErrors   uint64 // failed accepts, as when file descriptors run out
	BytesIn        uint64
	BytesOut       uint64
	Commands       uint64 // handed to sessions
	Batches        uint64 // of commands, each decided by one Flush or several
	ProtocolErrors uint64 // connections closed for what they sent
	Panics         uint64 // connections closed because handling them panicked
	IdleClosed     uint64 // closed by IdleTimeout or StallTimeout
	SlowClosed     uint64 // closed by WriteTimeout, MaxOutput, MaxInput or MaxReplies
	TLSClosed      uint64 // protocol errors that were TLS handshakes
	TLSFailed      uint64 // connections closed because their TLS handshake failed
	Held           int64  // bytes held now of commands too large for the ordinary buffer
	HeldReplies    int64  // the same of replies
}
