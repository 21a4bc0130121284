//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/pool/goroutine"
	"golang.org/x/sys/unix"
)

// A goroutine a connection costs the scheduler twice for each pipeline: to put
// it to sleep and to wake it, which without pipelining is more than the command.
// An event loop waits for many connections at once and serves one after the
// other, on one goroutine, with one set of buffers.
//
// It must never wait for anything, so it serves only what needs no wait: commands
// that are decided at once and whose replies the socket takes at once. As soon as
// a connection needs more (a command that may take long, a reply that the client
// does not take, a command that comes in large pieces, a last reply that is to
// arrive) it gets a goroutine, with its backpressure, limits and time-outs, and
// goes back when it has been without trouble for a while. So there is one set of
// rules, and the loops are an optimisation of the usual case.
//
// The loops are gnet's, without its listeners (which stop the process's engine
// when file descriptors run out) and without its buffers: what a client has sent
// is taken out whole each time, and replies are written here, because gnet would
// keep in memory without bound what a client does not take.

// Bounds of the loops.
const (
	stayFirst = 4    // rounds on a goroutine before an event loop takes a new connection: most short-lived ones are gone by then
	stayLeast = 16   // the same after trouble, doubled each time …
	stayMost  = 4096 // … up to this, so that moving to and fro costs nothing in the mean

	loopKeeps = 256 << 10 // the largest reply buffer that a loop keeps
	lookAt    = 512       // connections looked at in a row, so that nobody waits for the look
)

// loops are a Server's event loops. They run from the first connection moved to
// one until stop.
type loops struct {
	gnet.BuiltinEventEngine
	s *Server

	mu     sync.Mutex
	client *gnet.Client // nil before the first connection, and after a failure
	failed bool
	all    map[gnet.EventLoop]*loop
}

// loop is what belongs to one event loop. Only its goroutine uses it.
type loop struct {
	s     *Server
	event gnet.EventLoop
	conns []*conn // in no order; conn.looped.at is the place of each

	// Lent to the connection being served.
	args [][]byte
	out  []byte
}

// looped is a connection's place in a loop. Only the loop's goroutine uses it,
// but for close.
type looped struct {
	loop  *loop
	gc    gnet.Conn
	fd    int
	place int

	steps, seen uint64 // how often the client has sent something; when last looked at
	since       time.Time
}

// close ends the connection soon, from any goroutine.
func (l *looped) close() { _ = l.gc.Close() }

// running starts the loops if they are not running, and reports whether they
// are.
func (ls *loops) running() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.client != nil || ls.failed {
		return !ls.failed
	}
	// Only gnet's own Enroll uses its pool of goroutines, and the two of them
	// that look after it wake up twice a second.
	goroutine.DefaultWorkerPool.Release()
	ls.all = make(map[gnet.EventLoop]*loop)
	log := gnetLog{ls.s.o.Log}
	client, err := gnet.NewClient(ls, gnet.WithNumEventLoop(ls.s.o.Loops), gnet.WithReadBufferCap(bufLarge), gnet.WithLogger(log))
	if err == nil {
		err = client.Start()
	}
	if err != nil {
		ls.failed = true
		ls.s.o.Log.Error("the event loops cannot be started, goroutines serve all connections", "error", err)
		return false
	}
	ls.client = client
	return true
}

// stop ends the loops and waits for them. There are no connections any more.
func (ls *loops) stop() {
	ls.mu.Lock()
	client := ls.client
	ls.mu.Unlock()
	if client != nil {
		_ = client.Stop()
	}
}

// mayMove reports whether an event loop may take the connection now.
func (c *conn) mayMove() bool {
	if c.s.o.Loops == 0 || c.w-c.r > bufSmall || len(c.out) > 0 || !c.sess.Authenticated() {
		return false
	}
	tcp, ok := c.nc.(*net.TCPConn)
	if !ok {
		return false
	}
	// gnet would give the memory of a zone's name, which belongs to package
	// net, to its pool of buffers.
	remote, ok := tcp.RemoteAddr().(*net.TCPAddr)
	local, ok2 := tcp.LocalAddr().(*net.TCPAddr)
	return ok && ok2 && remote.Zone == "" && local.Zone == "" && c.s.loops.running()
}

