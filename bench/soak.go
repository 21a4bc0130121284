package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/bench/internal/load"
)

// soakLoad is one of the kinds of requests that a soak sends all the time. Key
// numbers are bounded, so that memory has an end to reach; prefixes differ where
// one kind of limiter may not meet another.
type soakLoad struct {
	conns, pipeline int
	keys            int64
	zipf            float64
	command         string
}

var soakLoads = []soakLoad{
	{16, 16, 1_000_000, 0.99, "THROTTLE b:# 10 20 1"},
	{8, 16, 500_000, 0, "THROTTLE b:# 10 20 1"},
	{4, 8, 1_000_000, 0.99, "THROTTLE b:# 10 20 2 ATMOST"},
	{2, 4, 1_000_000, 0.99, "THROTTLE b:# 10 20 1 PEEK"},
	{2, 4, 1_000_000, 0.99, "THROTTLE b:# 20 40 1 FORCE"},
	{4, 4, 100_000, 0.5, "CL.THROTTLE c:# 14 30 60"},
	{4, 4, 100_000, 0.5, "LEAK l:# 100 50/s"},
	{4, 8, 200_000, 0, "WINDOW f:# 100 10s 1 FIXED"},
	{4, 8, 200_000, 0, "WINDOW s:# 100 10s 1 SLIDING"},
	{4, 8, 10_000, 0.8, "WINDOW g:# 50 5s 1 LOG"},
	{2, 2, 1_000_000, 0.99, "REFUND b:# 1"},
	{2, 2, 1_000_000, 0.99, "INSPECT b:#"},
	{1, 2, 1_000_000, 0.99, "PTTL b:#"},
	{1, 2, 200_000, 0, "DEL f:#"},
	{1, 1, 1, 0, "PING"},
}

func (l soakLoad) config(addr string, seed uint64, d time.Duration) load.Config {
	return load.Config{
		Addr: addr, Command: strings.Fields(strings.ReplaceAll(l.command, "#", load.Placeholder)),
		Conns: l.conns, Pipeline: l.pipeline, Loops: 1, Keys: l.keys, Zipf: l.zipf, Seed: seed, Duration: d,
	}
}

// soak is a long run at full load of one server.
type soak struct {
	duration, every time.Duration
	server          *runningSubject
	log             io.Writer
	errors          atomic.Int64
	replies         atomic.Int64
	connections     atomic.Int64 // that short clients opened
	saying          sync.Mutex
}

func runSoak(ctx context.Context, args []string, out, progress io.Writer) error {
	o := &options{}
	s := &soak{}
	var flags, durability string
	f := flag.NewFlagSet("bench soak", flag.ContinueOnError)
	f.SetOutput(progress)
	f.DurationVar(&s.duration, "d", 10*time.Minute, "duration of the load")
	f.DurationVar(&s.every, "every", 5*time.Second, "time between two samples")
	f.StringVar(&durability, "durability", "interval", "--durability of the server: none or interval")
	f.StringVar(&o.Stint, "stint", "", "stint binary (default: built from this source)")
	f.StringVar(&flags, "flags", "", "more flags for stint, separated by spaces")
	f.StringVar(&o.Name, "name", "soak", "name of the log; empty: print only")
	f.StringVar(&o.Results, "results", "bench/results", "folder of the log")
	if err := f.Parse(args); err != nil {
		return usage(err)
	}
	o.Subjects, o.ServerFlags = []string{"stint-" + durability}, strings.Fields(flags)
	list := o.chosenOf(stintNone, stintInterval)
	wrong := ""
	switch {
	case f.NArg() > 0:
		wrong = fmt.Sprintf("%q is no flag", f.Arg(0))
	case len(list) == 0:
		wrong = fmt.Sprintf("there is no durability %q: want none or interval", durability)
	case s.every < 100*time.Millisecond || s.duration < minSamples*s.every:
		wrong = fmt.Sprintf("a soak takes %d samples at least, 100ms or more apart: a longer -d or a shorter -every", minSamples)
	case strings.ContainsAny(o.Name, "/\\"):
		wrong = "the log's name becomes a file's name: no slashes"
	}
	if wrong != "" {
		fmt.Fprintf(progress, "bench soak: %s\n", wrong)
		return errUsage
	}
	b, err := findBinaries(ctx, o)
	if err != nil {
		return err
	}
	defer b.remove()
	begin := time.Now().UTC()
	s.log = out
	if o.Name != "" {
		file, err := createLog(o.Results, begin.Format(time.DateOnly)+"-"+o.Name)
		if err != nil {
			return err
		}
		defer file.Close()
		s.log = io.MultiWriter(out, file)
		defer fmt.Fprintf(progress, "the log is %s\n", file.Name())
	}
	m := describeMachine(b)
	fmt.Fprintf(s.log, "soak of %v, durability %s, %s\n%s\n%s, %d cores, %s, kernel %s, %s\n", s.duration, durability, begin.Format("2006-01-02 15:04 MST"),
		strings.TrimSpace("go run ./bench soak "+strings.Join(args, " ")), m.CPU, m.Cores, m.Memory, m.Kernel, m.Stint)
	for _, l := range soakLoads {
		fmt.Fprintf(s.log, "%3d connections, -P %-2d  %s (%d keys)\n", l.conns, l.pipeline, l.command, l.keys)
	}
	if s.server, err = start(ctx, list[0], b); err != nil {
		return err
	}
	defer s.server.Kill()
	return s.run(ctx)
}

