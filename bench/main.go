// Command bench measures stint side by side with Redis, in one run on one
// machine.
//
//	go run ./bench                   the whole table, stored in bench/results, with a chart
//	go run ./bench -short            the same in seconds: to see that it works
//	go run ./bench -only memory,idle parts of it
//	go run ./bench check             goal, figure and reason of the newest result
//	go run ./bench chart             its chart once more
//	go run ./bench compare -ref main the server of another commit beside the one here
//	go run ./bench cluster           strict nodes, and what a killed leader costs
//	go run ./bench soak -d 10m       full load for a long time: what grows?
//	go run ./bench profile           the profile that the server is compiled by
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
	"syscall"
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
		fmt.Fprintln(os.Stderr, "bench: interrupted; the servers are stopped, no result was stored")
		os.Exit(1)
	default:
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "load":
			return runLoad(ctx, args[1:], out, progress)
		case "compare":
			return runCompare(ctx, args[1:], out, progress)
		case "cluster":
			return runCluster(ctx, args[1:], out, progress)
		case "soak":
			return runSoak(ctx, args[1:], out, progress)
		case "profile":
			return runProfile(ctx, args[1:], out, progress)
		case "check":
			return runCheck(args[1:], out, progress)
		case "chart":
			return runChart(args[1:], progress)
		}
	}
	o, err := parseOptions(args, progress)
	if err != nil {
		return err
	}
	return sideBySide(ctx, o, out, progress)
}

// usage keeps a request for help apart from a mistake; both are printed by the
// flag set.
func usage(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	return errUsage
}
