package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/stint-dev/stint/bench/internal/load"
)

// drainInterval is --interval while drains are measured: longer than by
// default, so that all the keys change between two of them.
const drainInterval = 2 * time.Second

// drainWindow is long enough that there is one drain in it.
const drainWindow = drainInterval + 500*time.Millisecond

// measureDrain measures an open loop while one drain writes many changed keys,
// against the same load without any durability. Before each window every key
// is changed once, right after a drain.
func measureDrain(ctx context.Context, o *options, b *binaries, rec *record, progress io.Writer) error {
	list := o.chosenOf(stintNone, stintInterval)
	if len(list) < 2 {
		return nil
	}
	var running []*runningSubject
	defer func() {
		for _, r := range running {
			r.Kill()
		}
	}()
	for _, s := range list {
		var more []string
		if s.name == stintInterval {
			more = []string{"--interval", drainInterval.String()}
		}
		r, err := start(ctx, s, b, more...)
		if err != nil {
			return err
		}
		running = append(running, r)
		// The keys are there before anything is measured.
		if err := r.put(ctx, r.spend("", 1), 0, o.DrainKeys); err != nil {
			return fmt.Errorf("%s, drain: %w", s.name, err)
		}
	}
	rate, err := openRate(ctx, o, rec, running[0])
	if err != nil {
		return err
	}
	for round := range o.Rounds {
		if err := inTurn(running, round, func(r *runningSubject) error {
			if r.name == stintInterval {
				if err := awaitFlush(ctx, r); err != nil {
					return err
				}
			}
			if err := r.put(ctx, r.spend("", 1), 0, o.DrainKeys); err != nil {
				return err
			}
			flushed := make(chan flushFigures, 1)
			watched, cancel := context.WithCancel(ctx)
			if r.name == stintInterval {
				go func() { flushed <- watchFlush(watched, r) }()
			} else {
				flushed <- flushFigures{}
			}
			result, err := openLoop(ctx, o, r, rate, load.Config{
				Command: r.spend("", 1), Keys: o.DrainKeys, Duration: drainWindow, Seed: uint64(round),
			})
			cancel()
			flush := <-flushed
			if err != nil {
				return err
			}
			rec.addLatency(figure("drain", r.name), result)
			if r.name == stintInterval {
				rec.add("drain/keys", flush.keys)
				rec.add("drain/duration", flush.duration)
			}
			fmt.Fprintf(progress, "drain: %-15s p50 %v, p99 %v, p99.9 %v, longest %v; %.0f keys in %.0f ms\n", r.name,
				result.Latency(50), result.Latency(99), result.Latency(99.9), result.Latency(100), flush.keys, flush.duration/1000)
			return nil
		}); err != nil {
			return fmt.Errorf("drain: %w", err)
		}
	}
	return nil
}

// flushFigures is the largest flush that was seen.
type flushFigures struct {
	keys     float64
	duration float64 // us
}

// flushPoll is how often INFO is asked for the last flush: seldom enough that
// the question itself does not show in a percentile.
const flushPoll = 50 * time.Millisecond

// awaitFlush returns right after a flush. Something is changed all the time, or
// there would be none.
func awaitFlush(ctx context.Context, r *runningSubject) error {
	before, err := r.info("persistence", "flush_count")
	for deadline := time.Now().Add(3*drainInterval + 10*time.Second); err == nil; {
		if _, err := r.ask("THROTTLE", "changed", "1000000", "1/h"); err != nil {
			return err
		}
		var now float64
		if now, err = r.info("persistence", "flush_count"); err == nil && now > before {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no flush within %v", 3*drainInterval+10*time.Second)
		}
		if err := wait(ctx, flushPoll); err != nil {
			return err
		}
	}
	return err
}

// watchFlush looks at the flushes until ctx is done; what it cannot learn is 0.
func watchFlush(ctx context.Context, r *runningSubject) (f flushFigures) {
	before, err := r.info("persistence", "flush_count")
	for err == nil && wait(ctx, flushPoll) == nil {
		var count, keys, duration float64
		if count, err = r.info("persistence", "flush_count"); err != nil || count == before {
			continue
		}
		if keys, err = r.info("persistence", "flush_last_keys"); err != nil {
			continue
		}
		if duration, err = r.info("persistence", "flush_last_duration_us"); err == nil && keys > f.keys {
			f = flushFigures{keys, duration}
		}
	}
	return f
}
