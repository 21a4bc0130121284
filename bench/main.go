// Command bench measures stint side by side with Redis, in one run on one
// machine.
//
//	go run ./bench                 the whole table, stored in bench/results
//	go run ./bench -short          the same in seconds: to see that it works
//	go run ./bench load -addr 127.0.0.1:6390 -P 16 THROTTLE k:__rand_int__ 10 20 1
//
// It starts redis-server and stint itself, each with a folder of its own, and
// ends what it started, also on Ctrl-C. Its numbers are for reading, not for
// tests: nothing here fails because a machine is slow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/stint-dev/stint/bench/internal/load"
)

// errUsage means that the arguments were wrong and the reason is printed.
var errUsage = errors.New("wrong arguments")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the program at once; the servers go with it.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "bench: interrupted; the servers are stopped, nothing was stored")
		os.Exit(1)
	default:
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) > 0 && args[0] == "load" {
		return runLoad(ctx, args[1:], out, progress)
	}
	o, err := parseOptions(args, progress)
	if err != nil {
		return err
	}
	return sideBySide(ctx, o, out, progress)
}

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
	fmt.Fprintf(out, "%d requests in %v: %.0f a second, %.1f %% refused, round trips p50 %v, p99 %v, p99.9 %v, longest %v\n",
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

// usage keeps a request for help apart from a mistake; both are printed by the
// flag set.
func usage(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	return errUsage
}
