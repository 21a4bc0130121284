package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
)

// listenError words the error of a listener for who chooses its address, by
// that flag. Other errors it returns as they are.
func listenError(err error, flag string) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "listen" || op.Addr == nil {
		return err
	}
	addr := op.Addr.String()
	if op.Addr.Network() == "unix" {
		addr = "unix:" + addr
	}
	cause := op.Err
	var call *os.SyscallError
	if errors.As(cause, &call) {
		cause = call.Err // without the name of the call
	}
	advice := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		advice = fmt.Sprintf(": stop the program that listens there (%s names it), or choose another address with --%s", whoListens(op.Addr), flag)
	case errors.Is(err, syscall.EACCES):
		advice = ": choose a port of 1024 or above, or another address, with --" + flag
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = ": give --" + flag + " an address of this machine; 0.0.0.0 stands for all of them"
	}
	return fmt.Errorf("cannot listen on %s: %w%s", addr, cause, advice)
}

// whoListens is a command that shows which process listens on an address.
func whoListens(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	switch {
	case !ok:
		return "lsof " + a.String()
	case runtime.GOOS == "windows":
		return fmt.Sprintf("netstat -ano | findstr :%d", tcp.Port)
	case runtime.GOOS == "linux":
		return fmt.Sprintf("ss -ltnp 'sport = :%d'", tcp.Port)
	}
	return fmt.Sprintf("lsof -nP -iTCP:%d -sTCP:LISTEN", tcp.Port)
}
