package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/stint-dev/stint/bench/internal/load"
)

// runLoad is the load generator alone, against a server that runs already.
func runLoad(ctx context.Context, args []string, out, progress io.Writer) error {
	var c load.Config
	f := flag.NewFlagSet("bench load", flag.ContinueOnError)
	f.SetOutput(progress)
	f.StringVar(&c.Addr, "addr", "127.0.0.1:6390", "server: host:port or unix:/path")
	f.IntVar(&c.Conns, "c", 50, "connections")
	f.IntVar(&c.Pipeline, "P", 1, "commands in flight on each connection")
	f.IntVar(&c.Loops, "loops", 1, "threads of the generator")
	f.Int64Var(&c.Keys, "r", 100_000, "number of keys: "+load.Placeholder+" becomes 0 to this less one")
	f.BoolVar(&c.Sequential, "sequential", false, "every key in turn instead of at random")
	f.Int64Var(&c.Requests, "n", 0, "requests, or 0 for -d")
	f.DurationVar(&c.Duration, "d", 0, "duration (default 3s unless -n is given)")
	f.Int64Var(&c.First, "first", 0, "number of the first key")
	f.Float64Var(&c.Zipf, "zipf", 0, "exponent s: key number i is as frequent as 1/(i+1)^s; 0: all alike")
	f.Float64Var(&c.Rate, "rate", 0, "open loop: requests a second, sent whatever the server does; 0: closed loop")
	f.Uint64Var(&c.Seed, "seed", 1, "seed of the random keys")
	f.Usage = func() {
		fmt.Fprintf(progress, "usage: bench load [flags] COMMAND [ARGUMENT …]\n")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return usage(err)
	}
	c.Command = f.Args()
	if c.Requests == 0 && c.Duration == 0 {
		c.Duration = 3 * time.Second
	}
	if len(c.Command) > 0 {
		c.Verdict = verdictOf(c.Command[0])
	}
	if err := c.Validate(); err != nil {
		fmt.Fprintf(progress, "bench load: %v\n", err)
		return errUsage
	}
	r, err := load.Run(ctx, c)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d requests in %v: %.0f a second, %.1f %% refused, latency p50 %v, p99 %v, p99.9 %v, longest %v\n",
		r.Requests, r.Elapsed.Round(time.Millisecond), r.Rate(), 100*r.RefusedShare(),
		r.Latency(50), r.Latency(99), r.Latency(99.9), r.Latency(100))
	return nil
}

// verdictOf knows how refusals of the commands that are measured look.
func verdictOf(command string) load.Verdict {
	switch strings.ToUpper(command) {
	case "THROTTLE", "LEAK", "WINDOW", "EVALSHA":
		return load.RefusedIfZero
	case "CL.THROTTLE":
		return load.RefusedIfOne
	}
	return load.NeverRefused
}
