package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestGoalsAreJudgedInTheRightDirection(t *testing.T) {
	missed := []string{
		"speed-incr-p1", "cpu-incr-p1", // half of INCR's speed, 1.5 times its CPU
		"speed-lua-p16", "cpu-lua-p16", "speed-incr-p16", "cpu-incr-p16", // only twice the script's speed
		"speed-lua-p64", "cpu-lua-p64", "speed-incr-p64", "cpu-incr-p64",
		"memory-interval-5m", "memory-interval-10m", // 64.1, 64.2
		"sweeping-p999", // 2.1
	}
	r := fixed()
	seen := map[string]bool{}
	for _, g := range goals() {
		if seen[g.key] {
			t.Errorf("two goals are called %s", g.key)
		}
		seen[g.key] = true
		want := "met"
		if slices.Contains(missed, g.key) {
			want = "missed"
		}
		if got := g.verdict(r); got != want {
			t.Errorf("%s is %s, want %s: %v", g.key, got, want, g.got(r))
		}
		if got := g.verdict(&record{}); got != "not measured" {
			t.Errorf("%s is %s in an empty result", g.key, got)
		}
	}
	for _, key := range missed {
		if !seen[key] {
			t.Errorf("there is no goal %s", key)
		}
	}
}

func TestReasonsBelongToGoals(t *testing.T) {
	if _, err := parseReasons(reasonsFile); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"restart: because\nlunch: late": `no goal "lunch"`,
		"restart: ' '":                  "empty",
		"- restart":                     "reasons.yaml",
	} {
		if _, err := parseReasons([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestCheckFailsForAMissWithoutReason(t *testing.T) {
	r := fixed()
	reasons := map[string]string{"restart": "no longer so"}
	for _, g := range goals() {
		if g.verdict(r) == "missed" {
			reasons[g.key] = "the moon\n was full"
		}
	}
	var out strings.Builder
	if err := check(r, reasons, &out); err != nil {
		t.Errorf("all is explained: %v", err)
	}
	for _, want := range []string{
		"the moon was full", "restart that is not needed", "18 met, 13 missed, 0 not measured",
		"met           restart with 10 M buckets ", "≤ 10 s", "10 (9–11) s",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the check does not say %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	delete(reasons, "sweeping-p999")
	if err := check(r, reasons, &out); !errors.Is(err, errNoReason) || !strings.Contains(err.Error(), ": sweeping-p999") || !strings.Contains(out.String(), "NO REASON: write one as sweeping-p999") {
		t.Errorf("a miss without a reason: %v\n%s", err, out.String())
	}
	// What was not measured may not pass as met.
	out.Reset()
	reasons["sweeping-p999"] = "so"
	delete(r.Figures, "engine/hot")
	if err := check(r, reasons, &out); !errors.Is(err, errNoReason) || !strings.Contains(err.Error(), ": engine-hot") {
		t.Errorf("a goal that was not measured: %v", err)
	}
}
