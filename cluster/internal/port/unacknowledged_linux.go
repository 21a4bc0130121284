package port

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setUnacknowledged has the system end a connection whose bytes the other side's
// system has not acknowledged, or not made room for, for so long. Where it cannot
// be set the deadlines and pings find a dead node a little later.
func setUnacknowledged(nc net.Conn, limit time.Duration) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
	})
}
