package cluster

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAnAnswerFollowsTheSync looks at the system calls of a strict node, because
// a process that is killed leaves what it wrote in the kernel's memory: no crash
// test sees whether it was synced.
func TestAnAnswerFollowsTheSync(t *testing.T) {
	if wrong, ok := untimelyAnswers(t, mustProgram(t)); ok && len(wrong) > 0 {
		t.Errorf("%d answers, the first: %s", len(wrong), wrong[0])
	}
}

// untimelyAnswers runs a single strict node under strace and tells which answers
// were sent without a sync behind what was last written. ok is false if there is
// no strace.
func untimelyAnswers(t *testing.T, program string, env ...string) (wrong []string, ok bool) {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Log("strace is not installed: not tried")
		return nil, false
	}
	dir := t.TempDir()
	n := &node{t: t, name: "n1", program: strace, dir: filepath.Join(dir, "state"), addr: freeAddr(t), env: env}
	trace := filepath.Join(dir, "trace")
	n.cmd = exec.Command(strace, "-f", "-qq", "-s", "32", "-o", trace, "-e", "trace=pwrite64,fdatasync,fsync,write,sendto,writev",
		program, "--addr", n.addr, "--dir", n.dir, "--durability", "strict")
	n.cmd.Env = append(cleanEnv(), env...)
	n.cmd.Stderr = n
	// The tracer and the server end together.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		_ = syscall.Kill(-n.cmd.Process.Pid, syscall.SIGKILL)
		_ = n.cmd.Wait()
	}
	defer end()
	const answers = 50
	w := &wire{addr: n.addr}
	defer w.close()
	if !await(patience, func() bool { _, o, _ := w.do(patience, []string{"PING"}); return o == decided }) {
		t.Fatalf("the server does not answer under strace:\n%s", tail(n.text()))
	}
	for i := range answers {
		take := []string{"THROTTLE", fmt.Sprintf("sync-%d", i), "7777", "1/h"}
		if !await(patience, func() bool { _, o, _ := w.do(patience, take); return o == decided }) {
			t.Fatalf("nothing can be decided:\n%s", tail(n.text()))
		}
	}
	end()
	seen, wrong := readTrace(t, trace)
	if seen < answers {
		t.Fatalf("the trace shows %d answers of %d", seen, answers)
	}
	return wrong, true
}

// readTrace reads a trace of system calls: each answer to a decision, whose first
// number is the limit of 7777, needs a sync that began after the write before it.
func readTrace(t *testing.T, path string) (answers int, wrong []string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var (
		dirty, syncing bool // something is not synced; a sync is under way that will do that
		syncs          int  // since the last answer
	)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.Contains(line, " pwrite64("):
			dirty, syncing = true, false
		case strings.Contains(line, "sync(") && strings.Contains(line, "<unfinished"):
			syncing = true
		case strings.Contains(line, "sync("):
			dirty = false
			syncs++
		case strings.Contains(line, "sync resumed>"):
			dirty = dirty && !syncing
			syncs++
		case strings.Contains(line, `"*5\r\n:1\r\n:7777`):
			answers++
			if dirty || syncs == 0 {
				wrong = append(wrong, line)
			}
			syncs = 0
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return answers, wrong
}
