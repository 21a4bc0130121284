package proc

import "syscall"

// attributes keeps a terminal's Ctrl-C from the servers, which are stopped in
// order instead, and ends them with this program however it ends, killed too.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
