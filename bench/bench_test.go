package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

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
	o, err := parseOptions([]string{"-short", "-rounds", "2", "-P", "4,8", "-subjects", "redis-incr", "-only", "memory,idle", "-flags", "--a b --c"}, &said)
	if err != nil {
		t.Fatal(err, said.String())
	}
	if o.Rounds != 2 || !slices.Equal(o.Pipelines, []int{4, 8}) || o.Duration > time.Second || o.Name != "" || !slices.Equal(o.Subjects, []string{redisIncr}) {
		t.Errorf("%+v", o)
	}
	if !o.has(partIdle) || o.has(partWire) || !slices.Equal(o.ServerFlags, []string{"--a", "b", "--c"}) || o.Chart != "" || o.ManyKeys > 1e6 {
		t.Errorf("%+v", o)
	}
	if o, err = parseOptions([]string{"-short", "-name", "try"}, &said); err != nil || o.Name != "try" {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parseOptions(nil, &said); err != nil || o.Rounds < 5 || o.Duration < 2*time.Second || o.Name == "" || len(o.Subjects) != 4 || len(o.Parts) != len(allParts) || !slices.Equal(o.Pipelines, []int{1, 16, 64}) {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"-only wire,lunch", `"lunch"`},
		{"-refusals 101", `"101"`},
		{"-memory-keys 2,1", "must rise"},
		{"-zipf 0", "zipf"},
		{"-rate -1", "rate"},
		{"-limit 0", "limit"},
		{"compare -durability strict", `"strict"`},
		{"compare -rounds 0", "at least 1"},
		{"compare main", `"main" is no flag`},
		{"soak -durability strict", `"strict"`},
		{"soak -d 10s", "6 samples"},
		{"soak main", `"main" is no flag`},
		{"check wire", `"wire" is no flag`},
		{"chart wire", `"wire" is no flag`},
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
		if (s.spend == nil) != (s.name == redisIncr) || s.spend != nil && (!slices.Contains(s.spend("sha", 1), key) || slices.Equal(s.spend("sha", 1), s.spend("sha", 2))) {
			t.Errorf("%s spends no units of a key", s.name)
		}
		if !slices.Contains(s.command("sha"), key) || !slices.Contains(s.fill("sha"), key) {
			t.Errorf("%s sends no key", s.name)
		}
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
