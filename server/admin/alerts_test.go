package admin

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const alertsFile = "../../docs/alerts.yaml"

// alertFile is what Prometheus takes as a file of rules, as far as it is used.
type alertFile struct {
	Groups []struct {
		Name  string
		Rules []alertRule
	}
}

type alertRule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []alertRule {
	t.Helper()
	data, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var f alertFile
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil {
		t.Fatal(err)
	}
	var rules []alertRule
	for _, g := range f.Groups {
		if g.Name == "" || len(g.Rules) == 0 {
			t.Error("a group has no name or no rules")
		}
		rules = append(rules, g.Rules...)
	}
	return rules
}

var (
	metricName = regexp.MustCompile(`\b(?:stint|process|go)_[a-zA-Z0-9_]+`)
	matcher    = regexp.MustCompile(`((?:stint|process|go)_[a-zA-Z0-9_]+)\{([a-z_]+)(=~?)"([^"]*)"\}`)
	label      = regexp.MustCompile(`\$labels\.([a-z_]+)`)
)

// TestAlertsUseMetricsThatExist fails when a metric or the value of a label is
// renamed and the rules are not: such a rule never fires, and nobody notices.
func TestAlertsUseMetricsThatExist(t *testing.T) {
	shown := scrape(t, full())
	names := map[string]bool{}
	for s := range shown {
		names[nameOf(s)] = true
	}
	for _, r := range alerts(t) {
		used := metricName.FindAllString(r.Expr, -1)
		if len(used) == 0 && !strings.HasPrefix(r.Expr, "up{") {
			t.Errorf("%s uses no metric: %s", r.Alert, r.Expr)
		}
		for _, name := range used {
			if !names[name] {
				t.Errorf("%s uses %s, which does not exist", r.Alert, name)
			}
		}
		for _, m := range matcher.FindAllStringSubmatch(r.Expr, -1) {
			if m[2] == "job" || m[2] == "instance" {
				continue // from Prometheus
			}
			found := false
			for s := range shown {
				found = found || nameOf(s) == m[1] && strings.Contains(s, m[2]+`="`+m[4]+`"`)
			}
			if !found || m[3] != "=" {
				t.Errorf("%s asks for %s, which does not exist", r.Alert, m[0])
			}
		}
	}
}

func TestAlertsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range alerts(t) {
		if seen[r.Alert] || !strings.HasPrefix(r.Alert, "Stint") {
			t.Errorf("%q is there twice, or does not begin with Stint", r.Alert)
		}
		seen[r.Alert] = true
		if s := r.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		if r.For != "" {
			if _, err := time.ParseDuration(r.For); err != nil {
				t.Errorf("%s: %v", r.Alert, err)
			}
		}
		if !strings.Contains(r.Annotations["summary"], "{{ $labels.") || len(r.Annotations["description"]) < 20 {
			t.Errorf("%s does not say where and what to do", r.Alert)
		}
		if strings.Count(r.Expr, "(") != strings.Count(r.Expr, ")") {
			t.Errorf("%s: %s", r.Alert, r.Expr)
		}
		// What a sum by job leaves is the job alone.
		for _, text := range r.Annotations {
			for _, m := range label.FindAllStringSubmatch(text, -1) {
				byJob := strings.HasPrefix(r.Expr, "sum by (job)") || strings.HasPrefix(r.Expr, "max by (job)") && !strings.Contains(r.Expr, "group_right")
				if byJob && m[1] != "job" || !slices.Contains([]string{"job", "instance", "mode"}, m[1]) {
					t.Errorf("%s speaks of $labels.%s, which its result has not", r.Alert, m[1])
				}
			}
		}
	}
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range seen {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/metrics.md does not explain %s", name)
		}
	}
	for _, m := range regexp.MustCompile("`(Stint[A-Za-z]+)`").FindAllStringSubmatch(string(doc), -1) {
		if !seen[m[1]] {
			t.Errorf("docs/metrics.md explains %s, which does not exist", m[1])
		}
	}
}
