package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/stint-dev/stint/bench/internal/load"
)

// What a snapshot of the whole state takes to be measured.
const (
	snapshotRounds = 3
	snapshotWindow = time.Second // shorter than any snapshot that is measured
	snapshotKeys   = 3_000_000   // with fewer no compaction begins: its deltas are too small
	snapshotPushes = 40          // rounds through a tenth of all keys, at most, until one begins
)

// measureSnapshot measures an open loop while the whole state is written anew (a
// compaction of the state file), against the same load on the same server when
// it is not. Both have the flush of every second.
func measureSnapshot(ctx context.Context, o *options, b *binaries, rec *record, progress io.Writer) error {
	list := o.chosenOf(stintInterval)
	if len(list) == 0 {
		return nil
	}
	if o.ManyKeys < snapshotKeys {
		fmt.Fprintf(progress, "snapshot: %d keys are too few for one\n", o.ManyKeys)
		return nil
	}
	r, err := start(ctx, list[0], b)
	if err != nil {
		return err
	}
	defer r.Kill()
	command := r.spend("", 1)
	if err := r.put(ctx, command, 0, o.ManyKeys); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	rate, err := openRate(ctx, o, rec, r)
	if err != nil {
		return err
	}
	window := func(seed int) (*load.Result, error) {
		return openLoop(ctx, o, r, rate, load.Config{Command: command, Keys: o.ManyKeys, Duration: snapshotWindow, Seed: uint64(seed)})
	}
	report := func(what string, result *load.Result) {
		rec.addLatency(figure("snapshot", what), result)
		fmt.Fprintf(progress, "snapshot, %-8s p50 %v, p99 %v, p99.9 %v, longest %v\n", what,
			result.Latency(50), result.Latency(99), result.Latency(99.9), result.Latency(100))
	}
	for round := range min(o.Rounds, snapshotRounds) {
		if err := awaitCompacting(ctx, r, false); err != nil {
			return err
		}
		without, err := windows(r, 0, 3, window)
		if err != nil {
			return err
		}
		for push := int64(0); ; push++ {
			compacting, err := r.info("persistence", "compacting")
			if err != nil {
				return err
			}
			if compacting == 1 {
				break
			}
			if push == snapshotPushes {
				return fmt.Errorf("snapshot: none begins after %d changed keys", push*o.ManyKeys/10)
			}
			if err := r.put(ctx, command, push%10*(o.ManyKeys/10), o.ManyKeys/10); err != nil {
				return fmt.Errorf("snapshot: %w", err)
			}
		}
		during, err := windows(r, 1, 60, window)
		if err != nil {
			return err
		}
		if without == nil || during == nil {
			fmt.Fprintf(progress, "snapshot: round %d had no window of one kind\n", round+1)
			continue
		}
		report("without", without)
		report("during", during)
	}
	return nil
}

// windows measures up to most windows while INFO's compacting is state, and adds
// those up in which it was so from begin to end. It is nil if there is none.
func windows(r *runningSubject, state float64, most int, window func(seed int) (*load.Result, error)) (sum *load.Result, err error) {
	for n := range most {
		result, err := window(n)
		if err != nil {
			return nil, err
		}
		now, err := r.info("persistence", "compacting")
		if err != nil {
			return nil, err
		}
		if now != state {
			return sum, nil
		}
		if sum == nil {
			sum = result
		} else {
			sum.Add(result)
		}
	}
	return sum, nil
}

// awaitCompacting waits until INFO says that a compaction runs, or does not.
func awaitCompacting(ctx context.Context, r *runningSubject, want bool) error {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		now, err := r.info("persistence", "compacting")
		if err != nil || (now == 1) == want {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("snapshot: still under way after two minutes")
		}
		if err := wait(ctx, flushPoll); err != nil {
			return err
		}
	}
}
