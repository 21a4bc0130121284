package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reasonsFile says, by the goals' keys, why a goal is missed. It is written by
// hand.
//
//go:embed reasons.yaml
var reasonsFile []byte

// errNoReason ends a check that found a miss nobody has explained. What it is
// has been printed.
var errNoReason = errors.New("a goal is missed without a reason")

// parseReasons reads the reasons and refuses those of unknown goals: they would
// stay behind when a goal is renamed.
func parseReasons(text []byte) (map[string]string, error) {
	reasons := map[string]string{}
	if err := yaml.Unmarshal(text, &reasons); err != nil {
		return nil, fmt.Errorf("reasons.yaml: %w", err)
	}
	var keys []string
	for _, g := range goals() {
		keys = append(keys, g.key)
	}
	for key, reason := range reasons {
		if !slices.Contains(keys, key) {
			return nil, fmt.Errorf("reasons.yaml: there is no goal %q: want one of %s", key, strings.Join(keys, ", "))
		}
		if strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("reasons.yaml: the reason of %s is empty", key)
		}
	}
	return reasons, nil
}

// runCheck says of each goal whether a stored result meets it, and why not.
func runCheck(args []string, out, progress io.Writer) error {
	f := flag.NewFlagSet("bench check", flag.ContinueOnError)
	f.SetOutput(progress)
	s := storedFlags(f)
	if err := f.Parse(args); err != nil {
		return usage(err)
	}
	if f.NArg() > 0 {
		fmt.Fprintf(progress, "bench check: %q is no flag\n", f.Arg(0))
		return errUsage
	}
	reasons, err := parseReasons(reasonsFile)
	if err != nil {
		return err
	}
	path, r, err := s.load()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, %s, %s\n\n", path, r.Date.Format("2006-01-02 15:04 MST"), r.Machine.Stint)
	return check(r, reasons, out)
}

// check prints a goal a line, and under each that is not met its reason.
func check(r *record, reasons map[string]string, out io.Writer) error {
	list := goals()
	wide := 0
	for _, g := range list {
		wide = max(wide, len([]rune(g.what)))
	}
	count := map[string]int{}
	var unexplained []string
	for _, g := range list {
		verdict := g.verdict(r)
		count[verdict]++
		fmt.Fprintf(out, "%-12s  %-*s  %-12s  %s\n", verdict, wide, g.what, g.target(), g.figure(g.got(r)))
		reason := strings.Join(strings.Fields(reasons[g.key]), " ")
		switch {
		case verdict == "met" && reason != "":
			fmt.Fprintf(out, "%12s  reasons.yaml has a reason for %s that is not needed now\n", "", g.key)
		case verdict == "met":
		case reason == "":
			unexplained = append(unexplained, g.key)
			fmt.Fprintf(out, "%12s  NO REASON: write one as %s in bench/reasons.yaml\n", "", g.key)
		default:
			fmt.Fprintf(out, "%12s  %s\n", "", reason)
		}
	}
	fmt.Fprintf(out, "\n%d met, %d missed, %d not measured\n", count["met"], count["missed"], count["not measured"])
	if len(unexplained) > 0 {
		return fmt.Errorf("%w: %s", errNoReason, strings.Join(unexplained, ", "))
	}
	return nil
}

// stored says which result is looked at.
type stored struct{ path, folder *string }

func storedFlags(f *flag.FlagSet) stored {
	return stored{
		path:   f.String("result", "", "a result's .json (default: the newest in -results)"),
		folder: f.String("results", "bench/results", "folder of the results"),
	}
}

func (s stored) load() (string, *record, error) {
	if *s.path == "" {
		return newest(*s.folder)
	}
	r, err := loadRecord(*s.path)
	return *s.path, r, err
}

// runChart draws the chart of a stored result.
func runChart(args []string, progress io.Writer) error {
	f := flag.NewFlagSet("bench chart", flag.ContinueOnError)
	f.SetOutput(progress)
	s := storedFlags(f)
	file := f.String("o", "docs/speed.svg", "file of the chart")
	if err := f.Parse(args); err != nil {
		return usage(err)
	}
	if f.NArg() > 0 {
		fmt.Fprintf(progress, "bench chart: %q is no flag\n", f.Arg(0))
		return errUsage
	}
	path, r, err := s.load()
	if err != nil {
		return err
	}
	if !r.hasChart() {
		return fmt.Errorf("%s has not all of what the chart shows: redis-benchmark's part with -P 1,16,64 and all subjects", path)
	}
	return writeChart(r, filepath.Base(path), *file)
}
