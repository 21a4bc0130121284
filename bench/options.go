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

// Names of the parts of a run, in the order in which they are measured.
const (
	partWire     = "wire"            // our generator
	partBench    = "redis-benchmark" // the same by redis-benchmark
	partShapes   = "shapes"          // zipf keys and refusals
	partMemory   = "memory"          // bytes a bucket
	partEngine   = "engine"          // the engine alone, in this process
	partLatency  = "latency"         // while a large table grows and is swept
	partDrain    = "drain"           // while many changed keys are written
	partSnapshot = "snapshot"        // while the whole state is written anew
	partRestart  = "restart"         // seconds until many buckets are loaded
	partIdle     = "idle"            // many connections that do nothing
)

var allParts = []string{partWire, partBench, partShapes, partMemory, partEngine, partLatency, partDrain, partSnapshot, partRestart, partIdle}

// options is a run of the side-by-side.
type options struct {
	settings
	Command  []string // the arguments as they were given, for the report
	Short    bool
	Parts    []string
	Subjects []string
	Loops    int
	OpenRate float64       // requests a second of open loops; 0: a share of the closed loop's
	Settle   time.Duration // before a resident set is read
	Limit    time.Duration // after which the whole run is given up
	Stint    string        // binary; empty: built from this source tree
	Redis    string        // redis-server
	Name     string        // of the result's files; empty: not stored
	Results  string        // folder of the results
	Chart    string        // file of the chart; empty: none
}

func parseOptions(args []string, output io.Writer) (*options, error) {
	o := &options{Command: args}
	var parts, subjects, pipelines, memoryKeys, refusals, flags string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(output)
	f.BoolVar(&o.Short, "short", false, "seconds instead of minutes: shows that everything works, its numbers mean nothing")
	f.StringVar(&parts, "only", strings.Join(allParts, ","), "what to measure")
	f.StringVar(&subjects, "subjects", strings.Join(subjectNames(), ","), "whom to measure")
	f.IntVar(&o.Rounds, "rounds", 5, "interleaved rounds; the tables show their medians")
	f.DurationVar(&o.Duration, "d", 2*time.Second, "duration of one measurement; under 2s the CPU figures are coarse")
	f.IntVar(&o.Conns, "c", 50, "connections")
	f.StringVar(&pipelines, "P", "1,16,64", "pipeline depths")
	f.Int64Var(&o.Keys, "r", 100_000, "number of keys")
	f.IntVar(&o.Loops, "loops", 1, "threads of our generator")
	f.Float64Var(&o.Zipf, "zipf", 0.99, "exponent of zipf keys")
	f.StringVar(&refusals, "refusals", "0,50,100", "percentages of the keys that are refused")
	f.Float64Var(&o.OpenRate, "rate", 0, "requests a second of open loops (0: 40 % of what a closed loop reaches without pipelining)")
	f.StringVar(&memoryKeys, "memory-keys", "1000000,2000000,5000000,10000000", "live buckets when memory is measured; Redis has the first number only")
	f.IntVar(&o.EngineKeys, "engine-keys", 1_000_000, "keys of the engine alone")
	f.Int64Var(&o.ManyKeys, "many-keys", 10_000_000, "live buckets of the large table: latency while it grows and is swept, restart")
	f.Int64Var(&o.DrainKeys, "drain-keys", 1_000_000, "keys that one drain writes")
	f.IntVar(&o.IdleConns, "idle-conns", 10_000, "idle connections; this program and the server each need as many files (ulimit -n)")
	f.DurationVar(&o.Limit, "limit", 30*time.Minute, "give the run up after so long")
	f.StringVar(&o.Stint, "stint", "", "stint binary (default: built from this source)")
	f.StringVar(&flags, "flags", "", "more flags for stint, separated by spaces")
	f.StringVar(&o.Redis, "redis", "redis-server", "redis-server binary")
	f.StringVar(&o.Name, "name", "one-node", "name of the result; empty: print only (default with -short)")
	f.StringVar(&o.Results, "results", "bench/results", "folder of the results")
	f.StringVar(&o.Chart, "chart", "docs/speed.svg", "file of the chart, made of a stored result with redis-benchmark's part; empty: none (default with -short)")
	if err := f.Parse(args); err != nil {
		return nil, usage(err)
	}
	if o.Short {
		set := map[string]bool{}
		f.Visit(func(g *flag.Flag) { set[g.Name] = true })
		shorten(o, &memoryKeys, set)
	}
	o.Settle = settle
	if o.Short {
		o.Settle = settle / 20
	}
	o.ServerFlags = strings.Fields(flags)
	err := errors.Join(
		chosen(&o.Parts, "part", parts, allParts),
		chosen(&o.Subjects, "subject", subjects, subjectNames()),
		numbers(&o.Pipelines, "pipeline depth", pipelines, 1, 10_000),
		numbers(&o.MemoryKeys, "number of live buckets", memoryKeys, 1, 1_000_000_000),
		numbers(&o.Refusals, "percentage", refusals, 0, 100),
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
func shorten(o *options, memoryKeys *string, set map[string]bool) {
	for name, shorten := range map[string]func(){
		"rounds":      func() { o.Rounds = 1 },
		"d":           func() { o.Duration = 200 * time.Millisecond },
		"r":           func() { o.Keys = 10_000 },
		"memory-keys": func() { *memoryKeys = "20000,50000" },
		"engine-keys": func() { o.EngineKeys = 50_000 },
		"many-keys":   func() { o.ManyKeys = 100_000 },
		"drain-keys":  func() { o.DrainKeys = 20_000 },
		"idle-conns":  func() { o.IdleConns = 200 },
		"name":        func() { o.Name = "" },
		"chart":       func() { o.Chart = "" },
	} {
		if !set[name] {
			shorten()
		}
	}
}

func (o *options) validate() error {
	switch {
	case o.Rounds < 1, o.Conns < 1, o.Keys < 1, o.Loops < 1, o.EngineKeys < 1, o.ManyKeys < 1, o.DrainKeys < 1, o.IdleConns < 1:
		return errors.New("rounds, connections, keys and loops must be at least 1")
	case o.Loops > o.Conns:
		return errors.New("more loops than connections")
	case o.Duration < 10*time.Millisecond:
		return errors.New("a measurement takes 10ms at least")
	case o.Limit <= 0:
		return errors.New("the limit must be above 0")
	case !(o.Zipf > 0 && o.Zipf <= 10):
		return errors.New("the zipf exponent must be above 0, and 10 at most")
	case !(o.OpenRate >= 0 && o.OpenRate <= 1e7):
		return errors.New("the open loops' rate must be 0 to 10000000 a second")
	case !slices.IsSorted(o.MemoryKeys):
		return errors.New("the numbers of live buckets must rise: each is filled up from the one before")
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

func numbers[N int | int64](to *[]N, what, list string, least, most int64) error {
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("invalid %s %q: want %d to %d, separated by commas", what, text, least, most)
		}
		*to = append(*to, N(n))
	}
	return nil
}
