package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/stint-dev/stint/bench/internal/load"
	"github.com/stint-dev/stint/bench/internal/proc"
)

// memoryFigure is how much a server grew by while it was filled.
type memoryFigure struct {
	subject string
	keys    int64   // live after filling, by the server's own count
	before  int64   // resident set, bytes
	after   int64   // resident set, bytes, some seconds after filling
	perKey  float64 // bytes
}

// settle is how long a server has to give memory back after it was filled.
const settle = 3 * time.Second

// measureMemory fills a fresh server of each subject with live keys of 14
// bytes.
func measureMemory(ctx context.Context, o *options, b *binaries, progress io.Writer) ([]memoryFigure, error) {
	var figures []memoryFigure
	for _, s := range o.chosenSubjects() {
		f, err := fillOne(ctx, o, s, b)
		if err != nil {
			return nil, fmt.Errorf("%s, memory: %w", s.name, err)
		}
		fmt.Fprintf(progress, "memory: %-15s %.1f bytes a key\n", s.name, f.perKey)
		figures = append(figures, f)
	}
	return figures, nil
}

func fillOne(ctx context.Context, o *options, s subject, b *binaries) (memoryFigure, error) {
	f := memoryFigure{subject: s.name}
	r, err := start(ctx, s, b)
	if err != nil {
		return f, err
	}
	defer r.Stop()
	if f.before, err = proc.Resident(r.Pid()); err != nil {
		return f, err
	}
	// Few connections: their buffers are not what is measured.
	if _, err = load.Run(ctx, load.Config{
		Addr: r.Addr, Command: s.fill(r.sha), Conns: 4, Pipeline: 64, Loops: 1,
		Keys: o.MemoryKeys, Sequential: true, Requests: o.MemoryKeys,
	}); err != nil {
		return f, err
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return f, ctx.Err()
	}
	if f.after, err = proc.Resident(r.Pid()); err != nil {
		return f, err
	}
	if f.keys, err = redis.Int64(r.ask("DBSIZE")); err != nil {
		return f, fmt.Errorf("the number of live keys is not known: %w", err)
	}
	if f.keys != o.MemoryKeys {
		return f, fmt.Errorf("%d keys are live after %d were filled", f.keys, o.MemoryKeys)
	}
	f.perKey = float64(f.after-f.before) / float64(f.keys)
	return f, nil
}
