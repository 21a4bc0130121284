// Package session is the state of one connection and the order of what it
// asks for. Commands that were parsed go in, bytes to send come out; it does
// no I/O and starts no goroutine, so any transport can drive it.
//
// The commands that arrived together are collected, then decided by Flush:
// store commands that stand next to each other become one store.Batch,
// commands about the connection run between the batches, and the replies come
// in the order of the commands.
package session

import (
	"errors"
	"fmt"
	"sync"

	"github.com/stint-dev/stint/engine/store"
	"github.com/stint-dev/stint/server/command"
	"github.com/stint-dev/stint/server/resp"
)

// Info is what a transport knows of a connection it has accepted.
type Info struct {
	ID        uint64 // from 1, never used twice
	Addr      string // the client's address
	LocalAddr string // the listener's address
	Unix      bool   // came over a unix socket

	// MaxOutput bounds one reply, in bytes: a larger one is left out, the rest
	// of the pipeline is not run and the connection is closed. 0: no bound.
	MaxOutput int
}

// Session is one connection's session. It belongs to the goroutine that reads
// the connection.
type Session struct {
	server *command.Server
	store  store.Store
	conn   command.Conn

	// work holds what was collected since the last Flush, nil if nothing was:
	// a connection that waits keeps no memory for a pipeline.
	work *work

	maxOutput int // bytes, 0: no bound

	find  command.Finder
	multi bool // MULTI was sent, and neither EXEC nor DISCARD since

	pipe pipeline

	end error // close after the replies so far, and why; nothing more is taken
}

// Reasons to close a connection.
var (
	errQuit   = errors.New("the client asked for the end")
	errHTTP   = errors.New("the client speaks HTTP")
	errClosed = errors.New("the connection is gone")
)

// overError says that a reply is too large to be sent.
type overError struct {
	command      string
	bytes, bound int
}

func (e *overError) Error() string {
	return fmt.Sprintf("the reply to %s has %d bytes, want at most %d", e.command, e.bytes, e.bound)
}

// OverOutput tells this end from others.
func (e *overError) OverOutput() bool { return true }

// New makes the session of a connection just accepted. st decides its batches
// with a command.Executor.
func New(server *command.Server, st store.Store, info Info) *Session {
	s := &Session{
		server: server,
		store:  st,
		conn:   command.NewConn(server, info.ID, info.Addr, info.LocalAddr),

		maxOutput: info.MaxOutput,
	}
	s.conn.Unix = info.Unix
	server.Join(&s.conn)
	return s
}

// work is the memory for one pipeline. It is shared by all connections through
// a pool: at any time only those that are at work have one.
type work struct {
	items []store.Request // in order; Cmd is an index of the table or refused
	lines []string        // the errors of the refused ones, in order
	next  int             // items before it are decided
	line  int             // lines before it are replied
	batch store.Batch
	ctx   command.ConnCtx
	done  chan struct{} // takes one value when a batch is decided later
}

// refused stands for a command that gets an error without being run.
const refused = -1

// maxKept is how many commands the memory of a pipeline is kept for.
const maxKept = 1024

var works = sync.Pool{New: func() any {
	w := &work{done: make(chan struct{}, 1)}
	w.batch.Done = func(*store.Batch) { w.done <- struct{}{} }
	return w
}}

// free gives the memory back, without anything that belongs to a client.
func (w *work) free() {
	if cap(w.items) > maxKept {
		return
	}
	clear(w.items)
	clear(w.lines)
	w.items, w.lines = w.items[:0], w.lines[:0]
	w.next, w.line = 0, 0
	w.batch.Requests, w.batch.Out = nil, nil
	w.ctx = command.ConnCtx{}
	works.Put(w)
}

// Authenticated says whether the connection may run every command. It changes
// in Flush only.
func (s *Session) Authenticated() bool { return s.conn.Authenticated }

// Closed tells that the connection is gone. What was collected is not run.
func (s *Session) Closed() {
	s.server.Leave(&s.conn)
	if s.work != nil {
		s.work.free()
		s.work = nil
	}
	s.end = errClosed
}

// Command takes one command of the pipeline: the name and its arguments, which
// must stay as they are until all is decided. No words at all is nothing.
// Without wait it does not take a command that may take long or have a large
// reply, and returns false.
func (s *Session) Command(args [][]byte, wait bool) (taken bool) {
	if s.end != nil || len(args) == 0 {
		return true
	}
	cmd, line := s.find.Find(args)
	if !wait && cmd != nil && !cmd.Immediate() {
		return false
	}
	// The command that opens a transaction is in the table only to be refused.
	if cmd == nil || s.multi {
		inside, refusal := command.Transaction(args[0], s.multi)
		s.multi = inside
		if refusal != "" {
			cmd, line = nil, refusal
		} else if cmd == nil && speaksHTTP(args[0]) {
			s.end = errHTTP
			s.server.Counters.CrossClosed.Add(1)
			return true
		}
	}
	if s.work == nil {
		s.work = works.Get().(*work)
		s.pipe.begin()
	}
	item := store.Request{Args: args, Cmd: refused}
	if cmd != nil {
		item.Cmd = cmd.Index()
	} else {
		s.work.lines = append(s.work.lines, line)
	}
	s.work.items = append(s.work.items, item)
	return true
}

