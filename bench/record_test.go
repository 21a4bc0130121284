package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files in testdata anew")

// golden compares text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == got {
		return
	}
	a, b := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s, line %d (go test ./bench -update writes it anew):\n%s\nwant\n%s", path, i+1, b[i], a[i])
		}
	}
	t.Fatalf("%s: %d lines, want %d", path, len(b), len(a))
}

// fixed is a run of three rounds with known figures. Against the script, stint
// is twice as fast at -P 1 and needs a third of its CPU; against INCR it is
// half as fast.
func fixed() *record {
	r := &record{
		Date: time.Date(2001, 2, 3, 4, 5, 0, 0, time.UTC), Command: []string{"-rounds", "3"},
		Machine: machine{CPU: "Abacus 3", Cores: 2, Memory: "64 kB", Kernel: "6.1", Go: "go1", Redis: "Redis server v=7.0.15 sha=0", Stint: "commit abc"},
		Settings: settings{
			Rounds: 3, Duration: 2 * time.Second, Conns: 50, Pipelines: []int{1, 16, 64}, Keys: 100_000, EngineKeys: 1000,
			MemoryKeys: memoryGoals, ManyKeys: 10_000_000, DrainKeys: 1_000_000, IdleConns: 10_000, Zipf: 0.99, Refusals: []int{0, 50, 100},
			ServerFlags: []string{"--transport", "event"},
		},
	}
	// Every second round the machine is half as fast again: ratios do not see it.
	rounds := func(add func(slow float64)) {
		for _, slow := range []float64{1, 1.5, 1} {
			add(slow)
		}
	}
	for _, generator := range []string{ownGenerator, redisBenchmark} {
		for i, depth := range r.Settings.Pipelines {
			for subject, v := range map[string]struct{ rate, cpu float64 }{
				redisLua: {100e3, 9}, redisIncr: {400e3, 2}, stintNone: {200e3, 3}, stintInterval: {190e3, 3.5},
			} {
				rounds(func(slow float64) {
					r.addSample(wireName(generator, subject, depth), sample{
						rate: v.rate * float64(i+1) / slow, cpu: v.cpu / float64(i+1) * slow, p50: 10 * slow, p99: 20 * slow, refused: 0.25,
					})
				})
			}
		}
	}
	for _, s := range r.Settings.shapes() {
		for i, subject := range []string{redisLua, stintNone} {
			rounds(func(slow float64) {
				r.addSample(figure("shapes", s.name, subject), sample{rate: 1e5 * float64(1+4*i) / slow, cpu: 8 / float64(1+3*i), p50: 1, p99: 2, refused: float64(s.refused) / 100})
			})
		}
	}
	for i, keys := range memoryGoals {
		r.add(figure("memory", stintNone, keys, "resident"), 64*float64(keys))
		r.add(figure("memory", stintNone, keys, "per-key"), 64)
		r.add(figure("memory", stintInterval, keys, "resident"), 65*float64(keys))
		r.add(figure("memory", stintInterval, keys, "per-key"), 63.9+0.1*float64(i))
	}
	r.add(figure("memory", redisLua, 1_000_000, "resident"), 161e6)
	r.add(figure("memory", redisLua, 1_000_000, "per-key"), 161)
	for i := range 3 {
		r.add("engine/map", 200)
		r.add("engine/random", 190+10*float64(i))
		r.add("engine/hot", 60)
		r.add("engine/allocations", 0)
		for _, p := range percentiles {
			for name, v := range map[string]float64{
				"latency/small": 1, "latency/growing": 2, "latency/sweeping": 2.1, "snapshot/without": 1, "snapshot/during": 1.5, "drain/" + stintNone: 1, "drain/" + stintInterval: 2,
				"idle/" + stintNone + "/alone": 1, "idle/" + stintNone + "/beside": 1.5, "idle/" + redisIncr + "/alone": 1, "idle/" + redisIncr + "/beside": 1.25,
			} {
				r.add(figure(name, p.name), v*p.of*10+float64(i))
			}
		}
		r.add("latency/sweeping/keys", 1e6)
		r.add("latency/sweeping/freed", 5e7)
		r.add("drain/keys", 1e6)
		r.add("drain/duration", 5e5)
		r.add("restart/stop", 0.5)
		r.add("restart/ready", 9+float64(i))
		r.add("restart/resident", 6.4e8)
		r.add("idle/"+stintNone+"/bytes", 6000)
		r.add("idle/"+stintNone+"/files", 1)
		r.add("idle/"+redisIncr+"/bytes", 17000)
		r.add("idle/"+redisIncr+"/files", 1)
	}
	for _, p := range percentiles {
		r.add(figure("latency/small-full-speed", p.name), p.of)
		r.add(figure("latency/filling-full-speed", p.name), 2*p.of)
	}
	r.add("open/rate", 44000)
	return r
}

