package main

import (
	"fmt"
	"slices"
	"strings"
)

// goal is a figure to reach, against what this run measured.
type goal struct {
	what    string
	limit   float64
	atLeast bool // else at most
	unit    string
	got     []float64 // a value a round; empty: not measured
}

// met tells by the median.
func (g goal) met() bool {
	median := spreadOf(g.got).median
	if g.atLeast {
		return median >= g.limit
	}
	return median <= g.limit
}

// goals are listed for the depths at which they are set.
func goals(o *options, r *measured) []goal {
	var list []goal
	for _, generator := range []string{ownGenerator, redisBenchmark} {
		add := func(what string, a, b string, depth int, cpu, atLeast bool, limit float64) {
			x, y := r.wire[cell{generator, a, depth}], r.wire[cell{generator, b, depth}]
			if x == nil || y == nil {
				return
			}
			got := ratios(x.rate, y.rate)
			if cpu {
				got = ratios(x.cpu, y.cpu)
			}
			list = append(list, goal{fmt.Sprintf("%s, -P %d, %s", what, depth, generator), limit, atLeast, "×", got})
		}
		for _, g := range []struct {
			depth                                int
			luaSpeed, luaCPU, incrSpeed, incrCPU float64
		}{
			{1, 1.4, 0.6, 0.9, 1 / 0.9},
			{16, 6, 0.15, 1, 1},
			{64, 8, 0.1, 1, 1},
		} {
			if !slices.Contains(o.Pipelines, g.depth) {
				continue
			}
			add("throughput × Redis with the Lua bucket", stintNone, redisLua, g.depth, false, true, g.luaSpeed)
			add("server CPU × Redis with the Lua bucket", stintNone, redisLua, g.depth, true, false, g.luaCPU)
			add("throughput × Redis INCR", stintNone, redisIncr, g.depth, false, true, g.incrSpeed)
			add("server CPU × Redis INCR", stintNone, redisIncr, g.depth, true, false, g.incrCPU)
			add("throughput, durability interval × none", stintInterval, stintNone, g.depth, false, true, 0.9)
		}
	}
	for _, f := range r.memory {
		if f.subject == stintNone || f.subject == stintInterval {
			list = append(list, goal{fmt.Sprintf("memory a bucket, %s, %d buckets", f.subject, f.keys), 64, false, " bytes", []float64{f.perKey}})
		}
	}
	if len(r.engine) > 0 {
		var ratio, hot, allocs []float64
		for _, f := range r.engine {
			ratio = append(ratio, f.RandomKeys/f.MapLookup)
			hot = append(hot, f.HotKeys)
			allocs = append(allocs, f.Allocations)
		}
		list = append(list,
			goal{fmt.Sprintf("engine, %d random keys × a plain map lookup", o.EngineKeys), 1, false, "×", ratio},
			goal{"engine, 1,000 hot keys", 60, false, " ns", hot},
			goal{"engine, allocations a decision", 0, false, "", allocs})
	}
	return list
}

func goalTable(w *strings.Builder, o *options, r *measured) {
	list := goals(o, r)
	if len(list) == 0 {
		return
	}
	w.WriteString("## Goals\n\n| what | goal | measured | |\n| --- | --- | --- | --- |\n")
	for _, g := range list {
		sign, verdict := "≤", "missed"
		if g.atLeast {
			sign = "≥"
		}
		if g.met() {
			verdict = "met"
		}
		fmt.Fprintf(w, "| %s | %s %.3g%s | %s%s | %s |\n", g.what, sign, g.limit, g.unit, spreadOf(g.got).show("%.3g"), g.unit, verdict)
	}
	w.WriteString("\n")
}
