package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/stint-dev/stint/bench/internal/proc"
)

// clusterRun is a measurement of strict nodes beside Redis.
type clusterRun struct {
	rounds   int
	requests int64
	name     string
	results  string
	o        *options
	b        *binaries
	figures  map[string][]float64
	progress io.Writer
}

// shape is one load.
type clusterShape struct {
	name         string
	conns, depth int
}

// runCluster measures one strict node and three on this machine, with the disk
// synced, beside one Redis that runs the bucket as a script and saves nothing.
func runCluster(ctx context.Context, args []string, out, progress io.Writer) error {
	c := &clusterRun{figures: map[string][]float64{}, progress: progress}
	f := flag.NewFlagSet("bench cluster", flag.ContinueOnError)
	f.SetOutput(progress)
	f.IntVar(&c.rounds, "rounds", 5, "rounds; the table shows medians")
	f.Int64Var(&c.requests, "n", 600_000, "requests of one measurement")
	f.StringVar(&c.name, "name", "", "name of the result's file in -results; empty: it is only printed")
	f.StringVar(&c.results, "results", filepath.Join("bench", "results"), "folder of the results")
	if err := f.Parse(args); err != nil {
		return usage(err)
	}
	var err error
	if c.o, err = parseOptions([]string{"-only", partBench}, progress); err != nil {
		return err
	}
	if c.b, err = findBinaries(ctx, c.o); err != nil {
		return err
	}
	defer c.b.remove()
	if c.b.benchmark == "" {
		return errors.New("redis-benchmark is not installed: " + installRedis)
	}
	if err := c.measure(ctx); err != nil {
		return err
	}
	for _, timeout := range []string{"300ms", "1s", "2s"} {
		for range c.rounds {
			if err := c.failover(ctx, timeout); err != nil {
				return err
			}
		}
	}
	text := c.report(args)
	fmt.Fprint(out, text)
	if c.name == "" {
		return nil
	}
	return writeNew(filepath.Join(c.results, time.Now().UTC().Format(time.DateOnly)+"-"+c.name+".md"), text)
}

func (c *clusterRun) add(v float64, name ...string) {
	key := strings.Join(name, "/")
	c.figures[key] = append(c.figures[key], v)
}

func (c *clusterRun) median(name ...string) float64 {
	return spreadOf(c.figures[strings.Join(name, "/")]).median
}

var clusterShapes = []clusterShape{{"50 × 16", 50, 16}, {"200 × 16", 200, 16}, {"50 × 64", 50, 64}, {"50 × 1", 50, 1}}

// nodes are the processes of a cluster.
type nodes []*proc.Server

func (n nodes) stop() {
	var wg sync.WaitGroup
	for _, s := range n {
		wg.Go(s.Stop)
	}
	wg.Wait()
}

// startNodes starts n nodes that are a cluster and waits for the leader, which
// comes first.
func (c *clusterRun) startNodes(ctx context.Context, n int, flags ...string) (nodes, error) {
	var list nodes
	var join []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		join = append(join, l.Addr().String())
		_ = l.Close()
	}
	for i := range n {
		s, err := proc.Start(ctx, "stint", func(host, port, dir string) []string {
			args := []string{c.b.stint, "--addr", host + ":" + port, "--dir", filepath.Join(dir, "data"), "--durability", "strict", "--max-clients", "1000"}
			if n > 1 {
				args = append(args, "--node-id", fmt.Sprint("n", i+1), "--raft-addr", join[i], "--join", strings.Join(join, ","), "--bootstrap-expect", strconv.Itoa(n))
			}
			return append(args, flags...)
		})
		if err != nil {
			list.stop()
			return nil, err
		}
		list = append(list, s)
	}
	for end := time.Now().Add(30 * time.Second); ; {
		for i, s := range list {
			if raftField(s, "state") == "leader" && raftField(s, "serving") == "1" {
				list[0], list[i] = list[i], list[0]
				return list, nil
			}
		}
		if time.Now().After(end) {
			list.stop()
			return nil, errors.New("no node became the leader")
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			list.stop()
			return nil, err
		}
	}
}

// raftField is a line of RAFT INFO.
func raftField(s *proc.Server, name string) string {
	conn, err := redis.Dial("tcp", s.Addr, redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(30*time.Second))
	if err != nil {
		return ""
	}
	defer conn.Close()
	text, _ := redis.String(conn.Do("RAFT", "INFO"))
	return fieldOf(text, name, "")
}

