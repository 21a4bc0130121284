//go:build unix

// Package cluster is the proof of the cluster from outside: it starts real
// nodes as processes, with a network between them that can be cut, delayed and
// held back, kills and stops them under load, records what every client was
// answered, and checks the histories with a model of each kind of limit.
//
// How long it all takes is set by the tag slow and by STINT_TEST_CLUSTER_SECONDS,
// the seconds of load in each scenario. What a failed test has seen (histories to
// open in a browser, logs of the nodes) is kept in a folder that it names.
package cluster

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// builds is the folder of the programs that are built once for all tests.
var builds string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "stint-cluster-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		builds = dir
		return m.Run()
	}())
}

// program builds the server, unless STINT_TEST_PROGRAM names one.
var program = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("STINT_TEST_PROGRAM"); path != "" {
		return path, nil
	}
	return build("stint")
})

// build builds the server under a name, with further arguments for the compiler.
func build(name string, args ...string) (string, error) {
	if err := watchSources(); err != nil {
		return "", err
	}
	path := filepath.Join(builds, name)
	args = append([]string{"build", "-o", path}, args...)
	if os.Getenv("STINT_TEST_RACE") != "" {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "../..")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("the server cannot be built: %w\n%s", err, out)
	}
	return path, nil
}

// watchSources looks at every source file, so that go test sees that the result of
// these tests depends on them, and does not show an old one.
func watchSources() error {
	return filepath.WalkDir("../../../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		_, err = os.Stat(path)
		return err
	})
}

// mustProgram is program, or the end of the test.
func mustProgram(t *testing.T) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
