//go:build unix

package cluster

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Time-outs of the nodes in these tests, shorter than a server's own so that many
// elections fit into a test; a machine that is busy must still keep them.
const (
	electionTimeout = 400 * time.Millisecond
	decisionTimeout = 500 * time.Millisecond
)

// patience bounds whatever is waited for; other tests may keep the machine busy.
const patience = 60 * time.Second

// node is one server process of a cluster, or where one was and may be again.
type node struct {
	t       *testing.T
	name    string
	program string
	dir     string
	addr    string // where it serves clients
	raft    string // where its Raft port listens
	door    string // where others reach it, through the mesh
	args    []string
	env     []string
	waits   time.Duration // before an election; 0: electionTimeout

	cmd     *exec.Cmd
	exited  chan struct{}
	stopped bool        // by SIGSTOP
	asked   atomic.Bool // to end, by us

	mu      sync.Mutex
	log     bytes.Buffer // of all its processes
	crashed bool         // a process ended that nobody had asked to
}

func (n *node) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(b)
}

// text is what the node has logged.
func (n *node) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.String()
}

// start starts the process and returns at once.
func (n *node) start(more ...string) {
	n.t.Helper()
	waits := n.waits
	if waits == 0 {
		waits = electionTimeout
	}
	n.startAlone(slices.Concat([]string{
		"--node-id", n.name, "--raft-addr", n.raft, "--raft-advertise", n.door,
		"--decision-timeout", decisionTimeout.String(), "--election-timeout", waits.String(),
	}, n.args, more)...)
}

// startAlone starts the process without what makes it part of a cluster.
func (n *node) startAlone(args ...string) {
	n.t.Helper()
	n.cmd = exec.Command(n.program, append([]string{"--addr", n.addr, "--dir", n.dir, "--enable-debug-command"}, args...)...)
	n.cmd.Stderr, n.cmd.Stdout = n, n
	n.cmd.Env = append(cleanEnv(), n.env...)
	fmt.Fprintf(n, "--- %s starts\n", n.name)
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	exited := make(chan struct{})
	n.exited, n.stopped = exited, false
	n.asked.Store(false)
	cmd := n.cmd
	go func() {
		err := cmd.Wait()
		fmt.Fprintf(n, "--- %s has ended: %v\n", n.name, err)
		if !n.asked.Load() {
			n.mu.Lock()
			n.crashed = true
			n.mu.Unlock()
		}
		close(exited)
	}()
}

// fell says whether a process of the node has ended by itself since it was last
// asked.
func (n *node) fell() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	fell := n.crashed
	n.crashed = false
	return fell
}

// cleanEnv is the environment without settings of the server. A server built with
// the race detector would otherwise wait a second at its exit.
func cleanEnv() []string {
	env := []string{"GORACE=atexit_sleep_ms=0"}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "STINT_") && !strings.HasPrefix(kv, "NOTIFY_SOCKET=") {
			env = append(env, kv)
		}
	}
	return env
}

// runs says whether the process is there.
func (n *node) runs() bool {
	if n.exited == nil {
		return false
	}
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// kill ends the process as a crash would, and waits.
func (n *node) kill() {
	if n.runs() {
		n.asked.Store(true)
		_ = n.cmd.Process.Kill()
		<-n.exited
	}
}

// stop asks for an ordered stop and waits; the process must keep its promise to
// end within 10 s.
func (n *node) stop() {
	n.t.Helper()
	if !n.runs() {
		return
	}
	n.asked.Store(true)
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-n.exited:
		if code := n.cmd.ProcessState.ExitCode(); code != 0 {
			n.t.Errorf("node %s ended with code %d after SIGTERM:\n%s", n.name, code, tail(n.text()))
		}
	case <-time.After(15 * time.Second):
		n.t.Errorf("node %s still runs 15 s after SIGTERM", n.name)
		n.kill()
	}
}

// resume lets a process that was stopped by SIGSTOP go on.
func (n *node) resume() { n.signal(syscall.SIGCONT); n.stopped = false }

func (n *node) signal(s syscall.Signal) {
	if n.runs() {
		_ = n.cmd.Process.Signal(s)
	}
}

// wipe loses the node's folder. The process must not run.
func (n *node) wipe() {
	n.t.Helper()
	if err := os.RemoveAll(n.dir); err != nil {
		n.t.Fatal(err)
	}
}

// ask sends one command on a new connection.
func (n *node) ask(args ...string) (any, error) {
	w := wire{addr: n.addr}
	defer w.close()
	replies, _, err := w.do(12*time.Second, args)
	if err != nil {
		return nil, err
	}
	if f, ok := replies[0].(failure); ok {
		return nil, f
	}
	return replies[0], nil
}

// info is what the node says of its part in the cluster, nil if it says nothing.
func (n *node) info() map[string]string {
	if !n.runs() || n.stopped {
		return nil
	}
	v, err := n.ask("RAFT", "INFO")
	text, ok := v.(string)
	if err != nil || !ok {
		return nil
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// number is a figure of info, 0 if it is not there.
func number(fields map[string]string, name string) uint64 {
	v, _ := strconv.ParseUint(fields[name], 10, 64)
	return v
}

// ports has given out these.
var ports struct {
	sync.Mutex
	taken map[int]bool
}

// freeAddr is an address that a process can listen at again and again. Its port
// is none of those that the kernel gives to outgoing connections, one of which
// could otherwise have it when a node comes back.
func freeAddr(t *testing.T) string {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	if ports.taken == nil {
		ports.taken = map[int]bool{}
	}
	for range 1000 {
		p := 20000 + rand.IntN(12000)
		if ports.taken[p] {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(p))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		_ = l.Close()
		ports.taken[p] = true
		return addr
	}
	t.Fatal("no port is free")
	return ""
}

// eventually polls a condition until it holds.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	if !await(within, holds) {
		t.Fatalf("after %v still not: %s", within, what)
	}
}

// await polls a condition until it holds, and returns false if the time is up.
func await(within time.Duration, holds func() bool) bool {
	deadline := time.After(within)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-deadline:
			return holds()
		case <-poll.C:
		}
	}
	return true
}
