package transport

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A goroutine a connection costs the scheduler twice for each pipeline: to put
// it to sleep and to wake it, which without pipelining is more than the command.
// An event loop waits for many connections at once (epoll) and serves one after
// the other, on one goroutine, with one set of buffers.
//
// It must never wait for anything else, so it serves only what needs no wait:
// commands that are decided at once and whose replies the socket takes at once.
// As soon as a connection needs more (a command that may take long, a reply that
// the client does not take, a command that comes in large pieces, a last reply
// that is to arrive) it gets a goroutine, with its backpressure, limits and
// time-outs, and goes back when it has been without trouble for a while. So there
// is one set of rules, and the loops are an optimisation of the usual case.
//
// A loop gives the processor away only where it blocks in epoll_wait. To yield
// before that, as loops that are friendly to their neighbours do, wakes another
// thread each time, which finds nothing to do: with single commands that was a
// third of a system call a command, see docs/server.md.

// mayMove reports whether an event loop may take the connection now.
func (c *conn) mayMove() bool {
	if c.s.o.Loops == 0 || c.w-c.r > bufSmall || len(c.out) > 0 || !c.sess.Authenticated() {
		return false
	}
	switch c.nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		return c.s.loops.start()
	}
	return false // TLS has to be taken apart first
}

// adopt moves a connection from its goroutine, which calls it, to a loop. If
// that fails the connection has ended.
func (ls *loops) adopt(c *conn) {
	c.enter(looping)
	c.s.garbage.Add(idleBytes)
	c.args, c.out = nil, nil
	c.account()
	if c.w -= c.r; c.w == 0 {
		c.buf = nil
	} else {
		c.buf = append(make([]byte, 0, bufSmall), c.buf[c.r:c.r+c.w]...)
	}
	c.r = 0
	fd, err := descriptor(c.nc.(syscall.Conn))
	if err != nil {
		if !errors.Is(err, net.ErrClosed) {
			c.s.o.Log.Warn("a connection could not be moved to an event loop, it is closed", "id", c.info.ID, "error", err)
		}
		c.leave(nil)
		return
	}
	c.at.Lock()
	_ = c.nc.Close()
	c.nc = nil
	c.at.Unlock()
	l := ls.least()
	l.post(func() { l.take(c, fd) })
}

