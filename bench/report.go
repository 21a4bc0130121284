package main

import (
	"fmt"
	"strings"

	"github.com/stint-dev/stint/bench/internal/alone"
	"github.com/stint-dev/stint/engine"
)

// report is a run as Markdown, made from its record alone.
func report(r *record) string {
	var w strings.Builder
	fmt.Fprintf(&w, "# stint side by side with Redis\n\n")
	fmt.Fprintf(&w, "    %s\n\n", strings.TrimSpace("go run ./bench "+strings.Join(r.Command, " ")))
	m := r.Machine
	fmt.Fprintf(&w, "- date: %s\n- machine: %s, %d cores, %s, kernel %s\n- Go: %s\n- Redis: %s\n- stint: %s\n",
		r.Date.Format("2006-01-02 15:04 MST"), m.CPU, m.Cores, m.Memory, m.Kernel, m.Go, m.Redis, m.Stint)
	if len(r.Settings.ServerFlags) > 0 {
		fmt.Fprintf(&w, "- more flags of stint: %s\n", strings.Join(r.Settings.ServerFlags, " "))
	}
	w.WriteString("\n")
	if r.Short {
		w.WriteString("**A short run: it shows that everything works. Its numbers mean nothing.**\n\n")
	}
	fmt.Fprintf(&w, "%d interleaved rounds; cells are the median of the rounds (least–greatest). Ratios are taken round by round. ", r.Settings.Rounds)
	w.WriteString("Generator and server share the cores. Redis runs without persistence. The .json beside this file has every round.\n\n")
	goalTable(&w, r)
	for _, generator := range []string{redisBenchmark, ownGenerator} {
		wireTable(&w, r, generator)
	}
	shapeTable(&w, r)
	memoryTable(&w, r)
	engineTable(&w, r)
	latencyTable(&w, r)
	drainTable(&w, r)
	snapshotTable(&w, r)
	restartTable(&w, r)
	idleTable(&w, r)
	return strings.TrimRight(w.String(), "\n") + "\n"
}

// header writes the first two lines of a table.
func header(w *strings.Builder, names ...string) {
	w.WriteString("| " + strings.Join(names, " | ") + " |\n|" + strings.Repeat(" --- |", len(names)) + "\n")
}

