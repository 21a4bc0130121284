package main

import (
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestDifferenceMustBeMoreThanNoise(t *testing.T) {
	even := []float64{100, 100, 100, 100, 100, 100, 100, 100, 100}
	times := func(f ...float64) []float64 {
		list := make([]float64, len(even))
		for i := range list {
			list[i] = even[i] * f[i%len(f)]
		}
		return list
	}
	for name, tc := range map[string]struct {
		here, again  []float64
		ratio, noise float64
		real         bool
	}{
		"nothing":                   {times(1), times(1), 1, 0, false},
		"a tenth more":              {times(1.1), times(1.01), 1.1, 0.01, true},
		"a tenth less":              {times(0.9), times(1.01), 0.9, 0.01, true},
		"the same server differs":   {times(1.05), times(1.06, 0.94), 1.05, 0.06, false},
		"rounds differ":             {times(1.02, 1.1, 0.94), times(1), 1.02, 0.08, false},
		"two of nine go other ways": {times(1.1, 1.1, 1.1, 0.99), times(1), 1.1, 0, false},
		"one of nine goes another":  {append(times(1.1)[:8], 99), times(1.01), 1.1, 0.01, true},
	} {
		d := differ(tc.here, even, tc.again)
		if math.Abs(d.ratio-tc.ratio) > 1e-9 || math.Abs(d.noise-tc.noise) > 1e-9 || d.real != tc.real {
			t.Errorf("%s: %+v, want %v, noise %v, %v", name, d, tc.ratio, tc.noise, tc.real)
		}
	}
	if d := differ(nil, nil, nil); d.real {
		t.Error("nothing measured, and a difference")
	}
	// What slows the machine down for a round is no difference.
	slow := []float64{100, 50, 100, 20, 100, 70, 100, 100, 10}
	here := make([]float64, len(slow))
	for i, v := range slow {
		here[i] = v * 1.1
	}
	if d := differ(here, slow, slow); !d.real || math.Abs(d.ratio-1.1) > 1e-9 {
		t.Errorf("a tenth more on a machine in trouble: %+v", d)
	}
}

func TestCompareTableSaysWhichWay(t *testing.T) {
	r := &record{}
	for range 9 {
		r.addSample(wireName(ownGenerator, sideThere, 16), sample{rate: 1000, cpu: 2, p50: 10, p99: 100})
		r.addSample(wireName(ownGenerator, sideAgain, 16), sample{rate: 1000, cpu: 2, p50: 10, p99: 150})
		r.addSample(wireName(ownGenerator, sideHere, 16), sample{rate: 1200, cpu: 1, p50: 10, p99: 120})
	}
	var out strings.Builder
	compareTable(&out, r, []int{16})
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	for i, want := range []string{
		"-P what there here ratio noise",
		"16 requests/s 1000 1200 1.200 ±0.000 MORE",
		"16 server CPU, µs 2.000 1.000 0.500 ±0.000 less",
		"16 p50, µs 10 10 1.000 ±0.000 within the noise",
		"16 p99, µs 100 120 1.200 ±0.500 within the noise",
	} {
		if lines[i] != want {
			t.Errorf("line %d: %q, want %q", i, lines[i], want)
		}
	}
}

// A small repository stands in for this one: the test may run where that has
// no history.
func TestBuildOfACommitLeavesNoWorkTree(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		return // where there is no git there is nothing to compare with
	}
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	for path, text := range map[string]string{
		"go.mod":            "module github.com/stint-dev/stint\n\ngo 1.26.0\n",
		"cmd/stint/main.go": "package main\n\nfunc main() { println(\"old\") }\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"init", "--quiet"}, {"add", "."}, {"-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", "old"},
	} {
		if said, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}
	if err := os.WriteFile("cmd/stint/main.go", []byte("package main\n\nfunc main() { println(\"new\") }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "old")
	commit, err := buildAt(context.Background(), "HEAD", filepath.Join(dir, "tree"), binary)
	if err != nil || len(commit) != 12 {
		t.Fatalf("%q, %v", commit, err)
	}
	if said, err := exec.Command(binary).CombinedOutput(); err != nil || string(said) != "old\n" {
		t.Fatalf("the commit's server says %q, %v", said, err)
	}
	// A commit that does not build leaves nothing either.
	if said, err := exec.Command("git", "rm", "--quiet", "--cached", "cmd/stint/main.go").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if said, err := exec.Command("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", "broken").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if _, err := buildAt(context.Background(), "HEAD", filepath.Join(dir, "tree"), binary); err == nil || !strings.Contains(err.Error(), "cannot be built") {
		t.Errorf("a commit without a server: %v", err)
	}
	trees, err := exec.Command("git", "worktree", "list").Output()
	if err != nil || strings.Count(string(trees), "\n") != 1 {
		t.Errorf("work trees are left: %s, %v", trees, err)
	}
	for _, ref := range []string{"", "--force", "no-such"} {
		if _, err := buildAt(context.Background(), ref, filepath.Join(dir, "tree"), binary); err == nil {
			t.Errorf("ref %q was accepted", ref)
		}
	}
}
