package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/stint-dev/stint/bench/internal/load"
	"github.com/stint-dev/stint/bench/internal/proc"
)

// Generators of load.
const (
	ownGenerator   = "our generator"
	redisBenchmark = "redis-benchmark"
)

// cell is one place of the table: who was measured, by whom, how deep.
type cell struct {
	generator string
	subject   string
	pipeline  int
}

// series is what the rounds gave for one cell, a value each.
type series struct {
	rate    []float64 // replies per second
	cpu     []float64 // server CPU per decision, us
	p50     []float64 // round trip, us
	p99     []float64 // round trip, us
	refused []float64 // share, 0 to 1; our generator only
}

// sample is one measurement.
type sample struct{ rate, cpu, p50, p99, refused float64 }

func (s *series) add(m sample) {
	s.rate = append(s.rate, m.rate)
	s.cpu = append(s.cpu, m.cpu)
	s.p50 = append(s.p50, m.p50)
	s.p99 = append(s.p99, m.p99)
	s.refused = append(s.refused, m.refused)
}

// table is everything measured over the wire.
type table map[cell]*series

// measureRounds runs every subject at every depth, round after round, so that
// whatever else the machine does hits all of them alike. Each round begins
// with another subject: none profits from its place. All servers run all the
// time; those not measured are idle.
func measureRounds(ctx context.Context, o *options, b *binaries, progress io.Writer) (table, error) {
	var running []*runningSubject
	defer func() {
		for _, r := range running {
			r.Stop()
		}
	}()
	for _, s := range o.chosenSubjects() {
		r, err := start(ctx, s, b)
		if err != nil {
			return nil, err
		}
		running = append(running, r)
		// Warm up: every key is there once, as it will be from then on.
		if _, err := load.Run(ctx, load.Config{
			Addr: r.Addr, Command: s.command(r.sha), Conns: 4, Pipeline: 64, Loops: 1,
			Keys: o.Keys, Sequential: true, Requests: o.Keys,
		}); err != nil {
			return nil, fmt.Errorf("%s, warming up: %w", s.name, err)
		}
	}
	t := table{}
	for round := range o.Rounds {
		for _, depth := range o.Pipelines {
			for i := range running {
				r := running[(i+round)%len(running)]
				if err := t.measure(ctx, o, b, r, depth, uint64(round), progress); err != nil {
					return nil, fmt.Errorf("%s, -P %d: %w", r.name, depth, err)
				}
			}
		}
		fmt.Fprintf(progress, "round %d of %d is done\n", round+1, o.Rounds)
	}
	return t, nil
}

// measure fills one subject's cells of one round.
func (t table) measure(ctx context.Context, o *options, b *binaries, r *runningSubject, depth int, seed uint64, progress io.Writer) error {
	command := r.command(r.sha)
	record := func(generator string, run func() (int64, sample, error)) error {
		before, err := proc.CPU(r.Pid())
		if err != nil {
			return err
		}
		requests, m, err := run()
		if err != nil {
			return err
		}
		after, err := proc.CPU(r.Pid())
		if err != nil {
			return err
		}
		m.cpu = perRequest(after-before, requests)
		c := cell{generator, r.name, depth}
		if t[c] == nil {
			t[c] = &series{}
		}
		t[c].add(m)
		fmt.Fprintf(progress, "%-16s %-15s -P %-3d %9.0f/s  %6.2f us CPU  p99 %.0f us\n", generator, r.name, depth, m.rate, m.cpu, m.p99)
		return nil
	}
	expected := 100_000.0 // replies per second, for the first run of redis-benchmark
	if o.has(partWire) {
		if err := record(ownGenerator, func() (int64, sample, error) {
			result, err := load.Run(ctx, load.Config{
				Addr: r.Addr, Command: command, Conns: o.Conns, Pipeline: depth, Loops: o.Loops,
				Keys: o.Keys, Duration: o.Duration, Seed: seed, Verdict: verdictOf(command[0]),
			})
			if err != nil {
				return 0, sample{}, err
			}
			expected = result.Rate()
			return result.Requests, sample{
				rate: result.Rate(), p50: micros(result.Latency(50)), p99: micros(result.Latency(99)), refused: result.RefusedShare(),
			}, nil
		}); err != nil {
			return err
		}
	}
	if !o.has(partBench) || b.benchmark == "" {
		return nil
	}
	return record(redisBenchmark, func() (int64, sample, error) {
		if s := t[cell{redisBenchmark, r.name, depth}]; s != nil {
			expected = s.rate[len(s.rate)-1]
		}
		requests := max(int64(expected*o.Duration.Seconds()), 1000)
		m, err := runRedisBenchmark(ctx, b.benchmark, r.Addr, o, depth, requests, command)
		return requests, m, err
	})
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func perRequest(cpu time.Duration, requests int64) float64 {
	return micros(cpu) / float64(max(requests, 1))
}
