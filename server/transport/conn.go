package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/server/resp"
	"github.com/tidwall/redcon"
)

// conn is one connection. All but the atomics and what at guards belongs to
// whoever drives it: its own goroutine, or an event loop (loop_linux.go).
//
// Replies keep their order, and a client that sends faster than it is served
// feels it, because input stays unread until everything read before it has
// been decided and its replies are with the operating system.
type conn struct {
	s    *Server
	nc   net.Conn // nil while an event loop has it; changed with at held
	info ConnInfo
	sess Session

	at     sync.Mutex // for those who close or wake it from outside
	looped *looped    // nil while a goroutine has it
	dead   bool       // killed

	// rounds is how many the goroutine still drives before an event loop may
	// have the connection (back); stay is the number for the next time.
	rounds, stay int
	last         bool // only to write what is in out, and end

	guard resp.Guard
	buf   []byte // input; its length is its capacity
	r, w  int    // buf[r:w] has arrived and is not yet handed over
	args  [][]byte
	out   []byte       // replies not yet written
	held  int64        // bytes of buf that are counted in Server.held
	owed  atomic.Int64 // bytes of out that are counted in Server.heldReplies; written by the goroutine alone

	steps uint64 // how often the client has sent bytes, and a write has begun

	// For the watch: steps and the phase the goroutine is in. Written by the
	// goroutine alone.
	beat atomic.Uint64
	// From the watch: the beat it saw and what it asked for then. An order for
	// another beat than the present one came too late and means nothing.
	order atomic.Uint64

	bytesIn, bytesOut, commands, batches atomic.Uint64

	watched // the watch's own notes
}

// serve is the connection's goroutine: from the beginning, or from where an
// event loop has left off.
func (c *conn) serve() {
	move := false
	defer func() {
		if !move {
			c.leave(recover())
		}
	}()
	move = c.drive()
	if move {
		c.s.loops.adopt(c)
	}
}

// drive serves the connection until its end, or until it may go to an event
// loop: it reports which.
func (c *conn) drive() (move bool) {
	if c.sess == nil {
		if !c.secure() {
			return false
		}
		c.sess = c.s.o.NewSession(c.info)
		c.buf = make([]byte, bufSmall)
	}
	switch {
	case c.last:
		c.farewell()
		return false
	case (c.w > 0 || len(c.out) > 0) && c.round():
		return false
	}
	for !c.s.draining.Load() {
		if c.rounds <= 0 && c.mayMove() {
			return true
		}
		if c.w == len(c.buf) && !c.grow() {
			c.farewell()
			return false
		}
		if c.w > bufSmall {
			c.enter(stalled)
		} else {
			c.enter(reading)
		}
		n, err := c.nc.Read(c.buf[c.w:])
		if n > 0 {
			c.steps++
			c.enter(deciding)
			c.bytesIn.Add(uint64(n))
			c.w += n
			c.rounds--
			if c.round() {
				return false
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if c.obey() {
				return false
			}
		default:
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				c.s.o.Log.Debug("reading from a client failed", "id", c.info.ID, "error", err)
			}
			return false
		}
	}
	c.closeGently()
	return false
}

// leave ends the connection; v is what it panicked with, or nil. A panic stops
// here: it has cost this client its connection and nobody else anything.
func (c *conn) leave(v any) {
	defer c.s.wg.Done()
	if v != nil {
		c.panicked("handling a connection panicked, it is closed", v)
	}
	c.enter(leaving)
	c.s.garbage.Add(idleBytes)
	if c.nc != nil {
		_ = c.nc.Close()
	}
	c.s.held.Add(-c.held)
	c.s.heldReplies.Add(-c.owed.Swap(0))
	defer c.s.leave(c)
	if c.sess == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			c.panicked("ending a session panicked", v)
		}
	}()
	c.sess.Closed()
}

// panicked counts and logs a panic.
func (c *conn) panicked(what string, v any) {
	c.s.panics.Add(1)
	c.s.o.Log.Error(what, "id", c.info.ID, "panic", v, "stack", string(debug.Stack()))
}

// round handles everything that has arrived: batch after batch is decided, and
// the replies of all of them are one write unless they are large. It reports
// whether the connection is to be closed.
func (c *conn) round() (end bool) {
	for {
		used, count, next, fault := c.collect(c.buf[c.r:c.w], true)
		c.r += used
		more := next == others
		// A full buffer may not hold all that was sent, and a part of a command
		// is never sent alone.
		cut := c.r < c.w || c.w == len(c.buf)
		if count > 0 && !c.decide(count, cut) {
			return true
		}
		if fault != nil {
			c.faulty(fault)
			c.farewell()
			return true
		}
		if len(c.out) > 0 && (!more || len(c.out) >= resp.FlushBytes) && !c.flush() {
			return true
		}
		if !more {
			c.tidy()
			return false
		}
	}
}

