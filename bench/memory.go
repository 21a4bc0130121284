package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/stint-dev/stint/bench/internal/proc"
)

// settle is how long a server has to give memory back after it was filled.
const settle = 3 * time.Second

// measureMemory fills a fresh server of each subject with live keys of 14
// bytes, in steps, and reads its resident set at each. Redis, whose keys cost
// what they cost at any number, is filled to the first step only.
func measureMemory(ctx context.Context, o *options, b *binaries, rec *record, progress io.Writer) error {
	for round := range o.Rounds {
		list := o.chosenSubjects()
		for i := range list {
			s := list[(i+round)%len(list)]
			steps := o.MemoryKeys
			if s.redis {
				steps = steps[:1]
			}
			if err := fill(ctx, o, s, b, steps, rec, progress); err != nil {
				return fmt.Errorf("%s, memory: %w", s.name, err)
			}
		}
	}
	return nil
}

func fill(ctx context.Context, o *options, s subject, b *binaries, steps []int64, rec *record, progress io.Writer) error {
	r, err := start(ctx, s, b)
	if err != nil {
		return err
	}
	defer r.Kill()
	before, err := proc.Resident(r.Pid())
	if err != nil {
		return err
	}
	filled := int64(0)
	for _, keys := range steps {
		if err := r.put(ctx, s.fill(r.sha), filled, keys-filled); err != nil {
			return err
		}
		filled = keys
		if err := wait(ctx, o.Settle); err != nil {
			return err
		}
		after, err := proc.Resident(r.Pid())
		if err != nil {
			return err
		}
		live, err := r.live()
		if err != nil {
			return err
		}
		if live != keys {
			return fmt.Errorf("%d keys are live after %d were filled", live, keys)
		}
		name := figure("memory", s.name, keys)
		rec.add(figure(name, "resident"), float64(after))
		rec.add(figure(name, "per-key"), float64(after-before)/float64(keys))
		fmt.Fprintf(progress, "memory: %-15s %9d keys, %.1f bytes each\n", s.name, keys, float64(after-before)/float64(keys))
	}
	return nil
}
