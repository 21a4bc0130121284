package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestNothingNextToAPasswordIsShown gives passwords as people do who forget
// quotes, a blank or a colon. What they meant as a password contains
// "geheim", which stderr never shows.
func TestNothingNextToAPasswordIsShown(t *testing.T) {
	for _, args := range [][]string{
		{"--requirepass", "a", "geheim"}, {"--requirepass=a", "geheim"}, {"serve", "--requirepass", "a", "geheim"},
		{"--requirepass", "a", "--geheim"}, {"--requirepass", "a", "--geheim=b"}, {"--requirepass", "a", "-geheim"},
		{"--requirepass", "a", "--", "geheim"}, {"requirepass", "geheim"}, {"requirepass=geheim"}, {"REQUIREPASS=geheim"},
		{"--requirepas", "geheim"}, {"--requirepas=geheim"}, {"--requirepass-file", "a", "geheim"}, {"-requirepass", "geheim"},
		{"inspect", "--requirepass", "geheim"}, {"--requirepass", "geheim", "inspect"}, {"geheim", "--requirepass", "a"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(&process{args, []string{"STINT_ADDR=none"}, &stdout, &stderr})
		if code != exitUsage || strings.Contains(stderr.String(), "geheim") || strings.Count(stderr.String(), "\n") != 1 || strings.Contains(stderr.String(), "none") {
			t.Errorf("%q: exit code %d, stderr %q", args, code, stderr.String())
		}
	}
	for _, text := range []string{
		"requirepass: *geheim", "requirepass:\n  *geheim", "requirepass: a *geheim: b", "requirepass: a: *geheim", "requirepass: [a, *geheim]",
		"requirepass: &geheim", "requirepass: &geheim [*geheim]", "requirepass: @geheim", "requirepass: %geheim", "requirepass: `geheim`",
		"requirepass: \"geheim", "requirepass: 'geheim", "requirepass: \"\\geheim\"", "requirepass: {geheim: a}", "requirepass: geheim: a", "requirepass: [geheim, b]",
		"requirepass: [geheim]", "requirepass: !geheim", "requirepass: !geheim a", "requirepass: !<geheim a", "requirepass: !a!geheim b",
		"requirepass:geheim", "{requirepass:geheim}", "requirepass geheim: a", "RequirePass=geheim: a", "- requirepass: geheim", "requirepass: a\nrequirepass: geheim", "requirepass: |geheim\n",
		"requirepass: a\n  geheim: b", "requirepass:\n- geheim\n- b", "<<: {requirepass: geheim}",
	} {
		path := file(t, "s.yaml", text+"\n")
		var stdout, stderr bytes.Buffer
		code := run(&process{[]string{"--config", path}, []string{"STINT_ADDR=none"}, &stdout, &stderr})
		if code != exitUsage || strings.Contains(stderr.String(), "geheim") || strings.Count(stderr.String(), "\n") != 1 || strings.Contains(stderr.String(), "none") {
			t.Errorf("%q: exit code %d, stderr %q", text, code, stderr.String())
		}
	}
}

// TestAStrayArgumentIsShown holds the silence above to passwords.
func TestAStrayArgumentIsShown(t *testing.T) {
	for _, args := range [][]string{{"--dir", "a", "word"}, {"--dir", "a", "--word"}, {"--config", file(t, "s.yaml", "word: a\n")}} {
		var stdout, stderr bytes.Buffer
		if code := run(&process{args, []string{"STINT_ADDR=none"}, &stdout, &stderr}); code != exitUsage || !strings.Contains(stderr.String(), "word") {
			t.Errorf("%q: exit code %d, stderr %q", args, code, stderr.String())
		}
	}
}
