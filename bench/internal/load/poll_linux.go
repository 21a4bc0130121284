package load

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"
)

// poller waits for many sockets on one thread: Go's own poller would wake a
// goroutine for each, which costs the generator more than the server.
type poller struct {
	fd     int
	opened bool
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