func TestReportIsAsTheGoldenFile(t *testing.T) { golden(t, "report.md", report(fixed())) }

func TestReportOfAPartSaysNothingOfTheRest(t *testing.T) {
	all := fixed()
	r := &record{Machine: all.Machine, Settings: all.Settings, Short: true, Figures: map[string][]float64{"restart/stop": {1}, "restart/ready": {11}, "restart/resident": {1}}}
	text := report(r)
	if strings.Count(text, "\n## ") != 2 || !strings.Contains(text, "| restart with 10 M buckets | ≤ 10 s | 11 s | missed |") || !strings.Contains(text, "short run") {
		t.Errorf("a report of the restart alone:\n%s", text)
	}
	if strings.Contains(report(all), "short run") {
		t.Error("a full run is called short")
	}
}

func TestChartIsAsTheGoldenFile(t *testing.T) {
	r := fixed()
	if !r.hasChart() {
		t.Fatal("there is no chart of a full run")
	}
	golden(t, "speed.svg", chart(r, "2001-02-03-one-node.json"))
	delete(r.Figures, figure(wireName(redisBenchmark, redisIncr, 64), "rate"))
	if r.hasChart() {
		t.Error("there is a chart with a bar missing")
	}
}

func TestStoredResultsAreReadBackAndNeverOverwritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	r := fixed()
	for i, want := range []string{"2001-02-03-x", "2001-02-03-x-2", "2001-02-03-x-3"} {
		path, err := r.store(dir, "x", strings.Repeat("r", i+1))
		if err != nil || path != filepath.Join(dir, want+".json") {
			t.Fatalf("%q, %v", path, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "2001-02-03-x.md")); err != nil || string(text) != "r" {
		t.Fatalf("the first result is %q, %v", text, err)
	}
	got, err := loadRecord(filepath.Join(dir, "2001-02-03-x.json"))
	if err != nil || report(got) != report(r) {
		t.Fatalf("what was read back is another result, %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "2001-02-03-x.md")); err != nil {
		t.Fatal(err)
	}
	if path, err := r.store(dir, "x", ""); err != nil || !strings.HasSuffix(path, "x-4.json") {
		t.Fatalf("beside a .json without its report: %q, %v", path, err)
	}
}

func TestNewestIsByTheDateWithinAndNotShort(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := newest(dir); err == nil || !strings.Contains(err.Error(), "make bench") {
		t.Errorf("an empty folder: %v", err)
	}
	r := fixed()
	paths := map[string]string{}
	for name, hours := range map[string]time.Duration{"b": 1, "a": 3, "c": 2, "short": 4} {
		r.Date = fixed().Date.Add(hours * time.Hour)
		r.Short = name == "short"
		path, err := r.store(dir, name, "")
		if err != nil {
			t.Fatal(err)
		}
		paths[name] = path
	}
	if path, got, err := newest(dir); err != nil || path != paths["a"] || got.Date.Hour() != 7 {
		t.Errorf("%q, %v", path, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "z.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := newest(dir); err == nil || !strings.Contains(err.Error(), "z.json is no result") {
		t.Errorf("a foreign file: %v", err)
	}
}
