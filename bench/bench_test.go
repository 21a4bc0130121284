package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/bench/internal/alone"
	"github.com/stint-dev/stint/bench/internal/load"
)

func TestSpreadIsMedianAndExtremes(t *testing.T) {
	for _, tc := range []struct {
		in   []float64
		want spread
		show string
	}{
		{nil, spread{}, "0.0"},
		{[]float64{7}, spread{7, 7, 7}, "7.0"},
		{[]float64{9, 1, 5}, spread{5, 1, 9}, "5.0 (1.0–9.0)"},
		{[]float64{8, 1, 2, 4}, spread{3, 1, 8}, "3.0 (1.0–8.0)"},
	} {
		in := slices.Clone(tc.in)
		if got := spreadOf(in); got != tc.want || got.show("%.1f") != tc.show {
			t.Errorf("%v: %+v, %q", tc.in, got, got.show("%.1f"))
		}
		if !slices.Equal(in, tc.in) {
			t.Errorf("%v was put in another order: rounds must stay paired", tc.in)
		}
	}
	if got := ratios([]float64{6, 8, 5}, []float64{3, 0, 10}); !slices.Equal(got, []float64{2, 0.5}) {
		t.Errorf("ratios %v", got)
	}
}

func TestBenchmarkOutputIsReadByColumnName(t *testing.T) {
	const header = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"` + "\n"
	got, err := parseBenchmark(header + `"THROTTLE k:__rand_int__ 10 20 1","952380.94","0.644","0.096","0.647","1.255","1.719","1.807"` + "\n")
	if err != nil || math.Abs(got.rate-952380.94) > 0.001 || math.Abs(got.p50-647) > 0.001 || math.Abs(got.p99-1719) > 0.001 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, output := range []string{
		"", header, "\"test\",\"rps\"\n\"x\",\"1\"\n",
		header + `"x","many","1","1","1","1","1","1"` + "\n",
		header + `"x","1","1"` + "\n",
		header + `"x","1","1","1","1","1","1","1"` + "\n" + `"y","1","1","1","1","1","1","1"` + "\n",
	} {
		if _, err := parseBenchmark(output); !errors.Is(err, errBenchmarkOutput) {
			t.Errorf("%q: %v", output, err)
		}
	}
}

func TestShortRunKeepsWhatWasAskedFor(t *testing.T) {
	var said bytes.Buffer
	o, err := parseOptions([]string{"-short", "-rounds", "2", "-P", "4,8", "-subjects", "redis-incr"}, &said)
	if err != nil {
		t.Fatal(err, said.String())
	}
	if o.Rounds != 2 || !slices.Equal(o.Pipelines, []int{4, 8}) || o.Duration > time.Second || o.Name != "" || !slices.Equal(o.Subjects, []string{redisIncr}) {
		t.Errorf("%+v", o)
	}
	if o, err = parseOptions([]string{"-short", "-name", "try"}, &said); err != nil || o.Name != "try" {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parseOptions(nil, &said); err != nil || o.Rounds < 5 || o.Duration < 2*time.Second || o.Name == "" || len(o.Subjects) != 4 || !slices.Equal(o.Pipelines, []int{1, 16, 64}) {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"-parts wire,lunch", `"lunch"`},
		{"-subjects memcached", `"memcached"`},
		{"-P 1,x", `"x"`},
		{"-P 0", `"0"`},
		{"-rounds 0", "at least 1"},
		{"-c 2 -loops 3", "more loops"},
		{"-d 1ms", "10ms"},
		{"-name a/b", "slashes"},
		{"wire", `"wire" is no flag`},
		{"-nonsense", "nonsense"},
		{"load -c 0 PING", "at least 1"},
		{"load", "no command"},
	} {
		var said bytes.Buffer
		err := run(context.Background(), strings.Fields(tc.args), &said, &said)
		if !errors.Is(err, errUsage) || !strings.Contains(said.String(), tc.want) {
			t.Errorf("%s: %v, %q", tc.args, err, said.String())
		}
	}
	var said bytes.Buffer
	if err := run(context.Background(), []string{"-h"}, &said, &said); !errors.Is(err, flag.ErrHelp) || !strings.Contains(said.String(), "-memory-keys") {
		t.Errorf("help: %v, %q", err, said.String())
	}
}

func TestMissingProgramsAreASentenceThatHelps(t *testing.T) {
	var said bytes.Buffer
	err := run(context.Background(), []string{"-short", "-redis", "no-such-redis"}, &said, &said)
	if err == nil || !strings.Contains(err.Error(), "no-such-redis was not found") || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("redis: %v", err)
	}
	err = run(context.Background(), []string{"-short", "-subjects", "stint-none", "-stint", "/nonexistent/stint"}, &said, &said)
	if err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("stint: %v", err)
	}
}

func TestRefusalsAreRecognisedByCommand(t *testing.T) {
	for command, want := range map[string]load.Verdict{
		"throttle": load.RefusedIfZero, "EVALSHA": load.RefusedIfZero, "CL.THROTTLE": load.RefusedIfOne, "INCR": load.NeverRefused,
	} {
		if got := verdictOf(command); got != want {
			t.Errorf("%s: %v", command, got)
		}
	}
	for _, s := range subjects() {
		if key := strings.ReplaceAll(key, load.Placeholder, "000000000000"); len(key) != 14 {
			t.Errorf("%s: keys of %d bytes", s.name, len(key))
		}
		if !slices.Contains(s.command("sha"), key) || !slices.Contains(s.fill("sha"), key) {
			t.Errorf("%s sends no key", s.name)
		}
	}
}

