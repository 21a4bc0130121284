package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint/bench/internal/load"
)

// comparison is a run of the servers of two commits.
type comparison struct {
	options
	Ref string
}

// runCompare measures the server of this source tree, as it is with its
// changes, beside that of another commit, by the same generator.
func runCompare(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	c := &comparison{}
	var pipelines, flags, durability string
	f := flag.NewFlagSet("bench compare", flag.ContinueOnError)
	f.SetOutput(progress)
	f.StringVar(&c.Ref, "ref", "HEAD", "commit, branch or tag to compare with")
	f.IntVar(&c.Rounds, "rounds", 9, "interleaved rounds")
	f.DurationVar(&c.Duration, "d", 2*time.Second, "duration of one measurement; under 2s the CPU figures are coarse")
	f.IntVar(&c.Conns, "c", 50, "connections")
	f.StringVar(&pipelines, "P", "1,16,64", "pipeline depths")
	f.Int64Var(&c.Keys, "r", 100_000, "number of keys")
	f.IntVar(&c.Loops, "loops", 1, "threads of our generator")
	f.StringVar(&durability, "durability", "none", "--durability of both servers: none or interval")
	f.StringVar(&flags, "flags", "", "more flags for both servers, separated by spaces")
	if err := f.Parse(args); err != nil {
		return usage(err)
	}
	// What a run of everything has beside this, so that one check serves both.
	c.EngineKeys, c.ManyKeys, c.DrainKeys, c.IdleConns, c.Zipf, c.Limit = 1, 1, 1, 1, 1, 1
	c.Subjects = []string{"stint-" + durability}
	c.ServerFlags = strings.Fields(flags)
	wrong := errors.Join(numbers(&c.Pipelines, "pipeline depth", pipelines, 1, 10_000), c.validate())
	if len(c.chosenOf(stintNone, stintInterval)) == 0 {
		wrong = errors.Join(wrong, fmt.Errorf("there is no durability %q: want none or interval", durability))
	}
	if f.NArg() > 0 {
		wrong = errors.Join(wrong, fmt.Errorf("%q is no flag", f.Arg(0)))
	}
	if wrong != nil {
		fmt.Fprintf(progress, "bench compare: %v\n", wrong)
		return errUsage
	}
	dir, err := os.MkdirTemp("", "stint-compare-")
	if err != nil {
		return fmt.Errorf("no folder to build in: %w", err)
	}
	defer os.RemoveAll(dir)
	there, here := filepath.Join(dir, "there"), filepath.Join(dir, "here")
	state := sourceState()
	fmt.Fprintf(progress, "building %s and %s\n", c.Ref, state)
	commit, err := buildAt(ctx, c.Ref, filepath.Join(dir, "tree"), there)
	if err != nil {
		return err
	}
	if err := buildStint(ctx, ".", here); err != nil {
		return err
	}
	rec, err := c.measure(ctx, there, here, progress)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, %d cores; durability %s, %d connections, %d rounds of %v\nhere: %s; there: commit %s; a ratio above 1: there is more of it here\n\n",
		rec.Machine.CPU, rec.Machine.Cores, durability, c.Conns, c.Rounds, c.Duration, state, commit)
	compareTable(out, rec, c.Pipelines)
	return nil
}

// buildAt builds the server of a commit in a work tree of its own, which is
// removed again, and returns the commit's name.
func buildAt(ctx context.Context, ref, tree, binary string) (commit string, err error) {
	git := func(ctx context.Context, args ...string) (string, error) {
		said, err := exec.CommandContext(ctx, "git", args...).CombinedOutput()
		if err != nil {
			return "", errors.Join(fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(said))), ctx.Err())
		}
		return strings.TrimSpace(string(said)), nil
	}
	// A ref that begins with a dash would be an option.
	if strings.HasPrefix(ref, "-") || ref == "" {
		return "", fmt.Errorf("invalid ref %q: want a commit, branch or tag", ref)
	}
	if commit, err = git(ctx, "rev-parse", "--verify", "--quiet", "--short=12", ref+"^{commit}"); err != nil {
		return "", fmt.Errorf("there is no commit %q: %w", ref, err)
	}
	if _, err = git(ctx, "worktree", "add", "--detach", "--quiet", tree, commit); err != nil {
		return "", err
	}
	defer func() {
		// Also after Ctrl-C, so not by the context that it ended.
		_, removed := git(context.WithoutCancel(ctx), "worktree", "remove", "--force", tree)
		err = errors.Join(err, removed)
	}()
	if err := buildStint(ctx, tree, binary); err != nil {
		return "", fmt.Errorf("commit %s: %w", commit, err)
	}
	return commit, nil
}

