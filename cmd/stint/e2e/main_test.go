//go:build unix

// Package e2e holds the black-box tests: they build the real binary, start it
// as its own process, and speak to it as clients do, in raw bytes and through
// the common client libraries. Nothing of this module is imported.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is the path of the server that TestMain built.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "stint-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "stint")
		args := []string{"build", "-o", binary}
		// The long tests run against a server with the race detector in it.
		if os.Getenv("STINT_TEST_RACE") != "" {
			args = append(args, "-race")
		}
		if out, err := exec.Command("go", append(args, "..")...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "the server cannot be built: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}