func raftNumber(s *proc.Server, name string) float64 {
	v, _ := strconv.ParseFloat(raftField(s, name), 64)
	return v
}

// measure runs all loads on Redis, one strict node and three, in turn.
func (c *clusterRun) measure(ctx context.Context) error {
	lua, err := start(ctx, c.o.chosenOf(redisLua)[0], c.b)
	if err != nil {
		return err
	}
	defer lua.Stop()
	solo, err := c.startNodes(ctx, 1)
	if err != nil {
		return err
	}
	defer solo.stop()
	three, err := c.startNodes(ctx, 3)
	if err != nil {
		return err
	}
	defer three.stop()
	subjects := []struct {
		name, addr string
		server     *proc.Server
		admitted   []string
		refused    []string
	}{
		{"redis", lua.Addr, nil, lua.spend(lua.sha, 1), []string{"EVALSHA", lua.sha, "1", "r:" + "__rand_int__", "1", "1", "3600000000000", "1"}},
		{"one", solo[0].Addr, solo[0], lua.strict(1), []string{"THROTTLE", "r:__rand_int__", "1", "1/d", "1"}},
		{"three", three[0].Addr, three[0], lua.strict(1), []string{"THROTTLE", "r:__rand_int__", "1", "1/d", "1"}},
		{"follower", three[1].Addr, nil, lua.strict(1), []string{"THROTTLE", "r:__rand_int__", "1", "1/d", "1"}},
	}
	few := *c.o
	few.Keys = 1000 // so that all are used up before refusals are measured
	for _, s := range subjects {
		few.Conns = 50
		if _, err := runRedisBenchmark(ctx, c.b.benchmark, s.addr, &few, 16, 50_000, s.refused); err != nil {
			return err
		}
	}
	for round := range c.rounds {
		for _, shape := range clusterShapes {
			for _, s := range subjects {
				n := c.requests
				if shape.depth == 1 {
					n /= 6
				}
				for _, kind := range []string{"admitted", "refused"} {
					o := *c.o
					command := s.admitted
					if kind == "refused" {
						o, command = few, s.refused
					}
					o.Conns = shape.conns
					entries, commands, bytes, begun := 0.0, 0.0, 0.0, time.Now()
					if s.server != nil {
						entries, commands, bytes = raftNumber(s.server, "entries"), raftNumber(s.server, "commands"), raftNumber(s.server, "entry_bytes")
					}
					m, err := runRedisBenchmark(ctx, c.b.benchmark, s.addr, &o, shape.depth, n, command)
					if err != nil {
						return err
					}
					c.add(m.rate, s.name, shape.name, kind, "rate")
					c.add(m.p50, s.name, shape.name, kind, "p50")
					c.add(m.p99, s.name, shape.name, kind, "p99")
					if s.server != nil {
						entries, commands, bytes = raftNumber(s.server, "entries")-entries, raftNumber(s.server, "commands")-commands, raftNumber(s.server, "entry_bytes")-bytes
						c.add(entries/time.Since(begun).Seconds(), s.name, shape.name, kind, "entries")
						if entries > 0 {
							c.add(commands/entries, s.name, shape.name, kind, "batch")
							c.add(bytes/entries, s.name, shape.name, kind, "bytes")
						}
					}
					fmt.Fprintf(c.progress, "round %d: %s, %s, %s: %.0f/s, p50 %.0f µs, p99 %.0f µs\n", round+1, s.name, shape.name, kind, m.rate, m.p50, m.p99)
				}
			}
		}
	}
	return nil
}

// strict is the spend of a strict node: its command is stint's.
func (r *runningSubject) strict(cost int) []string {
	return []string{"THROTTLE", key, strconv.Itoa(spendable), "1/h", strconv.Itoa(cost)}
}