// Names of the two servers in the figures. The second process of the commit
// compared with shows how much two runs of the same differ.
const (
	sideThere = "there"
	sideAgain = "again"
	sideHere  = "here"
)

func (c *comparison) measure(ctx context.Context, there, here string, progress io.Writer) (*record, error) {
	rec := &record{Settings: c.settings, Machine: describeMachine(&binaries{stint: here})}
	subject := c.chosenOf(stintNone, stintInterval)[0]
	var running []*runningSubject
	defer func() {
		for _, r := range running {
			r.Kill()
		}
	}()
	for _, side := range []struct{ name, binary string }{{sideThere, there}, {sideHere, here}, {sideAgain, there}} {
		s := subject
		s.name = side.name
		r, err := start(ctx, s, &binaries{stint: side.binary, flags: c.ServerFlags})
		if err != nil {
			return nil, err
		}
		running = append(running, r)
		if err := r.put(ctx, r.command(""), 0, c.Keys); err != nil {
			return nil, fmt.Errorf("%s, warming up: %w", side.name, err)
		}
	}
	for round := range c.Rounds {
		for _, depth := range c.Pipelines {
			if err := inTurn(running, round, func(r *runningSubject) error {
				m, err := closedLoop(ctx, &c.options, r, load.Config{Command: r.command(""), Pipeline: depth, Keys: c.Keys, Seed: uint64(round)})
				if err == nil {
					rec.addSample(wireName(ownGenerator, r.name, depth), m)
				}
				return err
			}); err != nil {
				return nil, fmt.Errorf("-P %d: %w", depth, err)
			}
		}
		fmt.Fprintf(progress, "round %d of %d is done\n", round+1, c.Rounds)
	}
	return rec, nil
}

// difference is a ratio of two servers and whether it is more than noise.
type difference struct {
	ratio float64 // median of the rounds
	noise float64 // how far from its median a round's ratio lies, or from 1 that of a server with itself: the larger one
	real  bool
}

// differ compares round by round. It calls a difference real if it is larger
// than the noise, and all rounds but one in eight agree on its direction: a
// coin would do that with nine rounds once in 25 times.
func differ(here, there, again []float64) difference {
	list, same := ratios(here, there), ratios(again, there)
	if len(list) == 0 {
		return difference{}
	}
	d := difference{ratio: spreadOf(list).median}
	d.noise = max(deviation(list, d.ratio), deviation(same, 1))
	agree := 0
	for _, r := range list {
		if (r > 1) == (d.ratio > 1) && r != 1 {
			agree++
		}
	}
	d.real = distance(d.ratio, 1) > d.noise && agree >= len(list)-len(list)/8
	return d
}

// deviation is the median distance of values from a centre.
func deviation(values []float64, centre float64) float64 {
	distances := slices.Clone(values)
	for i, v := range values {
		distances[i] = distance(v, centre)
	}
	return spreadOf(distances).median
}

func distance(a, b float64) float64 { return max(a-b, b-a) }

func compareTable(out io.Writer, rec *record, pipelines []int) {
	fmt.Fprintf(out, "%-4s  %-18s  %12s  %12s  %7s  %7s\n", "-P", "what", "there", "here", "ratio", "noise")
	for _, depth := range pipelines {
		for _, what := range []struct{ name, title, format string }{
			{"rate", "requests/s", "%.0f"}, {"cpu", "server CPU, µs", "%.3f"}, {"p50", "p50, µs", "%.0f"}, {"p99", "p99, µs", "%.0f"},
		} {
			of := func(side string) []float64 { return rec.get(wireName(ownGenerator, side, depth), what.name) }
			d := differ(of(sideHere), of(sideThere), of(sideAgain))
			verdict := "within the noise"
			if d.real {
				verdict = "less"
				if d.ratio > 1 {
					verdict = "MORE"
				}
			}
			fmt.Fprintf(out, "%-4d  %-18s  %12s  %12s  %7.3f  ±%5.3f  %s\n", depth, what.title,
				fmt.Sprintf(what.format, spreadOf(of(sideThere)).median), fmt.Sprintf(what.format, spreadOf(of(sideHere)).median), d.ratio, d.noise, verdict)
		}
	}
}