// descriptor returns a file descriptor of the connection's socket that outlives
// the connection.
func descriptor(sc syscall.Conn) (fd int, err error) {
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, err
	}
	var fault error
	err = raw.Control(func(own uintptr) { fd, fault = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if err == nil {
		err = os.NewSyscallError("fcntl", fault)
	}
	return fd, err
}

// least is the loop with the fewest connections.
func (ls *loops) least() *loop {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	least := ls.all[0]
	for _, l := range ls.all[1:] {
		if l.load.Load() < least.load.Load() {
			least = l
		}
	}
	least.load.Add(1)
	return least
}

// take begins to serve a connection.
func (l *loop) take(c *conn, fd int) {
	for len(l.of) <= fd {
		l.of = append(l.of, nil)
	}
	c.at.Lock()
	c.looped = &looped{loop: l, fd: fd, place: len(l.conns)}
	dead := c.dead
	c.at.Unlock()
	l.conns = append(l.conns, c)
	l.of[fd] = c
	if dead {
		l.end(c, nil)
	} else if err := l.watch(fd); err != nil {
		l.end(c, err)
	} else if l.s.draining.Load() {
		l.release(c, nil, nil, false)
	}
}

// end closes a connection.
func (l *loop) end(c *conn, err error) {
	if err != nil {
		c.s.o.Log.Debug("serving a client failed", "id", c.info.ID, "error", err)
	}
	_ = unix.Close(l.remove(c))
	c.leave(nil)
}

// remove takes a connection out of the loop's lists and returns the file
// descriptor, which the caller closes.
func (l *loop) remove(c *conn) (fd int) {
	c.at.Lock()
	place, fd := c.looped.place, c.looped.fd
	c.looped = nil
	c.at.Unlock()
	l.load.Add(-1)
	l.of[fd] = nil
	end := len(l.conns) - 1
	if place != end {
		l.conns[place] = l.conns[end]
		l.conns[place].looped.place = place
	}
	l.conns[end] = nil
	l.conns = l.conns[:end]
	return fd
}

// look has every loop look for connections that have been silent for too long.
func (ls *loops) look(now time.Time) {
	ls.each(func(l *loop) { l.look(now, len(l.conns)) })
}

// drain gives every connection a goroutine, which sees that the server stops.
func (ls *loops) drain() {
	ls.each(func(l *loop) {
		for len(l.conns) > 0 {
			l.release(l.conns[len(l.conns)-1], nil, nil, false)
		}
	})
}

// ready reads and serves what a client has sent. A panic ends its connection.
func (l *loop) ready(c *conn) {
	defer func() {
		if v := recover(); v != nil {
			// What was lent may still be in use by who knows whom; what it
			// had been lent behind, others' replies, is untouched.
			l.in, l.args = make([]byte, bufLarge), nil
			c.panicked("handling a connection panicked, it is closed", v)
			if c.looped != nil {
				l.end(c, nil)
			}
		}
	}()
	n, err := unix.Read(c.looped.fd, l.in)
	switch {
	case n > 0:
		l.traffic(c, l.in[:n])
	case err == nil:
		l.end(c, nil) // the client has closed its side
	case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
		l.end(c, os.NewSyscallError("read", err))
	}
}

// traffic decides what has arrived, batch after batch. The replies are written
// when all that were ready have been served: clients that are woken together
// send together, and the next wait finds more to do.
func (l *loop) traffic(c *conn, data []byte) {
	c.looped.steps++
	c.bytesIn.Add(uint64(len(data)))
	in := data
	if len(c.buf) > 0 {
		c.buf = append(c.buf, data...)
		in = c.buf
	}
	// Its replies stand behind those of the connections before it.
	start := len(l.out)
	c.args, c.out = l.args[:0], l.out
	for {
		used, count, n, fault := c.collect(in, false)
		in = in[used:]
		if count > 0 {
			c.commands.Add(uint64(count))
			c.batches.Add(1)
			for more := true; more; {
				// The commands that are served here have small replies: those
				// of a batch are not worth a write of their own.
				var end error
				if c.out, more, end = c.sess.Flush(c.out, n != nothing || len(in) > 0); end != nil {
					c.ended(end)
					l.release(c, nil, l.takeBack(c, start), true)
					return
				}
			}
			c.args = c.args[:0]
		}
		switch {
		case n == garbage:
			c.faulty(fault)
			l.release(c, nil, l.takeBack(c, start), true)
			return
		case n == slow, len(in) > bufSmall && n == nothing, !c.sess.Authenticated():
			l.release(c, in, l.takeBack(c, start), false)
			return
		case n == others:
			if len(c.out)-start < loopKeeps {
				continue
			}
			rest, err := l.write(c, c.out[start:])
			if err != nil || len(rest) > 0 {
				l.takeBack(c, start)
				l.unable(c, in, rest, err)
				return
			}
			c.out = c.out[:start]
		default:
			l.keep(c, in)
			if out := l.takeBack(c, start); len(out) > 0 {
				l.out = l.out[:start+len(out)]
				l.owing = append(l.owing, owing{c, len(l.out)})
			}
			return
		}
	}
}

// owing says up to where in loop.out the replies of a connection reach that are
// to be written.
type owing struct {
	c   *conn
	end int
}

// pay writes the replies of all connections that were served.
func (l *loop) pay() {
	from := 0
	for _, o := range l.owing {
		if rest, err := l.write(o.c, l.out[from:o.end]); err != nil || len(rest) > 0 {
			l.unable(o.c, nil, rest, err)
		}
		from = o.end
	}
	clear(l.owing)
	l.owing = l.owing[:0]
	if l.out = l.out[:0]; cap(l.out) > loopKeeps {
		l.out = make([]byte, 0, bufLarge)
	}
}

// unable handles a connection whose client has not taken all replies, or is gone.
func (l *loop) unable(c *conn, in, rest []byte, err error) {
	if err != nil {
		l.end(c, os.NewSyscallError("write", err))
	} else {
		l.release(c, in, rest, false)
	}
}

// write gives the socket replies and returns what it does not take.
func (l *loop) write(c *conn, out []byte) (rest []byte, err error) {
	for len(out) > 0 {
		n, err := unix.Write(c.looped.fd, out)
		if n > 0 {
			c.bytesOut.Add(uint64(n))
			out = out[n:]
		}
		switch {
		case errors.Is(err, unix.EAGAIN):
			return out, nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return out, err
		}
	}
	return nil, nil
}

// takeBack takes back what was lent to a connection, and returns its replies.
// They are valid until the next use of the loop's buffer.
func (l *loop) takeBack(c *conn, start int) (out []byte) {
	out = c.out[start:]
	l.args, l.out = c.args, c.out[:start]
	c.args, c.out = nil, nil
	if cap(l.args) > 4*batchCommands {
		l.args = nil
	}
	return out
}

// keep remembers the beginning of a command that has not wholly arrived, at
// most bufSmall bytes.
func (l *loop) keep(c *conn, rest []byte) {
	switch {
	case len(rest) == 0:
		if cap(c.buf) > bufSmall {
			c.buf = nil
		} else {
			c.buf = c.buf[:0]
		}
	case cap(c.buf) > bufSmall || cap(c.buf) == 0:
		c.buf = append(make([]byte, 0, bufSmall), rest...)
	default:
		c.buf = c.buf[:copy(c.buf[:cap(c.buf)], rest)]
	}
}

// release gives a connection a goroutine: to write the replies out and go on with
// the input rest, or only to write them if they are the last. With nil as rest it
// is what the connection keeps.
func (l *loop) release(c *conn, rest, out []byte, last bool) {
	if rest == nil && !last {
		rest = c.buf
	}
	size := bufSmall
	for size <= len(rest) {
		size *= 2
	}
	buf := make([]byte, size)
	c.r, c.w = 0, copy(buf, rest)
	c.buf, c.out, c.last = buf, append([]byte(nil), out...), last

	fd := l.remove(c)
	file := os.NewFile(uintptr(fd), "connection")
	nc, err := net.FileConn(file) // a duplicate
	if err != nil {
		// No file descriptor is free: what the socket takes at once is all
		// that can be done.
		c.s.o.Log.Warn("a connection could not be given a goroutine, it is closed", "id", c.info.ID, "error", err)
		n, _ := unix.Write(fd, c.out)
		c.bytesOut.Add(uint64(max(n, 0)))
		_ = file.Close()
		c.leave(nil)
		return
	}
	// The loop's interest would live as long as the socket does.
	_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, fd, nil)
	_ = file.Close()
	c.at.Lock()
	c.nc = nc
	dead := c.dead
	c.at.Unlock()
	if dead {
		c.leave(nil)
		return
	}
	c.stay = min(max(2*c.stay, c.s.back), stayMost)
	c.rounds = c.stay
	if !c.account() {
		c.last, c.out = true, nil
	}
	go c.serve()
}

// look closes connections that have been silent for too long and gives back the
// buffers of silent ones, from the place before end downwards.
func (l *loop) look(now time.Time, end int) {
	idle := time.Duration(l.s.idleTimeout.Load())
	end = min(end, len(l.conns))
	until := max(end-lookAt, 0)
	// Downwards, because one that is closed is replaced by the last.
	for i := end - 1; i >= until; i-- {
		c := l.conns[i]
		p := c.looped
		if p.steps != p.seen || p.since.IsZero() {
			p.seen, p.since = p.steps, now
			continue
		}
		silent := now.Sub(p.since)
		if silent >= quietAfter && len(c.buf) == 0 {
			c.buf = nil
		}
		if idle > 0 && silent >= idle {
			c.idle()
			l.end(c, nil)
		}
	}
	if until > 0 {
		l.post(func() { l.look(now, until) })
	}
}
