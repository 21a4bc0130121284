package transport

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unacknowledged returns how many bytes, the end of the stream counted as one,
// the client's system has not yet taken; 0 if that is not known.
func unacknowledged(nc net.Conn) (n int) {
	if t, ok := nc.(*tlsConn); ok {
		nc = t.wire.Conn
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	if raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }) != nil || err != nil {
		return 0
	}
	return n
}
