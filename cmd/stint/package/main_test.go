//go:build unix

// Package packaging holds the tests of the files that packages and containers
// are made of. It builds the real binary and gives them to it, so that they
// cannot come to differ from what the server knows.
package packaging

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// root is the repository, seen from this package's tests.
const root = "../../.."

// binary is the path of the server that TestMain built.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "stint-package-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "stint")
		if out, err := exec.Command("go", "build", "-o", binary, "..").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "the server cannot be built: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// read returns a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// starts runs the server until it listens and then stops it; what it wrote to
// the log comes back. An error says that it ended by itself.
func starts(t *testing.T, args ...string) (log string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = []string{}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	var text strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "listening") {
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	return text.String(), cmd.Wait()
}
