//go:build unix

package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// lines collects what a program writes.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestMakeClusterStartsThreeNodes does what README says, at other ports.
func TestMakeClusterStartsThreeNodes(t *testing.T) {
	// Ports below those that the system gives out, so that nobody has them.
	cmd := exec.CommandContext(t.Context(), "make", "cluster", "CLUSTER_DIR="+t.TempDir(), "CLUSTER_PORT=2839", "RAFT_PORT=2939")
	cmd.Dir, cmd.Env = "../../..", cleanEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out lines
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	eventually(t, 2*time.Minute, "make cluster tells how to try it", func() bool { return strings.Contains(out.String(), "Ctrl-C stops all three") })
	for i, want := range []string{"9", "8", "7"} {
		address := fmt.Sprint("127.0.0.1:2839", i+1)
		var reply []byte
		eventually(t, 20*time.Second, "node "+address+" decides", func() bool {
			reply, _ = exec.CommandContext(t.Context(), binary, "status", "--addr", address).CombinedOutput()
			return bytes.Contains(reply, []byte("healthy"))
		})
		c := dial(t, "tcp", address)
		if got := fmt.Sprint(c.Do("THROTTLE", "k", "10", "1/d")); !strings.Contains(got, want) {
			t.Errorf("%s replies %s, want %s left", address, got, want)
		}
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Errorf("make cluster does not end:\n%s", out.String())
		_ = cmd.Cancel()
	}
}
