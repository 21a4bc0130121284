package main

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

func TestSlopeIsThatOfTheLine(t *testing.T) {
	for _, tc := range []struct {
		x, y []float64
		want float64
	}{
		{[]float64{0, 1, 2, 3}, []float64{5, 7, 9, 11}, 2},
		{[]float64{10, 20, 30}, []float64{3, 3, 3}, 0},
		{[]float64{0, 1, 2, 3}, []float64{0, 10, -10, 0}, -2}, // sum of (x-1.5)(y) is -10, by 5
		{[]float64{4}, []float64{9}, 0},
		{nil, nil, 0},
	} {
		if got := slope(tc.x, tc.y); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%v, %v: %v, want %v", tc.x, tc.y, got, tc.want)
		}
	}
}

// steady is a soak of a server that warms up in the first half, 500 MB at last.
func steady() []soakSample {
	var list []soakSample
	for i := range 20 {
		list = append(list, soakSample{
			at: time.Duration(i+1) * 5 * time.Second, resident: min(250e6+25e6*float64(i), 500e6) + 1e6*float64(i%3), used: 300e6, rate: 1e6,
		})
	}
	return list
}

func TestVerdictsOfASoak(t *testing.T) {
	rest := soakSample{goroutines: 9, files: 12}
	good := map[string]float64{"connection_panics": 0}
	if err := judge(io.Discard, steady(), rest, rest, 0, 5, good); err != nil {
		t.Errorf("a steady server: %v", err)
	}
	for name, tc := range map[string]struct {
		spoil func(samples []soakSample, after *soakSample) (failures int64, troubles map[string]float64)
		want  string
	}{
		"memory grows": {func(samples []soakSample, _ *soakSample) (int64, map[string]float64) {
			for i := range samples {
				samples[i].resident += 4e6 * float64(i)
			}
			return 0, good
		}, "BAD   memory: resident set"},
		"tables grow": {func(samples []soakSample, _ *soakSample) (int64, map[string]float64) {
			for i := range samples {
				samples[i].used += 2e6 * float64(i)
			}
			return 0, good
		}, "BAD   memory: tables"},
		"an error": {func([]soakSample, *soakSample) (int64, map[string]float64) { return 1, good }, "BAD   errors: 1"},
		"a panic": {func([]soakSample, *soakSample) (int64, map[string]float64) {
			return 0, map[string]float64{"connection_panics": 1, "flush_failures": 0}
		}, "BAD   troubles the server counted: connection_panics 1, flush_failures 0"},
		"goroutines stay": {func(_ []soakSample, after *soakSample) (int64, map[string]float64) {
			after.goroutines += spareGoroutines + 1
			return 0, good
		}, "BAD   goroutines: 9 before the load, 12 after it"},
		"files stay": {func(_ []soakSample, after *soakSample) (int64, map[string]float64) {
			after.files += spareFiles + 1
			return 0, good
		}, "BAD   files: 12 before the load, 17 after it"},
	} {
		samples, after := steady(), rest
		failures, troubles := tc.spoil(samples, &after)
		var out strings.Builder
		err := judge(&out, samples, rest, after, failures, 5, troubles)
		if !errors.Is(err, errSoak) || strings.Count(out.String(), "BAD") != 1 || !strings.Contains(out.String(), tc.want) {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
	if err := judge(io.Discard, steady()[:minSamples-1], rest, rest, 0, 0, good); err == nil {
		t.Error("a verdict of too few samples")
	}
	if rise, average, flat := growth(steady(), func(s soakSample) float64 { return s.resident }); !flat || math.Abs(rise) > 2e6 || average < 500e6 {
		t.Errorf("rise %v, mean %v, %v", rise, average, flat)
	}
}

func TestSoakSendsWhatTheGeneratorAccepts(t *testing.T) {
	conns := 0
	for i, l := range soakLoads {
		if err := l.config("127.0.0.1:1", uint64(i), time.Second).Validate(); err != nil {
			t.Errorf("%s: %v", l.command, err)
		}
		conns += l.conns
	}
	if conns < 50 {
		t.Errorf("a soak of %d connections is no full load", conns)
	}
}