// createLog makes a new file folder/name.log, with a number if there is one.
func createLog(folder, name string) (*os.File, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("the log cannot be stored: %w", err)
	}
	for n := 1; ; n++ {
		path := filepath.Join(folder, name+".log")
		if n > 1 {
			path = filepath.Join(folder, fmt.Sprintf("%s-%d.log", name, n))
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil || !os.IsExist(err) {
			return f, err
		}
	}
}

// run makes the load, samples meanwhile, and ends with the verdicts. It returns
// an error if one of them is bad.
func (s *soak) run(ctx context.Context) error {
	before, err := s.sample(0)
	if err != nil {
		return err
	}
	loaded, stop := context.WithTimeout(ctx, s.duration)
	defer stop()
	var all sync.WaitGroup
	for i, l := range soakLoads {
		all.Go(func() { s.repeat(loaded, l, uint64(i)) })
	}
	all.Go(func() { s.comeAndGo(loaded) })
	samples, err := s.watch(loaded)
	stop()
	all.Wait()
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		fmt.Fprintln(s.log, "interrupted: there is no verdict")
		return err
	}
	after, err := s.settled(ctx, before)
	if err != nil {
		return err
	}
	troubles, err := s.troubles()
	if err != nil {
		return err
	}
	fmt.Fprintf(s.log, "before the load: %s\nafter it:        %s\n\n", before.rest(), after.rest())
	return judge(s.log, samples, before, after, s.errors.Load(), s.connections.Load(), troubles)
}

// repeat sends one kind of requests, in runs of some seconds: each opens its
// connections anew.
func (s *soak) repeat(ctx context.Context, l soakLoad, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	for round := uint64(0); ctx.Err() == nil; round++ {
		d := 2*time.Second + time.Duration(random.Int64N(int64(4*time.Second)))
		if end, ok := ctx.Deadline(); ok {
			d = min(d, time.Until(end)-50*time.Millisecond)
		}
		if d < time.Millisecond {
			return
		}
		result, err := load.Run(ctx, l.config(s.server.Addr, seed<<32|round, d))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.failed(l.command, err)
			if wait(ctx, 100*time.Millisecond) != nil {
				return
			}
		default:
			s.replies.Add(result.Requests)
		}
	}
}

// comeAndGo is clients that connect, ask once and leave, in three ways: having
// read the reply, in the middle of a command, and by a reset while the reply
// is on its way.
func (s *soak) comeAndGo(ctx context.Context) {
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for n := uint64(0); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if err := s.visit(n); err != nil {
			s.failed("a client that comes and goes", err)
		}
	}
}

