package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Names of the parts of a run.
const (
	partWire   = "wire" // our generator
	partBench  = "redis-benchmark"
	partMemory = "memory" // bytes a bucket
	partEngine = "engine" // the engine alone, in this process
)

var allParts = []string{partWire, partBench, partMemory, partEngine}

// options is a run of the side-by-side.
type options struct {
	Command    []string // the arguments as they were given, for the report
	Short      bool
	Parts      []string
	Subjects   []string
	Rounds     int
	Duration   time.Duration // of one measurement
	Conns      int
	Pipelines  []int
	Keys       int64
	Loops      int
	MemoryKeys int64
	EngineKeys int
	Stint      string // binary; empty: built from this source tree
	Redis      string // redis-server
	Name       string // of the result's file; empty: not stored
	Results    string // folder of the results
}

func parseOptions(args []string, output io.Writer) (*options, error) {
	o := &options{Command: args}
	var parts, subjects, pipelines string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(output)
	f.BoolVar(&o.Short, "short", false, "seconds instead of minutes: shows that everything works, its numbers mean nothing")
	f.StringVar(&parts, "parts", strings.Join(allParts, ","), "what to measure")
	f.StringVar(&subjects, "subjects", strings.Join(subjectNames(), ","), "whom to measure")
	f.IntVar(&o.Rounds, "rounds", 5, "interleaved rounds; the table shows their medians")
	f.DurationVar(&o.Duration, "d", 3*time.Second, "duration of one measurement; under 2s the CPU figures are coarse")
	f.IntVar(&o.Conns, "c", 50, "connections")
	f.StringVar(&pipelines, "P", "1,16,64", "pipeline depths")
	f.Int64Var(&o.Keys, "r", 100_000, "number of keys")
	f.IntVar(&o.Loops, "loops", 1, "threads of our generator")
	f.Int64Var(&o.MemoryKeys, "memory-keys", 1_000_000, "live buckets when memory is measured")
	f.IntVar(&o.EngineKeys, "engine-keys", 1_000_000, "keys of the engine alone")
	f.StringVar(&o.Stint, "stint", "", "stint binary (default: built from this source)")
	f.StringVar(&o.Redis, "redis", "redis-server", "redis-server binary")
	f.StringVar(&o.Name, "name", "side-by-side", "name of the result; empty: print only (default with -short)")
	f.StringVar(&o.Results, "results", "bench/results", "folder of the results")
	if err := f.Parse(args); err != nil {
		return nil, usage(err)
	}
	if o.Short {
		set := map[string]bool{}
		f.Visit(func(g *flag.Flag) { set[g.Name] = true })
		shorten(o, set)
	}
	err := errors.Join(
		chosen(&o.Parts, "part", parts, allParts),
		chosen(&o.Subjects, "subject", subjects, subjectNames()),
		depths(&o.Pipelines, pipelines),
		o.validate(),
	)
	if f.NArg() > 0 {
		err = errors.Join(err, fmt.Errorf("%q is no flag", f.Arg(0)))
	}
	if err != nil {
		fmt.Fprintf(output, "bench: %v\n", err)
		return nil, errUsage
	}
	return o, nil
}

// shorten makes a run of seconds, except for what was asked for by a flag.
func shorten(o *options, set map[string]bool) {
	if !set["rounds"] {
		o.Rounds = 1
	}
	if !set["d"] {
		o.Duration = 200 * time.Millisecond
	}
	if !set["r"] {
		o.Keys = 10_000
	}
	if !set["memory-keys"] {
		o.MemoryKeys = 50_000
	}
	if !set["engine-keys"] {
		o.EngineKeys = 50_000
	}
	if !set["name"] {
		o.Name = ""
	}
}

func (o *options) validate() error {
	switch {
	case o.Rounds < 1, o.Conns < 1, o.Keys < 1, o.Loops < 1, o.MemoryKeys < 1, o.EngineKeys < 1:
		return errors.New("rounds, connections, keys and loops must be at least 1")
	case o.Loops > o.Conns:
		return errors.New("more loops than connections")
	case o.Duration < 10*time.Millisecond:
		return errors.New("a measurement takes 10ms at least")
	case strings.ContainsAny(o.Name, "/\\"):
		return errors.New("the result's name becomes a file's name: no slashes")
	}
	return nil
}

func (o *options) has(part string) bool { return slices.Contains(o.Parts, part) }

func chosen(to *[]string, what, list string, known []string) error {
	for _, name := range strings.Split(list, ",") {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no %s %q: want some of %s", what, name, strings.Join(known, ", "))
		}
		if !slices.Contains(*to, name) {
			*to = append(*to, name)
		}
	}
	return nil
}

func depths(to *[]int, list string) error {
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 10_000 {
			return fmt.Errorf("invalid pipeline depth %q: want 1 to 10000, separated by commas", text)
		}
		*to = append(*to, n)
	}
	return nil
}
