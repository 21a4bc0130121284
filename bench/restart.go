package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/stint-dev/stint/bench/internal/proc"
)

// restartWithin is the longest a stop or a start may take.
const restartWithin = 2 * time.Minute

// measureRestart restarts a server with many buckets, and looks that all of
// them are there again.
func measureRestart(ctx context.Context, o *options, b *binaries, rec *record, progress io.Writer) error {
	list := o.chosenOf(stintInterval)
	if len(list) == 0 {
		return nil
	}
	r, err := start(ctx, list[0], b)
	if err != nil {
		return err
	}
	defer func() { r.Kill() }()
	if err := r.put(ctx, r.fill(""), 0, o.ManyKeys); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	for range o.Rounds {
		stopped, ready, err := r.Restart(ctx, restartWithin)
		if err != nil {
			return fmt.Errorf("restart: %w", err)
		}
		live, err := r.live()
		if err != nil {
			return err
		}
		if live != o.ManyKeys {
			return fmt.Errorf("restart: %d keys are there again of %d", live, o.ManyKeys)
		}
		resident, err := proc.Resident(r.Pid())
		if err != nil {
			return err
		}
		rec.add("restart/stop", stopped.Seconds())
		rec.add("restart/ready", ready.Seconds())
		rec.add("restart/resident", float64(resident))
		fmt.Fprintf(progress, "restart: stopped in %v, answered after %v\n", stopped.Round(time.Millisecond), ready.Round(time.Millisecond))
	}
	return nil
}