func (s *soak) visit(n uint64) error {
	conn, err := net.DialTimeout("tcp", s.server.Addr, 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	s.connections.Add(1)
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	request := []byte("*4\r\n$8\r\nTHROTTLE\r\n$10\r\nv:00000000\r\n$2\r\n10\r\n$2\r\n20\r\n")
	copy(request[len("*4\r\n$8\r\nTHROTTLE\r\n$10\r\nv:"):], fmt.Sprintf("%08d", n%1000))
	if n%3 == 1 {
		request = request[:len(request)/2]
	}
	if _, err := conn.Write(request); err != nil {
		return err
	}
	switch n % 3 {
	case 0:
		head := make([]byte, 4)
		if _, err := io.ReadFull(conn, head); err != nil {
			return err
		}
		if binary.BigEndian.Uint32(head) != binary.BigEndian.Uint32([]byte("*5\r\n")) {
			return fmt.Errorf("reply %q", head)
		}
	case 2:
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	return nil
}

// failed counts an error, and says the first ones.
func (s *soak) failed(what string, err error) {
	if s.errors.Add(1) > 20 {
		return
	}
	s.saying.Lock()
	defer s.saying.Unlock()
	fmt.Fprintf(s.log, "ERROR: %s: %v\n", what, err)
}

// watch samples until ctx is done.
func (s *soak) watch(ctx context.Context) ([]soakSample, error) {
	begin := time.Now()
	every := time.NewTicker(s.every)
	defer every.Stop()
	fmt.Fprintf(s.log, "\n%8s  %9s  %9s  %9s  %10s  %9s  %7s  %6s  %9s  %6s\n", "time", "RSS, MB", "used, MB", "heap, MB", "goroutines", "files", "clients", "errors", "commands/s", "flush")
	last, err := s.sample(0)
	if err != nil {
		return nil, err
	}
	var samples []soakSample
	for {
		select {
		case <-ctx.Done():
			return samples, nil
		case <-every.C:
		}
		next, err := s.sample(time.Since(begin))
		if ctx.Err() != nil {
			return samples, nil // the load was ending while this one was taken
		}
		if err != nil {
			return nil, err
		}
		next.rate = (next.commands - last.commands) / (next.at - last.at).Seconds()
		last = next
		samples = append(samples, next)
		s.saying.Lock()
		fmt.Fprintf(s.log, "%8s  %9.1f  %9.1f  %9.1f  %10.0f  %9d  %7.0f  %6d  %9.0f  %4.0fms\n", next.at.Round(time.Second), next.resident/1e6, next.used/1e6, next.heap/1e6,
			next.goroutines, next.files, next.clients, s.errors.Load(), next.rate, next.flush/1000)
		s.saying.Unlock()
	}
}

// settled samples until the connections of the load are gone: with goroutines
// and files as before, or after 10 s as they then are.
func (s *soak) settled(ctx context.Context, before soakSample) (now soakSample, err error) {
	for deadline := time.Now().Add(10 * time.Second); ; {
		if now, err = s.sample(0); err != nil || now.goroutines <= before.goroutines && now.files <= before.files || time.Now().After(deadline) {
			return now, err
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return now, err
		}
	}
}

// troubles are counters of the server that a soak leaves at 0.
func (s *soak) troubles() (map[string]float64, error) {
	counted := map[string]float64{}
	for _, name := range []string{"connection_panics", "rejected_connections", "flush_failures", "client_output_buffer_limit_disconnections"} {
		section := "stats"
		if strings.HasPrefix(name, "flush") {
			section = "persistence"
		}
		v, err := s.server.info(section, name)
		if err != nil {
			return nil, err
		}
		counted[name] = v
	}
	return counted, nil
}

// listOf is a map's entries in the order of their names.
func listOf(m map[string]float64) string {
	var names []string
	for name, v := range m {
		names = append(names, name+" "+strconv.FormatFloat(v, 'f', -1, 64))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
