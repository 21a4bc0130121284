package main

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
)

// notifyLimit bounds how long a message to the service manager may take when
// that reads none: a start, a reload and a stop wait for it.
const notifyLimit = 300 * time.Millisecond

// manager tells a service manager how far the server is, by the protocol of
// sd_notify(3): one datagram with lines NAME=value for each change, to the
// socket that NOTIFY_SOCKET names. Without that variable nobody is told. It may
// be used from any goroutine.
//
// A message that does not get there is a line in the log and nothing else: the
// server serves all the same. A manager that waits for it gives up in its time.
type manager struct {
	socket string // "": nobody wants to know
	log    *slog.Logger

	mu   sync.Mutex
	last bool // stopping was told: nothing may follow
}

// manager finds who started the process.
func (p *process) manager(log *slog.Logger) *manager {
	socket, _ := p.lookup("NOTIFY_SOCKET")
	return &manager{socket: socket, log: log}
}

// loading tells that the state is read before anybody is served.
func (m *manager) loading() { m.tell("STATUS=loading the state; nobody is served yet") }

// ready tells that the listeners are open and the state is there.
func (m *manager) ready() { m.tell("READY=1", "STATUS=serving") }

// reload tells that files are read again, has it done, and tells that it is.
func (m *manager) reload(do func()) {
	state := []string{"RELOADING=1"}
	// Type=notify-reload compares it with the time it asked at.
	if us := monotonic(); us > 0 {
		state = append(state, fmt.Sprintf("MONOTONIC_USEC=%d", us))
	}
	m.tell(state...)
	do()
	m.tell("READY=1")
}

// stopping tells that the ordered stop has begun. It is the last message.
func (m *manager) stopping() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.send("STOPPING=1", "STATUS=stopping: what has arrived is answered, then the last flush is written")
	m.last = true
}

// tell sends lines as one message.
func (m *manager) tell(lines ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.send(lines...)
}

// send is tell with mu held.
func (m *manager) send(lines ...string) {
	if m.socket == "" || m.last {
		return
	}
	if err := notify(m.socket, strings.Join(lines, "\n")); err != nil {
		m.log.Warn("the service manager cannot be told how far the server is: one that waits for READY=1 ends it after a time",
			"NOTIFY_SOCKET", m.socket, "message", lines[0], "error", err)
	}
}

// notify sends one datagram to a unix socket: a path, or a name after @ in
// Linux's abstract namespace.
func notify(socket, state string) error {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(notifyLimit))
	_, err = c.Write([]byte(state))
	return err
}