// adoption is a connection on its way to a loop.
type adoption struct {
	c      *conn
	opened bool // the loop has it
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
	a := &adoption{c: c}
	_, err := ls.client.EnrollContext(c.nc, a)
	if err != nil || !a.opened {
		ls.s.o.Log.Warn("a connection could not be moved to an event loop, it is closed", "id", c.info.ID, "error", err)
		c.leave(nil)
	}
}

// of returns what belongs to an event loop.
func (ls *loops) of(event gnet.EventLoop) *loop {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.all[event]
	if l == nil {
		l = &loop{s: ls.s, event: event, out: make([]byte, 0, bufLarge)}
		ls.all[event] = l
	}
	return l
}

// each has f run on every loop, soon.
func (ls *loops) each(f func(*loop)) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.all {
		l.run(func() { f(l) })
	}
}

// run has f run on the loop's goroutine, soon.
func (l *loop) run(f func()) {
	_ = l.event.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
		f()
		return nil
	}))
}

// look has every loop look for connections that have been silent for too long.
func (ls *loops) look(now time.Time) {
	ls.each(func(l *loop) { l.look(now, len(l.conns)) })
}

// drain gives every connection a goroutine, which sees that the server stops.
func (ls *loops) drain() {
	ls.each(func(l *loop) {
		for len(l.conns) > 0 {
			c := l.conns[len(l.conns)-1]
			gc := c.looped.gc
			if l.release(c, nil, false) == gnet.Close {
				_ = l.event.Close(gc)
			}
		}
	})
}

// OnOpen takes over a connection from its goroutine.
func (ls *loops) OnOpen(gc gnet.Conn) ([]byte, gnet.Action) {
	a := gc.Context().(*adoption)
	c, l := a.c, ls.of(gc.EventLoop())
	a.opened = true
	gc.SetContext(c)
	c.at.Lock()
	c.nc = nil
	c.looped = &looped{loop: l, gc: gc, fd: gc.Fd(), place: len(l.conns)}
	dead := c.dead
	c.at.Unlock()
	l.conns = append(l.conns, c)
	switch {
	case dead:
		return nil, gnet.Close
	case ls.s.draining.Load():
		return nil, l.release(c, nil, false)
	}
	return nil, gnet.None
}

// OnTraffic serves what has arrived.
func (ls *loops) OnTraffic(gc gnet.Conn) (action gnet.Action) {
	c, ok := gc.Context().(*conn)
	if !ok {
		return gnet.Close // released before
	}
	l := c.looped.loop
	defer func() {
		if v := recover(); v != nil {
			// What was lent may still be in use by who knows whom.
			l.args, l.out = nil, nil
			c.panicked("handling a connection panicked, it is closed", v)
			action = gnet.Close
		}
	}()
	data, _ := gc.Next(-1)
	return l.traffic(c, data)
}

// OnClose ends a connection that has not been given a goroutine.
func (ls *loops) OnClose(gc gnet.Conn, err error) gnet.Action {
	c, ok := gc.Context().(*conn)
	if !ok {
		return gnet.None
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.s.o.Log.Debug("reading from a client failed", "id", c.info.ID, "error", err)
	}
	c.looped.loop.remove(c)
	c.leave(nil)
	return gnet.None
}

// remove takes a connection out of the loop's list.
func (l *loop) remove(c *conn) {
	c.at.Lock()
	place := c.looped.place
	c.looped = nil
	c.at.Unlock()
	end := len(l.conns) - 1
	if place != end {
		l.conns[place] = l.conns[end]
		l.conns[place].looped.place = place
	}
	l.conns[end] = nil
	l.conns = l.conns[:end]
}

