package main

import (
	"context"
	"fmt"
	"io"

	"github.com/stint-dev/stint/bench/internal/load"
)

// shapeDepth is the pipeline depth at which shapes of load are compared.
const shapeDepth = 16

// shape is a kind of load that differs from the main table's in its keys or in
// how many requests are refused.
type shape struct {
	name, title string
	zipf        float64
	refused     int // percent of the keys
}

func (s settings) shapes() []shape {
	list := []shape{{name: "zipf", title: fmt.Sprintf("zipf keys, s = %g", s.Zipf), zipf: s.Zipf}}
	for _, percent := range s.Refusals {
		list = append(list, shape{
			name: fmt.Sprintf("refused-%d", percent), title: fmt.Sprintf("uniform keys, %d %% refused", percent), refused: percent,
		})
	}
	return list
}

// measureShapes has each shape's keys apart from the others': what one spends
// is not missing in another.
func measureShapes(ctx context.Context, o *options, b *binaries, rec *record, progress io.Writer) error {
	running, stop, err := startAll(ctx, o.chosenOf(redisLua, stintNone), b)
	defer stop()
	if err != nil {
		return err
	}
	shapes := o.shapes()
	first := func(i int) int64 { return int64(i) * o.Keys }
	for _, r := range running {
		for i, s := range shapes {
			// All keys are there; of some everything is taken.
			spent := o.Keys * int64(s.refused) / 100
			if spent > 0 {
				err = r.put(ctx, r.spend(r.sha, spendable), first(i), spent)
			}
			if err == nil && spent < o.Keys {
				err = r.put(ctx, r.spend(r.sha, 1), first(i)+spent, o.Keys-spent)
			}
			if err != nil {
				return fmt.Errorf("%s, %s, warming up: %w", r.name, s.title, err)
			}
		}
	}
	for round := range o.Rounds {
		for i, s := range shapes {
			if err := inTurn(running, round, func(r *runningSubject) error {
				m, err := closedLoop(ctx, o, r, load.Config{
					Command: r.spend(r.sha, 1), Pipeline: shapeDepth,
					First: first(i), Keys: o.Keys, Zipf: s.zipf, Seed: uint64(round),
				})
				if err != nil {
					return err
				}
				rec.addSample(figure("shapes", s.name, r.name), m)
				fmt.Fprintf(progress, "%-28s %-15s %9.0f/s  %6.2f us CPU  %5.1f %% refused\n", s.title, r.name, m.rate, m.cpu, 100*m.refused)
				return nil
			}); err != nil {
				return fmt.Errorf("%s: %w", s.title, err)
			}
		}
	}
	return nil
}
