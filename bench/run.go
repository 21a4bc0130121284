package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/stint-dev/stint/bench/internal/alone"
)

// sideBySide makes a run, prints its report, and stores it if it has a name.
func sideBySide(ctx context.Context, o *options, out, progress io.Writer) error {
	bounded, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	b, err := findBinaries(bounded, o)
	if err != nil {
		return err
	}
	defer b.remove()
	rec := &record{Date: time.Now().UTC().Truncate(time.Second), Command: o.Command, Short: o.Short, Machine: describeMachine(b), Settings: o.settings}
	if err := measureAll(bounded, o, b, rec, progress); err != nil {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("the run was given up after -limit %v: %w", o.Limit, err)
		}
		return err
	}
	text := report(rec)
	fmt.Fprint(out, text)
	if o.Name == "" {
		return nil
	}
	path, err := rec.store(o.Results, o.Name, text)
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "stored as %s and .md\n", path)
	if o.Chart == "" || !rec.hasChart() {
		return nil
	}
	if err := writeChart(rec, filepath.Base(path), o.Chart); err != nil {
		return err
	}
	fmt.Fprintf(progress, "the chart is %s\n", o.Chart)
	return nil
}

// measureAll measures the chosen parts, one after the other: each has the
// machine for itself.
func measureAll(ctx context.Context, o *options, b *binaries, rec *record, progress io.Writer) error {
	type measure func(context.Context, *options, *binaries, *record, io.Writer) error
	if o.has(partBench) && b.benchmark == "" {
		fmt.Fprintln(progress, "redis-benchmark is not installed: only our generator is used")
	}
	for _, part := range []struct {
		wanted bool
		measure
	}{
		{o.has(partWire) || o.has(partBench), measureWire},
		{o.has(partShapes), measureShapes},
		{o.has(partMemory), measureMemory},
		{o.has(partEngine), measureEngine},
		{o.has(partLatency), measureLatency},
		{o.has(partDrain), measureDrain},
		{o.has(partSnapshot), measureSnapshot},
		{o.has(partRestart), measureRestart},
		{o.has(partIdle), measureIdle},
	} {
		if !part.wanted {
			continue
		}
		if err := part.measure(ctx, o, b, rec, progress); err != nil {
			return err
		}
	}
	return nil
}

func measureEngine(ctx context.Context, o *options, _ *binaries, rec *record, progress io.Writer) error {
	list, err := alone.Measure(ctx, o.EngineKeys, o.Rounds)
	if err != nil {
		return err
	}
	for _, f := range list {
		rec.add("engine/map", f.MapLookup)
		rec.add("engine/random", f.RandomKeys)
		rec.add("engine/announced", f.Announced)
		rec.add("engine/hot", f.HotKeys)
		rec.add("engine/pure", f.Pure)
		rec.add("engine/allocations", f.Allocations)
		fmt.Fprintf(progress, "engine alone: random %.0f ns, announced %.0f ns, a map's lookup %.0f ns, hot %.0f ns, arithmetic %.0f ns\n", f.RandomKeys, f.Announced, f.MapLookup, f.HotKeys, f.Pure)
	}
	return nil
}
