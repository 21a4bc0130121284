package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// profileLoads are what a server mostly does, for the compiler: single commands,
// pipelines, and a little of each other kind of limiter.
var profileLoads = []soakLoad{
	{25, 1, 100_000, 0, "THROTTLE b:# 10 20 1"},
	{25, 16, 1_000_000, 0.99, "THROTTLE b:# 100 100/m"},
	{4, 64, 100_000, 0, "THROTTLE b:# 10 20 1"},
	{2, 4, 100_000, 0, "CL.THROTTLE c:# 14 30 60"},
	{2, 4, 100_000, 0, "WINDOW s:# 100 10s 1 SLIDING"},
	{2, 4, 100_000, 0, "WINDOW f:# 100 10s 1"},
}

// runProfile makes the CPU profile of a server under a usual load, by which Go
// compiles cmd/stint.
func runProfile(ctx context.Context, args []string, out, progress io.Writer) error {
	o := &options{Subjects: []string{stintInterval}}
	var d time.Duration
	var file string
	f := flag.NewFlagSet("bench profile", flag.ContinueOnError)
	f.SetOutput(progress)
	f.DurationVar(&d, "d", 20*time.Second, "duration of the load")
	f.StringVar(&file, "o", "cmd/stint/default.pgo", "file for the profile")
	if err := f.Parse(args); err != nil {
		return usage(err)
	}
	if f.NArg() > 0 || d < 2*time.Second {
		fmt.Fprintln(progress, "bench profile: want no arguments, and a load of 2s or more")
		return errUsage
	}
	b, err := findBinaries(ctx, o)
	if err != nil {
		return err
	}
	defer b.remove()
	pprof, err := freeAddress()
	if err != nil {
		return err
	}
	server, err := start(ctx, o.chosenOf(stintInterval)[0], b, "--pprof-addr", pprof)
	if err != nil {
		return err
	}
	defer server.Kill()
	loaded, stop := context.WithTimeout(ctx, d+2*time.Second)
	defer stop()
	s := &soak{server: server, log: progress}
	var all sync.WaitGroup
	for i, l := range profileLoads {
		all.Go(func() { s.repeat(loaded, l, uint64(i)) })
	}
	profile, err := fetch(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", pprof, int(d.Seconds())))
	stop()
	all.Wait()
	switch {
	case err != nil:
		return fmt.Errorf("the profile cannot be had: %w", err)
	case s.errors.Load() > 0:
		return fmt.Errorf("%d errors under load: no profile is stored", s.errors.Load())
	}
	if err := os.WriteFile(file, profile, 0o644); err != nil {
		return fmt.Errorf("the profile cannot be stored: %w", err)
	}
	fmt.Fprintf(out, "%s: %d bytes\n", file, len(profile))
	return nil
}

// freeAddress is an address of this machine where nobody listens now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port for the profile: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func fetch(ctx context.Context, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("the server replied %s", reply.Status)
	}
	return body, err
}
