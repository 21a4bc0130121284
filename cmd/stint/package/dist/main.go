// Command dist makes the archives of a release: a static binary for each
// target with its documents, licences and service files, and SHA256SUMS.
//
//	go run ./cmd/stint/package/dist -version v1.2.3 -out dist
//
// It runs at the root of the repository and needs Go alone, and git or
// SOURCE_DATE_EPOCH for the date. The same commit, built by the same version
// of Go, gives the same bytes wherever and whenever it is built: so anybody can
// check what was published.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// release is what is to be made.
type release struct {
	root    string // of the repository
	out     string // folder of the archives; created if absent
	version string // as the binary will say it, and the names of the archives
	targets []target
	date    time.Time // of every file in the archives, whole seconds
}

// targets that are made unless others are asked for: those that are tested, and
// those that differ from them by the processor alone or are developers' own.
const targets = "linux/amd64 linux/arm64 darwin/amd64 darwin/arm64"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// run makes the release that args ask for, and writes a line for each archive
// to stdout, and what is wrong with args to stderr.
func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) error {
	r := release{root: "."}
	f := flag.NewFlagSet("dist", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&r.version, "version", "", "version that the binary says and the archives are named after")
	f.StringVar(&r.out, "out", "dist", "folder to write to; archives that are there already are removed")
	list := f.String("targets", targets, "systems and processors to build for, as go tool dist list names them")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is no flag", f.Arg(0))
	}
	if !safeVersion.MatchString(r.version) {
		return fmt.Errorf("-version: %q cannot be part of a file's name: want letters, digits and . _ + - alone", r.version)
	}
	var err error
	if r.targets, err = parseTargets(*list); err != nil {
		return fmt.Errorf("-targets: %w", err)
	}
	if r.date, err = sourceDate(ctx, r.root, env("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	return r.make(ctx, stdout)
}

// safeVersion begins with a letter or digit and has nothing in it that a shell,
// a file system or a linker's flag gives a meaning.
var safeVersion = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._+-]*$`)

// sourceDate is the date that the files in the archives get: the seconds since
// 1970 in epoch, the convention of reproducible builds, else when the commit
// that is checked out was made.
func sourceDate(ctx context.Context, root, epoch string) (time.Time, error) {
	if epoch == "" {
		cmd := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct")
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("the commit's date is unknown (git log: %w): set SOURCE_DATE_EPOCH to seconds since 1970", err)
		}
		epoch = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %q is no number of seconds since 1970", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// archiveGlob matches what a release consists of, besides sumsName.
const archiveGlob = "stint-*.tar.gz"

// make builds every target, packs it, and writes the checksums last: a folder
// with them holds a whole release, and of this version alone.
func (r *release) make(ctx context.Context, stdout io.Writer) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return fmt.Errorf("create the folder of the archives: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(r.out, archiveGlob))
	if err != nil {
		return err
	}
	for _, path := range append(old, filepath.Join(r.out, sumsName)) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove an older archive: %w", err)
		}
	}
	var sums checksums
	for _, t := range r.targets {
		name := fmt.Sprintf("stint-%s-%s-%s", r.version, t.os, t.arch)
		entries, err := r.entries(ctx, t)
		if err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		file := name + ".tar.gz"
		if err := sums.create(r.out, file, func(w io.Writer) error {
			return writeArchive(w, name, r.date, entries)
		}); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		fmt.Fprintf(stdout, "%s  %s\n", sums.last(), filepath.Join(r.out, file))
	}
	return sums.write(r.out)
}
