package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of the loops.
const (
	stayFirst = 4    // rounds on a goroutine before an event loop takes a new connection: most short-lived ones are gone by then
	stayLeast = 16   // the same after trouble, doubled each time …
	stayMost  = 4096 // … up to this, so that moving to and fro costs nothing in the mean

	payFrom    = 32 << 10  // bytes of replies that are written before all that were ready are served
	loopKeeps  = 256 << 10 // the largest reply buffer that a loop keeps
	loopEvents = 128       // taken from the kernel at a time
	lookAt     = 512       // connections looked at in a row, so that nobody waits for the look
)

// loops are a Server's event loops. They run from the first connection moved to
// one until stop.
type loops struct {
	s       *Server
	running sync.WaitGroup

	mu     sync.Mutex
	all    []*loop
	failed bool
}

// loop is one event loop. Only its goroutine uses it, but for what mu guards
// and load.
type loop struct {
	s     *Server
	epoll int // file descriptor
	wake  int // an eventfd that ends a wait
	load  atomic.Int64

	mu    sync.Mutex
	inbox []func() // to be run on the loop, in order

	ended bool
	conns []*conn // in no order; conn.looped.place is the place of each
	of    []*conn // by file descriptor

	// Lent to the connection being served.
	in    []byte
	args  [][]byte
	out   []byte
	owing []owing
}

// looped is a connection's place in a loop. Only the loop's goroutine uses it,
// but for close.
type looped struct {
	loop  *loop
	fd    int
	place int

	steps, seen uint64 // how often the client has sent something; when last looked at
	since       time.Time
}

// close ends the connection, from any goroutine; conn.at is held, so that the
// file descriptor is still this connection's. The loop finds its end.
func (l *looped) close() { _ = unix.Shutdown(l.fd, unix.SHUT_RDWR) }

// start starts the loops if they are not running, and reports whether they are.
func (ls *loops) start() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.all) > 0 || ls.failed {
		return !ls.failed
	}
	for range ls.s.o.Loops {
		l, err := newLoop(ls.s)
		if err != nil {
			ls.failed = true
			ls.s.o.Log.Error("the event loops cannot be started, goroutines serve all connections", "error", err)
			break
		}
		ls.all = append(ls.all, l)
	}
	for _, l := range ls.all {
		if ls.failed {
			l.close()
			continue
		}
		ls.running.Go(l.run)
	}
	return !ls.failed
}

func newLoop(s *Server) (*loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, os.NewSyscallError("eventfd", err)
	}
	l := &loop{s: s, epoll: epoll, wake: wake, in: make([]byte, bufLarge), out: make([]byte, 0, bufLarge)}
	if err := l.watch(wake); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *loop) close() {
	_ = unix.Close(l.epoll)
	_ = unix.Close(l.wake)
}

// watch has the loop woken when there is something to read from fd.
func (l *loop) watch(fd int) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}))
}

// post has f run on the loop's goroutine, soon. Any goroutine may call it.
func (l *loop) post(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inbox = append(l.inbox, f)
	if len(l.inbox) == 1 {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		_, _ = unix.Write(l.wake, one[:])
	}
}

// each has f run on every loop, soon.
func (ls *loops) each(f func(*loop)) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.failed {
		return
	}
	for _, l := range ls.all {
		l.post(func() { f(l) })
	}
}

// stop ends the loops and waits for them. There are no connections any more.
func (ls *loops) stop() {
	ls.each(func(l *loop) { l.ended = true })
	ls.running.Wait()
}

// run is the loop's goroutine.
func (l *loop) run() {
	defer l.close()
	events := make([]unix.EpollEvent, loopEvents)
	for !l.ended {
		n, err := unix.EpollWait(l.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			// Only a fault of the program: the descriptor is not an epoll's.
			panic(fmt.Sprintf("transport: epoll_wait: %v", err))
		}
		woken := false
		for i := range max(n, 0) {
			if fd := int(events[i].Fd); fd == l.wake {
				woken = true
			} else if c := l.of[fd]; c != nil { // nil: it has left since
				l.ready(c)
			}
			if len(l.out) >= payFrom {
				l.pay()
			}
		}
		l.pay()
		if woken {
			l.empty()
		}
	}
}

// empty runs what was posted.
func (l *loop) empty() {
	var count [8]byte
	_, _ = unix.Read(l.wake, count[:])
	l.mu.Lock()
	inbox := l.inbox
	l.inbox = nil
	l.mu.Unlock()
	for _, f := range inbox {
		f()
	}
}
