package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/stint-dev/stint/bench/internal/alone"
)

// measured is everything a run found out.
type measured struct {
	wire   table
	memory []memoryFigure
	engine []alone.Figures // one a round
}

// sideBySide makes a run, prints its report, and stores it if it has a name.
func sideBySide(ctx context.Context, o *options, out, progress io.Writer) error {
	b, err := findBinaries(ctx, o)
	if err != nil {
		return err
	}
	defer b.remove()
	begin := time.Now()
	var m measured
	if o.has(partWire) || o.has(partBench) {
		if o.has(partBench) && b.benchmark == "" {
			fmt.Fprintln(progress, "redis-benchmark is not installed: only our generator is used")
		}
		if m.wire, err = measureRounds(ctx, o, b, progress); err != nil {
			return err
		}
	}
	if o.has(partMemory) {
		if m.memory, err = measureMemory(ctx, o, b, progress); err != nil {
			return err
		}
	}
	if o.has(partEngine) {
		if m.engine, err = alone.Measure(ctx, o.EngineKeys, o.Rounds); err != nil {
			return err
		}
	}
	text := report(o, describeMachine(b), begin, &m)
	fmt.Fprint(out, text)
	if o.Name == "" {
		return nil
	}
	path, err := store(o.Results, begin.Format(time.DateOnly), o.Name, text)
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "stored as %s\n", path)
	return nil
}

// report is the run as Markdown.
func report(o *options, m machine, begin time.Time, r *measured) string {
	var w strings.Builder
	fmt.Fprintf(&w, "# stint side by side with Redis\n\n")
	fmt.Fprintf(&w, "    go run ./bench %s\n\n", strings.Join(o.Command, " "))
	fmt.Fprintf(&w, "- date: %s\n- machine: %s, %d cores, %s, kernel %s\n- Go: %s\n- Redis: %s\n- stint: %s\n\n",
		begin.Format("2006-01-02 15:04 MST"), m.cpu, m.cores, m.memory, m.kernel, m.goes, m.redis, m.stint)
	if o.Short {
		w.WriteString("**A short run: it shows that everything works. Its numbers mean nothing.**\n\n")
	}
	if len(r.wire) > 0 {
		fmt.Fprintf(&w, "%d connections, %d keys, %d rounds of %v a measurement, rounds interleaved. Cells: median (min–max). ", o.Conns, o.Keys, o.Rounds, o.Duration)
		w.WriteString("CPU: user and system time of the server process a decision. Round trip: of a whole pipeline. Ratios: round by round. ")
		w.WriteString("Generator and server share the cores. Redis runs without persistence.\n\n")
		for _, generator := range []string{ownGenerator, redisBenchmark} {
			wireTable(&w, o, r.wire, generator)
		}
	}
	if len(r.memory) > 0 {
		memoryTable(&w, r.memory)
	}
	if len(r.engine) > 0 {
		engineTable(&w, o, r.engine)
	}
	goalTable(&w, o, r)
	return w.String()
}

func titleOf(name string) string {
	for _, s := range subjects() {
		if s.name == name {
			return s.title
		}
	}
	return name
}

func wireTable(w *strings.Builder, o *options, t table, generator string) {
	var rows strings.Builder
	for _, depth := range o.Pipelines {
		for _, s := range o.chosenSubjects() {
			v := t[cell{generator, s.name, depth}]
			if v == nil {
				continue
			}
			fmt.Fprintf(&rows, "| %d | %s | %s | %s | %s | %s |", depth, s.title,
				spreadOf(v.rate).show("%.0f"), spreadOf(v.cpu).show("%.2f"), spreadOf(v.p50).show("%.0f"), spreadOf(v.p99).show("%.0f"))
			for _, base := range []string{redisLua, redisIncr} {
				against := t[cell{generator, base, depth}]
				if against == nil {
					rows.WriteString(" – |")
					continue
				}
				fmt.Fprintf(&rows, " %.2f, %.2f |", spreadOf(ratios(v.rate, against.rate)).median, spreadOf(ratios(v.cpu, against.cpu)).median)
			}
			if generator == ownGenerator {
				fmt.Fprintf(&rows, " %.1f %% |", 100*spreadOf(v.refused).median)
			}
			rows.WriteString("\n")
		}
	}
	if rows.Len() == 0 {
		return
	}
	fmt.Fprintf(w, "## Over the wire, %s\n\n", generator)
	w.WriteString("| -P | server | requests/s | server CPU, µs | round trip p50, µs | p99, µs | speed, CPU × Lua | speed, CPU × INCR |")
	if generator == ownGenerator {
		w.WriteString(" refused |")
	}
	w.WriteString("\n| --- | --- | --- | --- | --- | --- | --- | --- |")
	if generator == ownGenerator {
		w.WriteString(" --- |")
	}
	w.WriteString("\n" + rows.String() + "\n")
}

func memoryTable(w *strings.Builder, figures []memoryFigure) {
	fmt.Fprintf(w, "## Memory\n\nGrowth of the resident set, %v after filling, by the number of live keys of 14 bytes.\n\n", settle)
	w.WriteString("| server | keys | before, MB | after, MB | bytes a key |\n| --- | --- | --- | --- | --- |\n")
	for _, f := range figures {
		fmt.Fprintf(w, "| %s | %d | %.1f | %.1f | %.1f |\n", titleOf(f.subject), f.keys, float64(f.before)/1e6, float64(f.after)/1e6, f.perKey)
	}
	w.WriteString("\n")
}

func engineTable(w *strings.Builder, o *options, figures []alone.Figures) {
	var lookup, random, hot, ratio []float64
	allocs := 0.0
	for _, f := range figures {
		lookup = append(lookup, f.MapLookup)
		random = append(random, f.RandomKeys)
		hot = append(hot, f.HotKeys)
		ratio = append(ratio, f.RandomKeys/f.MapLookup)
		allocs = max(allocs, f.Allocations)
	}
	fmt.Fprintf(w, "## The engine alone\n\nOne thread, token bucket, ns a decision.\n\n| what | ns |\n| --- | --- |\n")
	fmt.Fprintf(w, "| lookup in a plain map, %d random keys | %s |\n", o.EngineKeys, spreadOf(lookup).show("%.0f"))
	fmt.Fprintf(w, "| decision, %d random keys | %s |\n", o.EngineKeys, spreadOf(random).show("%.0f"))
	fmt.Fprintf(w, "| decision, %d hot keys | %s |\n", alone.Hot, spreadOf(hot).show("%.0f"))
	fmt.Fprintf(w, "\nDecision by lookup: %s. Allocations a decision: %.3g.\n\n", spreadOf(ratio).show("%.2f"), allocs)
}