// decide has the session decide a batch of count commands, and writes replies
// as often as it has enough of them. It fails when the connection is to be
// closed.
func (c *conn) decide(count int, cut bool) bool {
	c.commands.Add(uint64(count))
	c.batches.Add(1)
	for {
		out, more, end := c.sess.Flush(c.out, cut)
		c.out = out
		if !c.account() {
			return false
		}
		if len(out) > c.s.o.MaxOutput+resp.FlushBytes {
			c.s.slowClosed.Add(1)
			c.s.o.Log.Warn("a reply is over the output bound, the connection is closed", "id", c.info.ID, "bytes", len(out), "bound", c.s.o.MaxOutput)
			return false
		}
		if end != nil {
			c.ended(end)
			c.farewell()
			return false
		}
		if !more {
			c.args = c.args[:0]
			return true
		}
		if !c.flush() {
			return false
		}
	}
}

// ended tells why the session wants the end, if that is for the operator.
func (c *conn) ended(end error) {
	var over interface{ OverOutput() bool }
	if errors.As(end, &over) && over.OverOutput() {
		c.s.slowClosed.Add(1)
		c.s.o.Log.Warn("a reply is over the output bound, the connection is closed", "id", c.info.ID, "error", end)
	}
}

// faulty counts input that is no command, and appends the error that is the
// last reply.
func (c *conn) faulty(fault error) {
	c.s.protocolErrors.Add(1)
	c.s.o.Log.Debug("a client does not speak the protocol, the connection is closed", "id", c.info.ID, "error", fault)
	if errors.Is(fault, resp.ErrTLS) {
		c.s.countTLS(c.info.ID, c.info.Remote)
	}
	w := resp.Writer{B: c.out}
	w.Error("ERR " + fault.Error())
	c.out = w.B
}

// account books what the output buffer holds. When that grows and is, with those
// of all other connections, over the bound, the memory is with clients that do
// not read: the one that holds the most of it is closed, and only if there is
// none this one. It fails in that case.
func (c *conn) account() bool {
	owed, was := int64(0), c.owed.Load()
	if cap(c.out) > bufLarge {
		owed = int64(cap(c.out))
	}
	if owed == was {
		return true
	}
	sum := c.s.heldReplies.Add(owed - was)
	c.owed.Store(owed)
	if owed < was || sum <= c.s.o.MaxReplies {
		return true
	}
	victim := c.s.hog(c)
	c.s.slowClosed.Add(1)
	c.s.o.Log.Warn("replies that clients have not taken hold too much memory, a connection is closed",
		"id", victim.info.ID, "its", victim.owed.Load(), "bytes", sum, "bound", c.s.o.MaxReplies)
	if victim == c {
		return false
	}
	victim.kill()
	return true
}

// What collect has found behind the commands that it took.
type next uint8

const (
	nothing next = iota // but a part of a command at most
	others              // commands may follow, after a Flush
	slow                // a command that the session takes only where it may wait
	garbage             // no command
)

// collect hands commands to the session until it is time for a Flush. It
// returns how many bytes of in and how many commands these were, and what
// follows; fault says why it is garbage. wait allows commands that take long.
func (c *conn) collect(in []byte, wait bool) (used, count int, n next, fault error) {
	authenticated := c.sess.Authenticated()
	for count < batchCommands && used < batchBytes {
		size, v, err := c.guard.Next(in[used:], &c.s.o.Limits, authenticated)
		switch v {
		case resp.More:
			return used, count, nothing, nil
		case resp.Bad:
			return used, count, garbage, err
		}
		command := in[used : used+size]
		if v == resp.Empty {
			used += size
			continue
		}
		args, fault := c.parse(command)
		if fault != nil {
			return used, count, garbage, fault
		}
		if len(args) == 0 {
			used += size // a line of blanks
			continue
		}
		if !c.sess.Command(args, wait) {
			return used, count, slow, nil
		}
		used += size
		count++
		if !authenticated {
			// The next command may be larger if this one is the password.
			break
		}
	}
	return used, count, others, nil
}

// parse splits a command that the guard has called complete. All commands of a
// batch have their arguments in one slice; it is replaced, not moved, when it
// is too short: the session still has the ones before.
func (c *conn) parse(command []byte) (args [][]byte, fault error) {
	need := c.guard.Args()
	if need == 0 {
		need = resp.MaxWords(len(command))
	}
	used := len(c.args)
	if cap(c.args)-used < need {
		c.args, used = make([][]byte, 0, max(2*cap(c.args), need, 64)), 0
	}
	room := c.args[used:used:cap(c.args)]
	if c.guard.Args() > 0 {
		_, args, _, _, fault = redcon.ReadNextCommand(command, room)
	} else if words, err := resp.AppendWords(room, command); err != nil {
		fault = err // not assigned at once: a nil pointer would be an error
	} else {
		args = words
	}
	if fault != nil {
		return nil, fault
	}
	c.args = c.args[:used+len(args)]
	return args[:len(args):len(args)], nil
}

