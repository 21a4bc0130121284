package main

import (
	"fmt"
	"strconv"
)

// goal is a figure to reach: one of the numbers of one node.
type goal struct {
	key     string // names it in reasons.yaml; never changes
	what    string
	limit   float64
	atLeast bool // else at most
	unit    string
	got     func(*record) []float64 // a value a round; empty: not measured
	ours    func(*record) []float64 // the same by our generator, for information; nil: there is no such
}

// met tells by the median.
func (g goal) met(r *record) bool {
	median := spreadOf(g.got(r)).median
	if g.atLeast {
		return median >= g.limit
	}
	return median <= g.limit
}

// target is the goal as text, such as "≤ 64 bytes".
func (g goal) target() string {
	sign := "≤"
	if g.atLeast {
		sign = "≥"
	}
	return sign + " " + strconv.FormatFloat(g.limit, 'g', 3, 64) + g.unit
}

// figure is what a run measured as text.
func (g goal) figure(values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	return spreadOf(values).show("%.3g") + g.unit
}

// verdict is met, missed, or not measured.
func (g goal) verdict(r *record) string {
	switch {
	case len(g.got(r)) == 0:
		return "not measured"
	case g.met(r):
		return "met"
	}
	return "missed"
}

// wireGoals are set for redis-benchmark; 50 connections are its default and
// ours.
var wireGoals = []struct {
	depth                                int
	luaSpeed, luaCPU, incrSpeed, incrCPU float64
}{
	{1, 1.4, 0.6, 0.9, 1 / 0.9},
	{16, 6, 0.15, 1, 1},
	{64, 8, 0.1, 1, 1},
}

// memoryGoals are the numbers of buckets for which the memory of one is set.
var memoryGoals = []int64{1_000_000, 2_000_000, 5_000_000, 10_000_000}

// goals are all of them, measured or not.
func goals() []goal {
	var list []goal
	over := func(generator, a, b string, depth int, name string) func(*record) []float64 {
		return func(r *record) []float64 {
			return r.ratio(figure(wireName(generator, a, depth), name), figure(wireName(generator, b, depth), name))
		}
	}
	for _, g := range wireGoals {
		add := func(key, what, a, b, name string, atLeast bool, limit float64) {
			list = append(list, goal{
				key: fmt.Sprintf("%s-p%d", key, g.depth), what: fmt.Sprintf("%s, -P %d", what, g.depth),
				limit: limit, atLeast: atLeast, unit: "×",
				got: over(redisBenchmark, a, b, g.depth, name), ours: over(ownGenerator, a, b, g.depth, name),
			})
		}
		add("cpu-lua", "server CPU × Redis with the Lua bucket", stintNone, redisLua, "cpu", false, g.luaCPU)
		add("speed-lua", "throughput × Redis with the Lua bucket", stintNone, redisLua, "rate", true, g.luaSpeed)
		add("cpu-incr", "server CPU × Redis INCR", stintNone, redisIncr, "cpu", false, g.incrCPU)
		add("speed-incr", "throughput × Redis INCR", stintNone, redisIncr, "rate", true, g.incrSpeed)
		add("speed-interval", "throughput, durability interval × none", stintInterval, stintNone, "rate", true, 0.9)
	}
	of := func(name string) func(*record) []float64 {
		return func(r *record) []float64 { return r.Figures[name] }
	}
	ratio := func(above, below string) func(*record) []float64 {
		return func(r *record) []float64 { return r.ratio(above, below) }
	}
	list = append(list,
		goal{key: "engine-random", what: "engine alone, random keys × a plain map lookup", limit: 1, unit: "×", got: ratio("engine/random", "engine/map")},
		goal{key: "engine-hot", what: "engine alone, 1,000 hot keys", limit: 60, unit: " ns", got: of("engine/hot")},
		goal{key: "engine-allocations", what: "engine alone, allocations a decision", limit: 0, got: of("engine/allocations")})
	for _, subject := range []string{stintNone, stintInterval} {
		for _, keys := range memoryGoals {
			list = append(list, goal{
				key:  fmt.Sprintf("memory-%s-%dm", subject[len("stint-"):], keys/1_000_000),
				what: fmt.Sprintf("memory a bucket, durability %s, %d buckets", subject[len("stint-"):], keys), limit: 64, unit: " bytes",
				got: of(figure("memory", subject, keys, "per-key")),
			})
		}
	}
	return append(list,
		goal{key: "growing-p999", what: "p99.9 while a table of 10 M keys grows × 100,000 keys at rest", limit: 2, unit: "×", got: ratio("latency/growing/p999", "latency/small/p999")},
		goal{key: "sweeping-p999", what: "p99.9 while a table of 10 M keys is swept × 100,000 keys at rest", limit: 2, unit: "×", got: ratio("latency/sweeping/p999", "latency/small/p999")},
		goal{key: "drain-p99", what: "p99 while 1 M changed keys are written × durability none", limit: 2, unit: "×", got: ratio(figure("drain", stintInterval, "p99"), figure("drain", stintNone, "p99"))},
		goal{key: "snapshot-p99", what: "p99 while 10 M buckets are written anew × the same without", limit: 2, unit: "×", got: ratio("snapshot/during/p99", "snapshot/without/p99")},
		goal{key: "restart", what: "restart with 10 M buckets", limit: 10, unit: " s", got: of("restart/ready")},
	)
}