func row(w *strings.Builder, cells ...string) {
	w.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func titleOf(name string) string {
	for _, s := range subjects() {
		if s.name == name {
			return s.title
		}
	}
	return name
}

func goalTable(w *strings.Builder, r *record) {
	var rows strings.Builder
	for _, g := range goals() {
		if len(g.got(r)) == 0 {
			continue
		}
		ours := ""
		if g.ours != nil {
			ours = g.figure(g.ours(r))
		}
		row(&rows, g.what, g.target(), g.figure(g.got(r)), g.verdict(r), ours)
	}
	if rows.Len() == 0 {
		return
	}
	w.WriteString("## Goals\n\nOver the wire they are set for redis-benchmark.\n\n")
	header(w, "what", "goal", "measured", "", "by our generator")
	w.WriteString(rows.String() + "\n")
}

func wireTable(w *strings.Builder, r *record, generator string) {
	var rows strings.Builder
	own := generator == ownGenerator
	for _, depth := range r.Settings.Pipelines {
		for _, s := range subjects() {
			name := wireName(generator, s.name, depth)
			if len(r.get(name, "rate")) == 0 {
				continue
			}
			cells := []string{
				fmt.Sprint(depth), s.title, r.show("%.0f", name, "rate"), r.show("%.2f", name, "cpu"), r.show("%.0f", name, "p50"), r.show("%.0f", name, "p99"),
			}
			for _, base := range []string{redisLua, redisIncr} {
				against := wireName(generator, base, depth)
				cells = append(cells, r.ratioCell(figure(name, "rate"), figure(against, "rate"))+", "+r.ratioCell(figure(name, "cpu"), figure(against, "cpu")))
			}
			if own {
				cells = append(cells, percent(r.median(name, "refused")))
			}
			row(&rows, cells...)
		}
	}
	if rows.Len() == 0 {
		return
	}
	fmt.Fprintf(w, "## Over the wire, %s\n\nClosed loop, %d connections, %d keys, %v a measurement. ", generator, r.Settings.Conns, r.Settings.Keys, r.Settings.Duration)
	w.WriteString("CPU: user and system time of the server process a decision. Round trip: of a whole pipeline.\n\n")
	names := []string{"-P", "server", "requests/s", "server CPU, µs", "round trip p50, µs", "p99, µs", "speed, CPU × Lua", "speed, CPU × INCR"}
	if own {
		names = append(names, "refused")
	}
	header(w, names...)
	w.WriteString(rows.String() + "\n")
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

func shapeTable(w *strings.Builder, r *record) {
	var rows strings.Builder
	for _, shape := range r.Settings.shapes() {
		for _, s := range subjects() {
			name := figure("shapes", shape.name, s.name)
			if len(r.get(name, "rate")) == 0 {
				continue
			}
			lua := figure("shapes", shape.name, redisLua)
			row(&rows, shape.title, s.title, r.show("%.0f", name, "rate"), r.show("%.2f", name, "cpu"), r.show("%.0f", name, "p99"),
				r.ratioCell(figure(name, "rate"), figure(lua, "rate"))+", "+r.ratioCell(figure(name, "cpu"), figure(lua, "cpu")),
				percent(r.median(name, "refused")))
		}
	}
	if rows.Len() == 0 {
		return
	}
	fmt.Fprintf(w, "## Zipf keys and refusals\n\nOur generator, closed loop, %d connections, -P %d, %d keys. No goals are set for these.\n\n", r.Settings.Conns, shapeDepth, r.Settings.Keys)
	header(w, "load", "server", "requests/s", "server CPU, µs", "round trip p99, µs", "speed, CPU × Lua", "refused")
	w.WriteString(rows.String() + "\n")
}

func memoryTable(w *strings.Builder, r *record) {
	var rows strings.Builder
	for _, s := range subjects() {
		for _, keys := range r.Settings.MemoryKeys {
			name := figure("memory", s.name, keys)
			if after := r.get(name, "resident"); len(after) > 0 {
				row(&rows, s.title, fmt.Sprint(keys), fmt.Sprintf("%.1f", spreadOf(after).median/1e6), r.show("%.1f", name, "per-key"))
			}
		}
	}
	if rows.Len() == 0 {
		return
	}
	fmt.Fprintf(w, "## Memory\n\nGrowth of the resident set, %v after filling, by the number of live keys of 14 bytes. Each step is filled on top of the one before.\n\n", settle)
	header(w, "server", "keys", "resident, MB", "bytes a key")
	w.WriteString(rows.String() + "\n")
}

func engineTable(w *strings.Builder, r *record) {
	if len(r.get("engine/map")) == 0 {
		return
	}
	w.WriteString("## The engine alone\n\nOne thread, token bucket, ns a decision.\n\n")
	header(w, "what", "ns")
	row(w, fmt.Sprintf("lookup in a plain map, %d random keys", r.Settings.EngineKeys), r.show("%.0f", "engine/map"))
	row(w, fmt.Sprintf("decision, %d random keys", r.Settings.EngineKeys), r.show("%.0f", "engine/random"))
	row(w, fmt.Sprintf("the same, announced in groups of %d as a pipeline's are", engine.MaxAhead), r.show("%.0f", "engine/announced"))
	row(w, fmt.Sprintf("decision, %d hot keys", alone.Hot), r.show("%.0f", "engine/hot"))
	row(w, "its arithmetic alone", r.show("%.0f", "engine/pure"))
	fmt.Fprintf(w, "\nDecision by lookup: %s. Allocations a decision: %s.\n\n", spreadOf(r.ratio("engine/random", "engine/map")).show("%.2f"), r.show("%.3g", "engine/allocations"))
}

// percentileRow is a row of a table of latencies in us; false when there are
// none under that name.
func percentileRow(w *strings.Builder, r *record, name, title string) bool {
	if len(r.get(name, "p50")) == 0 {
		return false
	}
	cells := []string{title}
	for _, p := range percentiles {
		cells = append(cells, r.show("%.0f", name, p.name))
	}
	row(w, cells...)
	return true
}

func percentileHeader(w *strings.Builder, what string) {
	names := []string{what}
	for _, p := range percentiles {
		names = append(names, p.title+", µs")
	}
	header(w, names...)
}

// openNote says how the latencies of open loops are to be read.
func openNote(w *strings.Builder, r *record) {
	fmt.Fprintf(w, "Open loop, %.0f requests/s over %d connections, latency from the instant a request was to be sent. ", r.median("open/rate"), r.Settings.Conns)
}

func latencyTable(w *strings.Builder, r *record) {
	if len(r.get("latency/small/p50")) == 0 {
		return
	}
	w.WriteString("## Latency of a large table\n\n")
	openNote(w, r)
	fmt.Fprintf(w, "Large: %d keys. While it grows, every request adds a key; while it is swept, %.0f other keys become full and are removed, which gives back %.1f MB.\n\n",
		r.Settings.ManyKeys, r.median("latency/sweeping/keys"), r.median("latency/sweeping/freed")/1e6)
	percentileHeader(w, "table")
	percentileRow(w, r, "latency/small", fmt.Sprintf("%d keys, at rest", min(smallTable, r.Settings.ManyKeys)))
	percentileRow(w, r, "latency/growing", "large, growing")
	percentileRow(w, r, "latency/sweeping", "large, being swept")
	w.WriteString("\n")
	var rows strings.Builder
	percentileRow(&rows, r, "latency/small-full-speed", "decisions on the small table")
	percentileRow(&rows, r, "latency/filling-full-speed", "the large table is filled from nothing")
	if rows.Len() > 0 {
		w.WriteString("The same for 2,000 requests/s beside a closed loop at full speed (-P 64), once:\n\n")
		percentileHeader(w, "meanwhile")
		w.WriteString(rows.String() + "\n")
	}
}

func drainTable(w *strings.Builder, r *record) {
	if len(r.get("drain/keys")) == 0 {
		return
	}
	w.WriteString("## Latency while changed keys are written\n\n")
	openNote(w, r)
	fmt.Fprintf(w, "Each window of %v has one drain in it of %s keys, which takes %.0f ms (--interval %v).\n\n",
		drainWindow, r.show("%.0f", "drain/keys"), r.median("drain/duration")/1000, drainInterval)
	percentileHeader(w, "server")
	for _, name := range []string{stintNone, stintInterval} {
		percentileRow(w, r, figure("drain", name), titleOf(name))
	}
	w.WriteString("\n")
}

func snapshotTable(w *strings.Builder, r *record) {
	if len(r.get("snapshot/during/p50")) == 0 {
		return
	}
	w.WriteString("## Latency while the whole state is written\n\n")
	openNote(w, r)
	fmt.Fprintf(w, "%d buckets, durability interval. The state file is compacted when the changes outgrow it.\n\n", r.Settings.ManyKeys)
	percentileHeader(w, "state file")
	percentileRow(w, r, "snapshot/without", "a flush each second")
	percentileRow(w, r, "snapshot/during", "and a compaction")
	w.WriteString("\n")
}

func restartTable(w *strings.Builder, r *record) {
	if len(r.get("restart/ready")) == 0 {
		return
	}
	fmt.Fprintf(w, "## Restart\n\n%d buckets, durability interval, a clean stop.\n\n", r.Settings.ManyKeys)
	header(w, "what", "seconds")
	row(w, "from the signal to the end of the process", r.show("%.2f", "restart/stop"))
	row(w, "from the start of the process to its first answer", r.show("%.2f", "restart/ready"))
	fmt.Fprintf(w, "\nThe resident set is then %.0f MB.\n\n", r.median("restart/resident")/1e6)
}

func idleTable(w *strings.Builder, r *record) {
	var rows strings.Builder
	for _, s := range subjects() {
		name := figure("idle", s.name)
		if len(r.get(name, "bytes")) == 0 {
			continue
		}
		row(&rows, s.title, r.show("%.0f", name, "bytes"), r.show("%.0f", name, "silent"), r.show("%.2f", name, "files"),
			r.show("%.0f", name, "alone/p50"), r.show("%.0f", name, "beside/p50"), r.show("%.0f", name, "alone/p99"), r.show("%.0f", name, "beside/p99"))
	}
	if rows.Len() == 0 {
		return
	}
	fmt.Fprintf(w, "## Idle connections\n\n%d connections that sent one PING each. The kernel's memory for sockets is not in a resident set. Latencies are those of one active client.\n\n", r.Settings.IdleConns)
	header(w, "server", "bytes each", "half a minute later", "files each", "p50 without them, µs", "p50 beside them, µs", "p99 without them, µs", "p99 beside them, µs")
	w.WriteString(rows.String() + "\n")
}