// failover kills the leader while clients of the other two nodes decide, and notes
// the longest time without an answer that is a decision.
func (c *clusterRun) failover(ctx context.Context, timeout string) error {
	list, err := c.startNodes(ctx, 3, "--election-timeout", timeout)
	if err != nil {
		return err
	}
	defer list.stop()
	if err := wait(ctx, time.Second); err != nil {
		return err
	}
	var mu sync.Mutex
	last, gap := time.Now(), time.Duration(0)
	ended := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			conn, err := redis.Dial("tcp", list[1+i%2].Addr, redis.DialReadTimeout(10*time.Second))
			if err != nil {
				return
			}
			defer conn.Close()
			for {
				select {
				case <-ended:
					return
				default:
				}
				if _, err := conn.Do("THROTTLE", fmt.Sprint("f:", i), "1000000", "1/h", "1"); err != nil {
					continue
				}
				mu.Lock()
				now := time.Now()
				gap = max(gap, now.Sub(last))
				last = now
				mu.Unlock()
			}
		})
	}
	err = wait(ctx, time.Second)
	mu.Lock()
	gap = 0
	mu.Unlock()
	list[0].Kill()
	if err == nil {
		err = wait(ctx, 12*time.Second)
	}
	close(ended)
	clients.Wait()
	c.add(gap.Seconds()*1000, "failover", timeout)
	fmt.Fprintf(c.progress, "failover with --election-timeout %s: %v without a decision\n", timeout, gap.Round(time.Millisecond))
	return err
}

// report writes the tables.
func (c *clusterRun) report(args []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Strict nodes beside Redis\n\nDate %s, %d processors, source %s, command `go run ./bench cluster %s`. Medians of %d rounds; redis-benchmark; everything on one machine and one disk, synced. ",
		time.Now().UTC().Format(time.RFC3339), runtime.NumCPU(), sourceState(), strings.Join(args, " "), c.rounds)
	fmt.Fprintf(&b, "Redis runs the token bucket as a Lua script and saves nothing.\n\n## Goals\n\n| what | goal | figure | |\n| --- | --- | --- | --- |\n")
	verdict := func(what string, goal, got float64, format string, atLeast bool) {
		met, sign := "met", "≥"
		if !atLeast {
			sign = "≤"
		}
		if atLeast == (got < goal) && got != goal {
			met = "missed"
		}
		fmt.Fprintf(&b, "| %s | %s "+format+" | "+format+" | %s |\n", what, sign, goal, got, met)
	}
	base := "50 × 16"
	ratio := func(kind string) float64 {
		return c.median("three", base, kind, "rate") / c.median("redis", base, kind, "rate")
	}
	verdict("three nodes, -c 50 -P 16, all admitted, × Redis", 1, ratio("admitted"), "%.2f", true)
	verdict("the same, the aim", 2, ratio("admitted"), "%.2f", true)
	verdict("three nodes, -c 50 -P 16, all refused, × Redis", 3, ratio("refused"), "%.2f", true)
	verdict("entries a second while all is refused", 1.2, c.median("three", base, "refused", "entries"), "%.1f", false)
	names := map[string]string{"redis": "Redis, Lua, no persistence", "one": "one strict node", "three": "three nodes, at the leader", "follower": "three nodes, at a follower"}
	for _, kind := range []string{"admitted", "refused"} {
		fmt.Fprintf(&b, "\n## All %s\n\n| connections × pipeline | | requests/s | × Redis | p50 µs | p99 µs | decisions an entry | bytes an entry | entries/s |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n", kind)
		for _, shape := range clusterShapes {
			for _, s := range []string{"redis", "one", "three", "follower"} {
				at := func(what string) float64 { return c.median(s, shape.name, kind, what) }
				extra := "| | | |"
				if s == "one" || s == "three" {
					extra = fmt.Sprintf("| %.0f | %.0f | %.0f |", at("batch"), at("bytes"), at("entries"))
				}
				fmt.Fprintf(&b, "| %s | %s | %.0f | %.2f | %.0f | %.0f %s\n", shape.name, names[s], at("rate"), at("rate")/c.median("redis", shape.name, kind, "rate"), at("p50"), at("p99"), extra)
			}
		}
	}
	fmt.Fprintf(&b, "\n## The leader is killed\n\nkill -9 of the leader while eight clients decide through the other two nodes: the longest time without a decision, ms.\n\n| --election-timeout | median | least | most |\n| --- | --- | --- | --- |\n")
	for _, timeout := range []string{"300ms", "1s", "2s"} {
		s := spreadOf(c.figures["failover/"+timeout])
		fmt.Fprintf(&b, "| %s | %.0f | %.0f | %.0f |\n", timeout, s.median, s.min, s.max)
	}
	return b.String()
}
