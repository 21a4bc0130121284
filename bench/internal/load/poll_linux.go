package load

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller waits for many sockets on one thread: Go's own poller would wake a
// goroutine for each, which costs the generator more than the server.
type poller struct {
	fd     int
	opened bool
	coarse bool // the kernel waits in whole milliseconds only
	events [128]syscall.EpollEvent
}

func (p *poller) open() error {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("waiting for sockets cannot begin: %w", err)
	}
	p.fd, p.opened = fd, true
	return nil
}

func (p *poller) close() {
	if p.opened {
		closeFD(p.fd)
		p.opened = false
	}
}

// add watches fd for input; index comes back with its events.
func (p *poller) add(fd, index int) error {
	event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(index)}
	return syscall.EpollCtl(p.fd, syscall.EPOLL_CTL_ADD, fd, &event)
}

// wantWrite begins or ends watching fd for room to send.
func (p *poller) wantWrite(fd, index int, want bool) error {
	event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(index)}
	if want {
		event.Events |= syscall.EPOLLOUT
	}
	return syscall.EpollCtl(p.fd, syscall.EPOLL_CTL_MOD, fd, &event)
}

// wait returns how many events there are, 0 when the time is over.
func (p *poller) wait(d time.Duration) (int, error) {
	n, err := syscall.EpollWait(p.fd, p.events[:], int(d/time.Millisecond))
	if errors.Is(err, syscall.EINTR) {
		return 0, nil
	}
	return n, err
}

// waitExactly is wait to the ns: an open loop has less than a millisecond
// between two requests. A kernel before 5.11 has no such call; there the time
// is cut to whole milliseconds, so that short waits become polling.
func (p *poller) waitExactly(d time.Duration) (int, error) {
	if !p.coarse {
		timeout := unix.NsecToTimespec(int64(max(d, 0)))
		n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])),
			uintptr(len(p.events)), uintptr(unsafe.Pointer(&timeout)), 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
			return 0, nil
		case syscall.ENOSYS:
			p.coarse = true
		default:
			return 0, errno
		}
	}
	return p.wait(max(d, 0))
}

// preciseTimers makes the calling thread, which must be locked, wake within
// microseconds of what it asked for instead of the usual 50 us later.
func preciseTimers() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }

func (p *poller) event(i int) (index int, writable bool) {
	e := &p.events[i]
	return int(e.Fd), e.Events&syscall.EPOLLOUT != 0
}

// dial connects and returns a descriptor that is not known to Go's poller, so
// that arriving bytes wake nobody but ours.
func dial(addr string) (int, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	conn, err := net.DialTimeout(network, addr, 10*time.Second)
	if err != nil {
		return 0, fmt.Errorf("no connection to the server: %w", err)
	}
	defer conn.Close()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	fd, dupErr := -1, error(nil)
	if err := raw.Control(func(old uintptr) { fd, dupErr = syscall.Dup(int(old)) }); err != nil {
		return 0, err
	}
	if dupErr != nil {
		return 0, fmt.Errorf("no descriptor for a connection: %w", dupErr)
	}
	syscall.CloseOnExec(fd)
	return fd, nil // non-blocking already: the original was, and they share the flag
}

// write sends what the socket takes at once, perhaps nothing.
func write(fd int, b []byte) (int, error) {
	n, err := syscall.Write(fd, b)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		return 0, nil
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return 0, errClosed
	}
	return 0, fmt.Errorf("sending failed: %w", err)
}

// read returns what is there, 0 if nothing is.
func read(fd int, b []byte) (int, error) {
	n, err := syscall.Read(fd, b)
	switch {
	case err == nil && n > 0:
		return n, nil
	case err == nil, errors.Is(err, syscall.ECONNRESET):
		return 0, errClosed
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		return 0, nil
	}
	return 0, fmt.Errorf("receiving failed: %w", err)
}

func closeFD(fd int) { _ = syscall.Close(fd) }