// tidy makes room at the end of a round: what is left of the input moves to
// the front, and what was needed only for something large goes.
func (c *conn) tidy() {
	more := c.w == len(c.buf) && c.r > 0 // the buffer was full, and not of one command
	c.w = copy(c.buf, c.buf[c.r:c.w])
	c.r = 0
	if cap(c.out) > bufLarge {
		c.out = nil
		c.account()
	}
	switch {
	case len(c.buf) > bufLarge && c.w <= bufLarge/2:
		c.resize(bufLarge)
	case more && len(c.buf) < bufLarge:
		// The client sends more at a time than fits: fewer, larger batches.
		c.resize(2 * len(c.buf))
	}
	if cap(c.args) > 4*batchCommands {
		c.args = nil
	}
}

// grow makes a buffer that is full of one unfinished command larger. If that
// would be over a bound it leaves an error among the replies and fails. Room is
// made as bytes come, never because a length announces them.
func (c *conn) grow() bool {
	most := max(c.s.o.Limits.MaxCommand, bufLarge) + 64 // the guard may want to see a length beyond the bound
	size := min(2*len(c.buf), most)
	w := resp.Writer{B: c.out}
	if size <= len(c.buf) {
		c.s.protocolErrors.Add(1)
		w.Error("ERR Protocol error: too big a command")
		c.out = w.B
		return false
	}
	c.resize(size)
	if c.held > 0 && c.s.held.Load() > c.s.o.MaxInput {
		c.s.slowClosed.Add(1)
		c.s.o.Log.Warn("unfinished commands hold too much memory, a connection is closed", "id", c.info.ID, "bytes", c.s.held.Load(), "bound", c.s.o.MaxInput)
		w.Error("ERR the unfinished commands of all clients together are too large")
		c.out = w.B
		return false
	}
	return true
}

// resize replaces the input buffer by one of size bytes, at least c.w.
func (c *conn) resize(size int) {
	old := c.buf[:c.w]
	c.buf = make([]byte, size)
	copy(c.buf, old)
	c.args = nil // its slices would keep the old buffer
	held := int64(0)
	if size > bufLarge {
		held = int64(size)
	}
	c.s.held.Add(held - c.held)
	c.held = held
}

// shrink gives back what a silent connection does not need.
func (c *conn) shrink() {
	c.s.garbage.Add(int64(len(c.buf) - min(len(c.buf), bufSmall) + cap(c.out)))
	if len(c.buf) > bufSmall && c.w < bufSmall {
		c.resize(bufSmall)
	}
	c.args, c.out = nil, nil
	c.account()
}

// farewell writes the last replies and sees to it that the client gets them.
func (c *conn) farewell() {
	if c.flush() {
		c.closeGently()
	}
}

// closeGently ends the connection in a way that leaves the client its last replies. At
// a stop most clients have nothing under way: those are not waited for.
func (c *conn) closeGently() {
	c.enter(leaving)
	quiet := lingerFor
	if c.s.draining.Load() {
		quiet = lingerQuiet
	}
	linger(c.nc, c.buf, quiet)
}

// flush writes the replies. It fails when the connection is broken or the
// client has taken too little for too long.
func (c *conn) flush() bool {
	rest := c.out
	c.out = c.out[:0]
	for len(rest) > 0 {
		n, err := c.write(rest)
		rest = rest[n:]
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			c.s.o.Log.Debug("writing to a client failed", "id", c.info.ID, "error", err)
			return false
		case c.ordered() != orderSlow:
			// The order was for an earlier write.
			_ = c.nc.SetWriteDeadline(time.Time{})
		default:
			// The system says that there is room only when there is much. What
			// there is now counts as taken too.
			_ = c.nc.SetWriteDeadline(time.Now().Add(lastLook))
			more, err := c.write(rest)
			rest = rest[more:]
			if len(rest) > 0 && n+more < leastProgress {
				c.s.slowClosed.Add(1)
				c.s.o.Log.Info("a client does not read its replies, the connection is closed", "id", c.info.ID, "bytes", len(rest), "error", err)
				return false
			}
			_ = c.nc.SetWriteDeadline(time.Time{})
		}
	}
	c.enter(deciding)
	return true
}

// write is one Write, seen by the watch as a new one.
func (c *conn) write(b []byte) (int, error) {
	c.steps++
	c.enter(writing)
	n, err := c.nc.Write(b)
	c.bytesOut.Add(uint64(n))
	return n, err
}