// fixed is a run with known figures: stint twice as fast as the script with a
// third of its CPU, and half as fast as INCR.
func fixed() (*options, *measured) {
	o := &options{Rounds: 2, Conns: 50, Keys: 100, EngineKeys: 1000, Pipelines: []int{1}, Subjects: subjectNames(), Duration: time.Second}
	at := func(rate, cpu float64) *series {
		return &series{rate: []float64{rate, rate * 1.5}, cpu: []float64{cpu, cpu}, p50: []float64{10, 10}, p99: []float64{20, 20}, refused: []float64{0.25, 0.25}}
	}
	return o, &measured{
		wire: table{
			cell{ownGenerator, redisLua, 1}:      at(1000, 9),
			cell{ownGenerator, redisIncr, 1}:     at(4000, 2),
			cell{ownGenerator, stintNone, 1}:     at(2000, 3),
			cell{ownGenerator, stintInterval, 1}: at(1900, 3.5),
		},
		memory: []memoryFigure{{redisLua, 100, 1e6, 2e6, 161}, {stintNone, 100, 1e6, 2e6, 64}, {stintInterval, 100, 1e6, 2e6, 64.1}},
		engine: []alone.Figures{{MapLookup: 200, RandomKeys: 210, HotKeys: 60}, {MapLookup: 200, RandomKeys: 190, HotKeys: 60}, {MapLookup: 200, RandomKeys: 180, HotKeys: 60}},
	}
}

func TestGoalsAreJudgedInTheRightDirection(t *testing.T) {
	o, m := fixed()
	want := map[string]bool{
		"throughput × Redis with the Lua bucket, -P 1, our generator": true,  // 2 ≥ 1.4
		"server CPU × Redis with the Lua bucket, -P 1, our generator": true,  // 0.33 ≤ 0.6
		"throughput × Redis INCR, -P 1, our generator":                false, // 0.5 < 0.9
		"server CPU × Redis INCR, -P 1, our generator":                false, // 1.5 > 1.11
		"throughput, durability interval × none, -P 1, our generator": true,  // 0.95 ≥ 0.9
		"memory a bucket, stint-none, 100 buckets":                    true,
		"memory a bucket, stint-interval, 100 buckets":                false,
		"engine, 1000 random keys × a plain map lookup":               true, // median 0.95
		"engine, 1,000 hot keys":                                      true,
		"engine, allocations a decision":                              true,
	}
	list := goals(o, m)
	if len(list) != len(want) {
		t.Errorf("%d goals, want %d", len(list), len(want))
	}
	for _, g := range list {
		met, known := want[g.what]
		if !known || g.met() != met {
			t.Errorf("%q is met: %v (%+v)", g.what, g.met(), g)
		}
	}
}

func TestReportShowsMachineCommandAndRatios(t *testing.T) {
	o, m := fixed()
	o.Command = []string{"-rounds", "2"}
	text := report(o, machine{cpu: "Abacus 3", cores: 2, kernel: "6.1", goes: "go1", redis: "Redis 7", stint: "commit abc"}, time.Date(2001, 2, 3, 4, 5, 0, 0, time.UTC), m)
	for _, want := range []string{
		"go run ./bench -rounds 2\n", "2001-02-03 04:05 UTC", "Abacus 3, 2 cores", "Redis 7", "commit abc",
		"| 1 | stint, durability none | 2500 (2000–3000) | 3.00 | 10 | 20 | 2.00, 0.33 | 0.50, 1.50 | 25.0 % |",
		"| 1 | Redis, token bucket in Lua | 1250 (1000–1500) | 9.00 | 10 | 20 | 1.00, 1.00 | 0.25, 4.50 | 25.0 % |",
		"| stint, durability none | 100 | 1.0 | 2.0 | 64.0 |",
		"| decision, 1000 random keys | 190 (180–210) |",
		"| memory a bucket, stint-interval, 100 buckets | ≤ 64 bytes | 64.1 bytes | missed |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "short run") || strings.Contains(text, "wire, redis-benchmark") {
		t.Errorf("the report says what was not so:\n%s", text)
	}
}

func TestStoredResultsAreNeverOverwritten(t *testing.T) {
	dir := t.TempDir() + "/new"
	for i, want := range []string{"2001-02-03-x.md", "2001-02-03-x-2.md", "2001-02-03-x-3.md"} {
		text := strings.Repeat("r", i+1)
		path, err := store(dir, "2001-02-03", "x", text)
		if err != nil || path != dir+"/"+want {
			t.Fatalf("%q, %v", path, err)
		}
	}
	if text, err := os.ReadFile(dir + "/2001-02-03-x.md"); err != nil || string(text) != "r" {
		t.Fatalf("the first result is %q, %v", text, err)
	}
}

func TestMachineFieldIsFoundByItsWholeName(t *testing.T) {
	const text = "processor\t: 0\nmodel\t: 85\nmodel name\t: Abacus: 3\nmodel name\t: Other\n"
	if got := fieldOf(text, "model name", "?"); got != "Abacus: 3" {
		t.Errorf("%q", got)
	}
	if got := fieldOf(text, "flags", "?"); got != "?" {
		t.Errorf("%q", got)
	}
	if got := perRequest(30*time.Millisecond, 10_000); got != 3 {
		t.Errorf("30 ms by 10000 requests is %v us", got)
	}
}
