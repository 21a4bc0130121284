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

	// MaxOutput is how many bytes of replies one Flush may gather before it
	// stops: the rest of the pipeline is not run and the connection is closed.
	// One reply may go beyond it. 0: no bound.
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

	multi   bool // MULTI was sent, and neither EXEC nor DISCARD since
	dropped bool // close after the replies so far; nothing more is taken
}

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
	return s
}

// work is the memory for one pipeline. It is shared by all connections through
// a pool: at any time only those that are at work have one.
type work struct {
	items []store.Request // in order; Cmd is an index of the table or refused
	lines []string        // the errors of the refused ones, in order
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
	w.batch.Requests, w.batch.Out = nil, nil
	w.ctx = command.ConnCtx{}
	works.Put(w)
}

// Authenticated says whether the connection may run every command. It changes
// in Flush only.
func (s *Session) Authenticated() bool { return s.conn.Authenticated }

// Closed tells that the connection is gone. What was collected is not run.
func (s *Session) Closed() {
	if s.work != nil {
		s.work.free()
		s.work = nil
	}
	s.dropped = true
}

// Command takes one command of the pipeline: the name and its arguments, which
// must stay as they are until Flush returns. No words at all is nothing.
func (s *Session) Command(args [][]byte) {
	if s.dropped || len(args) == 0 {
		return
	}
	cmd, line := command.Find(args)
	inside, refusal := command.Transaction(args[0], s.multi)
	s.multi = inside
	if refusal != "" {
		cmd, line = nil, refusal
	} else if cmd == nil && speaksHTTP(args[0]) {
		s.dropped = true
		s.server.Counters.CrossClosed.Add(1)
		return
	}
	if s.work == nil {
		s.work = works.Get().(*work)
	}
	item := store.Request{Args: args, Cmd: refused}
	if cmd != nil {
		item.Cmd = cmd.Index()
	} else {
		s.work.lines = append(s.work.lines, line)
	}
	s.work.items = append(s.work.items, item)
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

// Flush decides what was collected since the last call and appends the replies
// to out. It returns the buffer, and whether to close the connection once it
// is sent. It may wait for the store.
func (s *Session) Flush(out []byte) (reply []byte, close bool) {
	if w := s.work; w != nil {
		// Taken off first: after a panic in a command the memory is in an
		// unknown state and must not be used again.
		s.work = nil
		out = s.run(w, out)
		w.free()
	}
	return out, s.dropped
}

// run decides the commands in order.
func (s *Session) run(w *work, out []byte) []byte {
	lines := w.lines
	i := 0
	for i < len(w.items) && !s.conn.Closing {
		if s.maxOutput > 0 && len(out) > s.maxOutput {
			// A few bytes can ask for many: a pipeline of SCANs with a large
			// COUNT must not be gathered to its end.
			s.conn.Closing = true
			break
		}
		item := &w.items[i]
		if item.Cmd == refused {
			out = appendError(out, lines[0])
			lines = lines[1:]
			i++
			continue
		}
		cmd := command.At(item.Cmd)
		switch {
		case !s.conn.Authenticated && cmd.Flags&command.NoAuth == 0:
			out = appendError(out, command.ErrNoAuth)
			i++
		case cmd.Store():
			n := s.batch(w.items[i:])
			out = s.runBatch(w, w.items[i:i+n], out)
			i += n
		default:
			out = s.runConn(w, cmd, item.Args, out)
			i++
		}
	}
	s.server.Counters.Commands.Add(int64(i))
	s.dropped = s.dropped || s.conn.Closing
	return out
}

// batch makes ready the store commands at the beginning of items and returns
// how many are one batch; the first item is one. A slow command ends it: its
// reply may be large and is looked at before the next one is asked for.
func (s *Session) batch(items []store.Request) int {
	for n := range items {
		if items[n].Cmd == refused {
			return n
		}
		cmd := command.At(items[n].Cmd)
		if !cmd.Store() {
			return n
		}
		items[n].DB, items[n].Proto = s.conn.DB, s.conn.Proto
		s.conn.LastCmd = cmd
		if cmd.Flags&command.Slow != 0 {
			return n + 1
		}
	}
	return len(items)
}

// runBatch has the store decide the requests and waits until it has.
func (s *Session) runBatch(w *work, requests []store.Request, out []byte) []byte {
	b := &w.batch
	b.Requests, b.Out = requests, out
	if !s.store.Run(b) {
		<-w.done
	}
	return b.Out
}

// runConn runs a command about the connection.
func (s *Session) runConn(w *work, cmd *command.Command, args [][]byte, out []byte) []byte {
	s.conn.LastCmd = cmd
	w.ctx.Conn, w.ctx.Server, w.ctx.Args = &s.conn, s.server, args
	w.ctx.W.B, w.ctx.W.Proto = out, s.conn.Proto
	cmd.Conn(&w.ctx)
	return w.ctx.W.B
}

// appendError appends an error, which looks the same in both protocols.
func appendError(out []byte, line string) []byte {
	w := resp.Writer{B: out}
	w.Error(line)
	return w.B
}