// speaksHTTP says whether the first word of an unknown command gives away a
// web browser that was talked into sending its request here: what follows
// would be run as commands.
func speaksHTTP(name []byte) bool {
	switch string(name) {
	case "POST", "Host:", "HOST:", "host:":
		return true
	}
	return false
}

// Flush decides what was collected since the last call, in order, and appends
// the replies to out. Once out has resp.FlushBytes it stops and returns more:
// it is to be called again when they are sent. end, if not nil, asks for the
// connection to be closed once the replies are sent, and says why; it has a
// method OverOutput if a reply was too large. cut says that more of the pipeline may
// follow than was collected. Flush may wait for the store.
func (s *Session) Flush(out []byte, cut bool) (reply []byte, more bool, end error) {
	w := s.work
	if w == nil {
		return out, false, s.end
	}
	// Taken off first: after a panic in a command the memory is in an unknown
	// state and must not be used again.
	s.work = nil
	s.pipe.cut = cut
	out, end = s.run(w, out)
	if end == nil && w.next < len(w.items) {
		s.work = w
		return out, true, nil
	}
	w.free()
	if end != nil {
		s.end = end
	}
	return out, false, s.end
}

// run decides commands in order until there are enough replies, at least one.
func (s *Session) run(w *work, out []byte) ([]byte, error) {
	first := w.next
	defer func() { s.server.Counters.Commands.Add(int64(w.next - first)) }()
	for w.next < len(w.items) {
		item, before, n := &w.items[w.next], len(out), 1
		switch {
		case s.pipe.down != "":
			// A client that resends a pipeline for its first reply must find that
			// nothing of it was run.
			out = appendError(out, s.pipe.down)
			if item.Cmd == refused {
				w.line++
			}
		case item.Cmd == refused:
			out = appendError(out, w.lines[w.line])
			s.server.Refused(item.Args, w.lines[w.line])
			w.line++
		case !s.conn.Authenticated && command.At(item.Cmd).Flags&command.NoAuth == 0:
			out = appendError(out, command.ErrNoAuth)
			s.server.Refused(item.Args, command.ErrNoAuth)
		case command.At(item.Cmd).Store():
			n = s.batch(w.items[w.next:])
			out = s.runBatch(w, w.items[w.next:w.next+n], out)
		default:
			out = s.runConn(w, command.At(item.Cmd), item.Args, out)
		}
		w.next += n
		if size := len(out) - before; n == 1 && s.maxOutput > 0 && size > s.maxOutput {
			name := "a command that was refused"
			if item.Cmd != refused {
				name = command.At(item.Cmd).FullName()
			}
			return out[:before], &overError{name, size, s.maxOutput}
		}
		if s.conn.Closing {
			return out, errQuit
		}
		if s.pipe.down != "" && w.next == len(w.items) && s.pipe.cut {
			return out, errCut
		}
		if len(out) >= resp.FlushBytes {
			break
		}
	}
	return out, nil
}

// batch makes ready the store commands at the beginning of items and returns
// how many are one batch; the first item is one. A slow command is a batch of
// its own: its reply may be large, and is looked at by itself.
func (s *Session) batch(items []store.Request) int {
	for n := range items {
		if items[n].Cmd == refused {
			return n
		}
		cmd := command.At(items[n].Cmd)
		slow := cmd.Flags&command.Slow != 0
		if !cmd.Store() || slow && n > 0 {
			return n
		}
		items[n].DB, items[n].Proto = s.conn.DB, s.conn.Proto
		s.conn.LastCmd = cmd
		if slow {
			return 1
		}
	}
	return len(items)
}

// runBatch has the store decide the requests and waits until it has.
func (s *Session) runBatch(w *work, requests []store.Request, out []byte) []byte {
	b := &w.batch
	b.Requests, b.Out = requests, out
	start := command.Ticks()
	s.conn.Begin(requests[len(requests)-1].Cmd, start)
	b.Outcome = store.Decided
	if !s.store.Run(b) {
		<-w.done
	}
	if b.Outcome == store.Decided {
		s.pipe.applied = true
		s.server.Fallback.End()
	} else {
		b.Out = s.undecided(b)
	}
	s.server.Observe(&s.conn, requests, start, command.Ticks())
	return b.Out
}

// runConn runs a command about the connection.
func (s *Session) runConn(w *work, cmd *command.Command, args [][]byte, out []byte) []byte {
	s.conn.LastCmd = cmd
	w.ctx.Conn, w.ctx.Server, w.ctx.Args = &s.conn, s.server, args
	w.ctx.W.B, w.ctx.W.Proto = out, s.conn.Proto
	start, before := command.Ticks(), len(out)
	s.conn.Begin(cmd.Index(), start)
	cmd.Conn(&w.ctx)
	w.ctx.W.B = s.ranConn(cmd, w.ctx.W.B, before)
	s.server.ObserveConn(&s.conn, cmd, args, w.ctx.W.B[before:], start, command.Ticks())
	return w.ctx.W.B
}

// appendError appends an error, which looks the same in both protocols.
func appendError(out []byte, line string) []byte {
	w := resp.Writer{B: out}
	w.Error(line)
	return w.B
}
