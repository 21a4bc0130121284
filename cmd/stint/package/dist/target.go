package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// target is a system and a processor, by Go's names.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

// parseTargets reads os/arch, separated by blanks or commas.
func parseTargets(list string) ([]target, error) {
	var all []target
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return r == ' ' || r == ',' }) {
		system, arch, ok := strings.Cut(word, "/")
		t := target{system, arch}
		if !ok || system == "" || arch == "" || strings.Contains(arch, "/") {
			return nil, fmt.Errorf("%q is no target: want the form linux/amd64", word)
		}
		if slices.Contains(all, t) {
			return nil, fmt.Errorf("%s is given twice", t)
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, errors.New("at least one target is needed")
	}
	return all, nil
}

// binaryName is the name of the server's file on the target.
func (t target) binaryName() string {
	if t.os == "windows" {
		return "stint.exe"
	}
	return "stint"
}

// environ is the environment of a build: that of this process, without what
// would make another binary of the same commit on another machine.
func (t target) environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{
			"GOFLAGS", "GOEXPERIMENT", "GOFIPS140", "GOAMD64", "GOARM64", "GO386", "GOARM", "GOWORK",
			"GOOS", "GOARCH", "CGO_ENABLED",
		}, name)
	})
	// A variable that is absent is looked for in the user's own settings of Go;
	// GOENV=off has none of those looked at, so the defaults hold.
	return append(env, "GOENV=off", "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch)
}

// build compiles the server for the target into a file and returns its path.
// Paths of this machine are not in it (-trimpath), nor is what git says of the
// work tree (-buildvcs): a file that is not git's would make another binary.
func (r *release) build(ctx context.Context, t target, dir string) (string, error) {
	path := filepath.Join(dir, t.binaryName())
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-X main.version="+r.version, "-o", path, "./cmd/stint")
	cmd.Dir, cmd.Env = r.root, t.environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}
