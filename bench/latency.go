package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/stint-dev/stint/bench/internal/load"
)

// openShare is the part of a closed loop's throughput at which the latencies of
// an open loop are measured: moderate load, as a server in use has it.
const openShare = 0.4

// smallTable is how many keys the table has that the large one is compared
// with.
const smallTable = 100_000

// Times of the keys that become full, and are then swept, in one window.
const (
	sweepPeriod = 3 * time.Second // from being filled to being full again
	sweepLead   = 200 * time.Millisecond
	sweepWindow = 3 * time.Second
)

// openRate is the rate of a run's open loops, measured once on a server.
func openRate(ctx context.Context, o *options, rec *record, r *runningSubject) (float64, error) {
	const name = "open/rate"
	if known := rec.get(name); len(known) > 0 {
		return known[0], nil
	}
	rate := o.OpenRate
	if rate == 0 {
		m, err := closedLoop(ctx, o, r, load.Config{Command: r.spend(r.sha, 1), Pipeline: 1, Keys: min(o.Keys, smallTable)})
		if err != nil {
			return 0, err
		}
		rate = math.Max(math.Floor(openShare*m.rate/1000), 1) * 1000
	}
	rec.add(name, rate)
	return rate, nil
}

// openLoop measures a server by an open loop. c needs command, keys, duration.
func openLoop(ctx context.Context, o *options, r *runningSubject, rate float64, c load.Config) (*load.Result, error) {
	c.Addr, c.Conns, c.Loops, c.Pipeline, c.Rate = r.Addr, o.Conns, o.Loops, 1, rate
	return load.Run(ctx, c)
}

// measureLatency measures an open loop against a table of many keys to which
// keys are added with every request, against the same while other keys of it
// become full and are swept, and against a small table at rest.
func measureLatency(ctx context.Context, o *options, b *binaries, rec *record, progress io.Writer) error {
	list := o.chosenOf(stintNone)
	if len(list) == 0 {
		return nil
	}
	running, stop, err := startAll(ctx, append(list, list...), b)
	defer stop()
	if err != nil {
		return err
	}
	small, large := running[0], running[1]
	keep := large.spend("", 1)
	smallKeys := min(smallTable, o.ManyKeys)
	if err := small.put(ctx, keep, 0, smallKeys); err != nil {
		return err
	}
	rate, err := openRate(ctx, o, rec, small)
	if err != nil {
		return err
	}
	if err := fillUnderWatch(ctx, o, rec, small, large, smallKeys); err != nil {
		return err
	}
	window := max(o.Duration, 10*time.Millisecond)
	next := o.ManyKeys // number of the next key that is not there yet
	report := func(what string, result *load.Result) {
		rec.addLatency(figure("latency", what), result)
		fmt.Fprintf(progress, "open loop, %-9s p50 %v, p99 %v, p99.9 %v, longest %v\n", what,
			result.Latency(50), result.Latency(99), result.Latency(99.9), result.Latency(100))
	}
	for round := range o.Rounds {
		rest := func() error {
			result, err := openLoop(ctx, o, small, rate, load.Config{Command: keep, Keys: smallKeys, Duration: window, Seed: uint64(round)})
			if err == nil {
				report("small", result)
			}
			return err
		}
		grow := func() error {
			requests := int64(rate * window.Seconds())
			result, err := openLoop(ctx, o, large, rate, load.Config{Command: keep, First: next, Keys: requests, Sequential: true, Requests: requests})
			if err == nil {
				next += requests
				report("growing", result)
			}
			return err
		}
		sweep := func() error {
			result, err := sweepUnderLoad(ctx, o, rec, large, rate, next)
			if err == nil {
				report("sweeping", result)
			}
			return err
		}
		steps := []func() error{rest, grow, sweep}
		for i := range steps {
			if err := steps[(i+round)%len(steps)](); err != nil {
				return fmt.Errorf("latency: %w", err)
			}
		}
	}
	live, err := large.live()
	if err != nil {
		return err
	}
	if live != next {
		return fmt.Errorf("latency: %d keys are live in the large table, want %d", live, next)
	}
	return nil
}

// fillUnderWatch fills the large table at full speed while a few requests a
// second are watched, and decides as often on a small table. A table that grew
// by doubling would stand still for longer and longer here.
func fillUnderWatch(ctx context.Context, o *options, rec *record, small, large *runningSubject, smallKeys int64) error {
	for _, f := range []struct {
		what string
		r    *runningSubject
		keys int64
	}{{"small-full-speed", small, smallKeys}, {"filling-full-speed", large, o.ManyKeys}} {
		watched, cancel := context.WithCancel(ctx)
		type outcome struct {
			result *load.Result
			err    error
		}
		done := make(chan outcome, 1)
		go func() {
			var all outcome
			// Of short runs the last is cut off and left out.
			for watched.Err() == nil {
				result, err := load.Run(watched, load.Config{
					Addr: f.r.Addr, Command: f.r.spend("", 1), Conns: 1, Loops: 1, Pipeline: 1,
					Keys: min(smallKeys, f.keys), Rate: 2000, Duration: 100 * time.Millisecond,
				})
				if watched.Err() != nil {
					break
				}
				if err != nil {
					all.err = err
					break
				}
				if all.result == nil {
					all.result = result
				} else {
					all.result.Add(result)
				}
			}
			done <- all
		}()
		_, err := load.Run(ctx, load.Config{
			Addr: f.r.Addr, Command: f.r.spend("", 1), Conns: 4, Pipeline: 64, Loops: 1,
			Keys: f.keys, Sequential: true, Requests: o.ManyKeys,
		})
		cancel()
		watch := <-done
		if err == nil {
			err = watch.err
		}
		if err != nil {
			return fmt.Errorf("filling %d keys: %w", f.keys, err)
		}
		if watch.result != nil { // else it was over in no time
			rec.addLatency(figure("latency", f.what), watch.result)
		}
	}
	return nil
}

// sweepUnderLoad adds keys that are soon full again and measures the window in
// which that happens, by decisions on keys that stay. It says how many keys
// became full within the window and how much memory the sweep gave back.
func sweepUnderLoad(ctx context.Context, o *options, rec *record, r *runningSubject, rate float64, first int64) (*load.Result, error) {
	begin := time.Now()
	keys := max(o.ManyKeys/10, 1)
	if err := r.put(ctx, []string{"THROTTLE", key, "10", "1/" + sweepPeriod.String(), "1"}, first, keys); err != nil {
		return nil, err
	}
	live, err := r.live()
	if err != nil {
		return nil, err
	}
	memory, err := r.info("memory", "used_memory")
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, time.Until(begin.Add(sweepPeriod-sweepLead))); err != nil {
		return nil, err
	}
	result, err := openLoop(ctx, o, r, rate, load.Config{Command: r.spend("", 1), Keys: o.ManyKeys, Duration: sweepWindow})
	if err != nil {
		return nil, err
	}
	left, err := r.info("memory", "used_memory")
	if err != nil {
		return nil, err
	}
	now, err := r.live()
	if err != nil {
		return nil, err
	}
	rec.add("latency/sweeping/keys", float64(live-now))
	rec.add("latency/sweeping/freed", max(memory-left, 0)) // keys on pages that others keep free nothing
	return result, nil
}