// traffic decides what has arrived: batch after batch, and the replies of all of
// them are one write.
func (l *loop) traffic(c *conn, data []byte) gnet.Action {
	c.looped.steps++
	c.bytesIn.Add(uint64(len(data)))
	in := data
	if len(c.buf) > 0 {
		c.buf = append(c.buf, data...)
		in = c.buf
	}
	c.args, c.out = l.args[:0], l.out[:0]
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
				if c.out, more, end = c.sess.Flush(c.out); end != nil {
					c.ended(end)
					return l.release(c, nil, true)
				}
			}
			c.args = c.args[:0]
		}
		switch n {
		case garbage:
			c.faulty(fault)
			return l.release(c, nil, true)
		case slow:
			return l.release(c, in, false)
		case others:
			if len(c.out) < loopKeeps {
				continue
			}
		}
		if len(c.out) > 0 {
			if err := l.write(c); err != nil {
				c.s.o.Log.Debug("writing to a client failed", "id", c.info.ID, "error", err)
				l.takeBack(c)
				return gnet.Close
			}
		}
		if len(c.out) > 0 || len(in) > bufSmall && n == nothing || !c.sess.Authenticated() {
			return l.release(c, in, false)
		}
		if n == nothing {
			l.takeBack(c)
			l.keep(c, in)
			return gnet.None
		}
	}
}

// write gives the socket the replies. What it does not take is left in c.out.
func (l *loop) write(c *conn) error {
	for out := c.out; ; {
		n, err := unix.Write(c.looped.fd, out)
		if n > 0 {
			c.bytesOut.Add(uint64(n))
			out = out[n:]
		}
		switch {
		case len(out) == 0:
			c.out = c.out[:0]
			return nil
		case err == nil || errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			c.out = c.out[:copy(c.out, out)]
			return nil
		default:
			return err
		}
	}
}

// takeBack takes back what was lent to a connection.
func (l *loop) takeBack(c *conn) {
	l.args, l.out = c.args, c.out
	c.args, c.out = nil, nil
	if cap(l.args) > 4*batchCommands {
		l.args = nil
	}
	if cap(l.out) > loopKeeps {
		l.out = make([]byte, 0, bufLarge)
	}
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

// release gives a connection a goroutine: to go on with the input rest, or only
// to write the last replies. It returns what gnet is to do with its own side.
func (l *loop) release(c *conn, rest []byte, last bool) gnet.Action {
	gc := c.looped.gc
	size := bufSmall
	for size <= len(rest) {
		size *= 2
	}
	if rest == nil && !last {
		rest = c.buf // the server stops
	}
	buf := make([]byte, size)
	c.r, c.w = 0, copy(buf, rest)
	out := append([]byte(nil), c.out...)
	if c.out != nil {
		l.takeBack(c)
	}
	c.buf, c.args, c.out, c.last = buf, nil, out, last
	nc, err := duplicate(gc.Fd())
	c.at.Lock()
	if err != nil || c.dead {
		c.at.Unlock()
		if err != nil {
			c.s.o.Log.Warn("a connection could not be given a goroutine, it is closed", "id", c.info.ID, "error", err)
		} else {
			_ = nc.Close()
		}
		return gnet.Close
	}
	c.nc = nc
	c.at.Unlock()
	l.remove(c)
	gc.SetContext(nil)
	c.stay = min(max(2*c.stay, c.s.back), stayMost)
	c.rounds = c.stay
	if !c.account() {
		c.last, c.out = true, nil
	}
	go c.serve()
	return gnet.Close
}

// duplicate returns a net.Conn of the same socket: gnet closes its own.
func duplicate(fd int) (net.Conn, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(dup), "connection")
	defer file.Close()
	return net.FileConn(file)
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
			_ = l.event.Close(p.gc)
		}
	}
	if until > 0 {
		l.run(func() { l.look(now, until) })
	}
}

// gnetLog is gnet's log in ours. What gnet calls an error is not one of the
// server's: a connection that failed.
type gnetLog struct{ log *slog.Logger }

func (g gnetLog) Debugf(format string, args ...any) { g.write(slog.LevelDebug, format, args) }
func (g gnetLog) Infof(format string, args ...any)  { g.write(slog.LevelDebug, format, args) }
func (g gnetLog) Warnf(format string, args ...any)  { g.write(slog.LevelWarn, format, args) }
func (g gnetLog) Errorf(format string, args ...any) { g.write(slog.LevelWarn, format, args) }
func (g gnetLog) Fatalf(format string, args ...any) { g.write(slog.LevelError, format, args) }

func (g gnetLog) write(level slog.Level, format string, args []any) {
	if g.log.Enabled(context.Background(), level) {
		g.log.Log(context.Background(), level, "event loop: "+fmt.Sprintf(format, args...))
	}
}
