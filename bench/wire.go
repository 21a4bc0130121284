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

// sample is one measurement over the wire.
type sample struct {
	rate    float64 // replies per second
	cpu     float64 // server CPU per decision, us
	p50     float64 // round trip, us
	p99     float64 // round trip, us
	refused float64 // share, 0 to 1; our generator only
}

func (r *record) addSample(name string, m sample) {
	r.add(figure(name, "rate"), m.rate)
	r.add(figure(name, "cpu"), m.cpu)
	r.add(figure(name, "p50"), m.p50)
	r.add(figure(name, "p99"), m.p99)
	r.add(figure(name, "refused"), m.refused)
}

// wireName is where the figures of one cell of the table are: who was measured,
// by whom, how deep.
func wireName(generator, subject string, pipeline int) string {
	return figure("wire", generator, subject, depthName(pipeline))
}

// startAll starts the servers of some subjects. stop ends them, also those that
// were started before an error.
func startAll(ctx context.Context, list []subject, b *binaries, more ...string) (running []*runningSubject, stop func(), err error) {
	stop = func() {
		for _, r := range running {
			r.Kill()
		}
	}
	for _, s := range list {
		r, err := start(ctx, s, b, more...)
		if err != nil {
			return nil, stop, err
		}
		running = append(running, r)
	}
	return running, stop, nil
}

// inTurn calls measure for each running subject, each round beginning with
// another one: whatever else the machine does hits all of them alike, and none
// profits from its place. All servers run all the time; those not measured are
// idle.
func inTurn(running []*runningSubject, round int, measure func(*runningSubject) error) error {
	for i := range running {
		r := running[(i+round)%len(running)]
		if err := measure(r); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

// measureWire runs every subject at every depth, round after round.
func measureWire(ctx context.Context, o *options, b *binaries, rec *record, progress io.Writer) error {
	running, stop, err := startAll(ctx, o.chosenSubjects(), b)
	defer stop()
	if err != nil {
		return err
	}
	for _, r := range running {
		// Warm up: every key is there once, as it will be from then on.
		if err := r.put(ctx, r.command(r.sha), 0, o.Keys); err != nil {
			return fmt.Errorf("%s, warming up: %w", r.name, err)
		}
	}
	for round := range o.Rounds {
		for _, depth := range o.Pipelines {
			if err := inTurn(running, round, func(r *runningSubject) error {
				return measureDepth(ctx, o, b, rec, r, depth, uint64(round), progress)
			}); err != nil {
				return fmt.Errorf("-P %d: %w", depth, err)
			}
		}
		fmt.Fprintf(progress, "over the wire: round %d of %d is done\n", round+1, o.Rounds)
	}
	return nil
}

// withCPU adds to a measurement what the server used meanwhile for each of its
// requests.
func withCPU(r *runningSubject, run func() (int64, sample, error)) (sample, error) {
	before, err := proc.CPU(r.Pid())
	if err != nil {
		return sample{}, err
	}
	requests, m, err := run()
	if err != nil {
		return sample{}, err
	}
	after, err := proc.CPU(r.Pid())
	if err != nil {
		return sample{}, err
	}
	m.cpu = perRequest(after-before, requests)
	return m, nil
}

// closedLoop measures a server by our generator. c needs what is special about
// the run: command, keys, pipeline.
func closedLoop(ctx context.Context, o *options, r *runningSubject, c load.Config) (sample, error) {
	c.Addr, c.Conns, c.Loops, c.Duration, c.Verdict = r.Addr, o.Conns, o.Loops, o.Duration, verdictOf(c.Command[0])
	return withCPU(r, func() (int64, sample, error) {
		result, err := load.Run(ctx, c)
		if err != nil {
			return 0, sample{}, err
		}
		return result.Requests, sample{
			rate: result.Rate(), p50: micros(result.Latency(50)), p99: micros(result.Latency(99)), refused: result.RefusedShare(),
		}, nil
	})
}

// measureDepth fills one subject's cells of one round.
func measureDepth(ctx context.Context, o *options, b *binaries, rec *record, r *runningSubject, depth int, seed uint64, progress io.Writer) error {
	command := r.command(r.sha)
	say := func(generator string, m sample) {
		rec.addSample(wireName(generator, r.name, depth), m)
		fmt.Fprintf(progress, "%-16s %-15s -P %-3d %9.0f/s  %6.2f us CPU  p99 %.0f us\n", generator, r.name, depth, m.rate, m.cpu, m.p99)
	}
	expected := 100_000.0 // replies per second, for the first run of redis-benchmark
	if o.has(partWire) {
		m, err := closedLoop(ctx, o, r, load.Config{Command: command, Pipeline: depth, Keys: o.Keys, Seed: seed})
		if err != nil {
			return err
		}
		expected = m.rate
		say(ownGenerator, m)
	}
	if !o.has(partBench) || b.benchmark == "" {
		return nil
	}
	if before := rec.get(wireName(redisBenchmark, r.name, depth), "rate"); len(before) > 0 {
		expected = before[len(before)-1]
	}
	requests := max(int64(expected*o.Duration.Seconds()), 1000)
	m, err := withCPU(r, func() (int64, sample, error) {
		m, err := runRedisBenchmark(ctx, b.benchmark, r.Addr, o, depth, requests, command)
		return requests, m, err
	})
	if err != nil {
		return err
	}
	say(redisBenchmark, m)
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func perRequest(cpu time.Duration, requests int64) float64 {
	return micros(cpu) / float64(max(requests, 1))
}
