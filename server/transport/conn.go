package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/server/resp"
	"github.com/tidwall/redcon"
)

// conn is one connection. All but the atomics belongs to its goroutine.
//
// Replies keep their order, and a client that sends faster than it is served
// feels it, because input stays unread until everything read before it has
// been decided and its replies are with the operating system.
type conn struct {
	s    *Server
	nc   net.Conn
	info ConnInfo
	sess Session

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

// serve is the connection's goroutine.
func (c *conn) serve() {
	defer c.leave()
	if !c.secure() {
		return
	}
	c.sess = c.s.o.NewSession(c.info)
	c.buf = make([]byte, bufSmall)
	for !c.s.draining.Load() {
		if c.w == len(c.buf) && !c.grow() {
			c.farewell()
			return
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
			if c.round() {
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if c.obey() {
				return
			}
		default:
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				c.s.o.Log.Debug("reading from a client failed", "id", c.info.ID, "error", err)
			}
			return
		}
	}
	c.closeGently()
}

// leave ends the connection. A panic in it stops here: it has cost this client
// its connection and nobody else anything.
func (c *conn) leave() {
	if v := recover(); v != nil {
		c.s.panics.Add(1)
		c.s.o.Log.Error("handling a connection panicked, it is closed", "id", c.info.ID, "panic", v, "stack", string(debug.Stack()))
	}
	c.enter(leaving)
	_ = c.nc.Close()
	c.s.held.Add(-c.held)
	c.s.heldReplies.Add(-c.owed.Swap(0))
	defer c.s.leave(c)
	if c.sess == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			c.s.panics.Add(1)
			c.s.o.Log.Error("ending a session panicked", "id", c.info.ID, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	c.sess.Closed()
}

// round handles everything that has arrived: batch after batch is decided, and
// the replies of all of them are one write unless they are large. It reports
// whether the connection is to be closed.
func (c *conn) round() (end bool) {
	for {
		count, more, fault := c.collect()
		if count > 0 && !c.decide(count) {
			return true
		}
		if fault != nil {
			c.s.protocolErrors.Add(1)
			c.s.o.Log.Debug("a client does not speak the protocol, the connection is closed", "id", c.info.ID, "error", fault)
			if errors.Is(fault, resp.ErrTLS) {
				c.s.countTLS(c.info.ID, c.info.Remote)
			}
			c.refuse("ERR " + fault.Error())
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
func (c *conn) decide(count int) bool {
	c.commands.Add(uint64(count))
	c.batches.Add(1)
	for {
		out, more, end := c.sess.Flush(c.out)
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
			var over interface{ OverOutput() bool }
			if errors.As(end, &over) && over.OverOutput() {
				c.s.slowClosed.Add(1)
				c.s.o.Log.Warn("a reply is over the output bound, the connection is closed", "id", c.info.ID, "error", end)
			}
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

// collect hands commands to the session until it is time for a Flush, and
// returns how many. more says that others may have arrived behind them; fault
// is what the next bytes are, if not a command.
func (c *conn) collect() (count int, more bool, fault error) {
	authenticated := c.sess.Authenticated()
	for from := c.r; count < batchCommands && c.r-from < batchBytes; {
		n, v, err := c.guard.Next(c.buf[c.r:c.w], &c.s.o.Limits, authenticated)
		switch v {
		case resp.More:
			return count, false, nil
		case resp.Bad:
			return count, false, err
		}
		command := c.buf[c.r : c.r+n]
		c.r += n
		if v == resp.Empty {
			continue
		}
		args, fault := c.parse(command)
		if fault != nil {
			return count, false, fault
		}
		if len(args) == 0 {
			continue // a line of blanks
		}
		c.sess.Command(args)
		count++
		if !authenticated {
			// The next command may be larger if this one is the password.
			break
		}
	}
	return count, true, nil
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
	if len(c.buf) > bufSmall && c.w < bufSmall {
		c.resize(bufSmall)
	}
	c.args, c.out = nil, nil
	c.account()
}

// refuse answers with an error, after the replies before it, and ends.
func (c *conn) refuse(line string) {
	w := resp.Writer{B: c.out}
	w.Error(line)
	c.out = w.B
	c.farewell()
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
