package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-dev/stint/server"
)

var update = flag.Bool("update", false, "write the generated documents instead of comparing them")

// root is the module's folder, seen from this package's tests.
const root = "../.."

func readRoot(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestConfigurationDocumentIsCurrent(t *testing.T) {
	var g grammar
	parser, _ := newParser(&g, &bytes.Buffer{})
	want := configurationDoc(parser.Model)
	path := filepath.Join(root, "docs", "configuration.md")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := readRoot(t, "docs/configuration.md"); got != want {
		t.Error("docs/configuration.md is not what the struct Config says: run make docs")
	}
	for _, f := range serverFlags(parser.Model) {
		if f.Help == "" || f.Group == nil || (f.PlaceHolder == "" && !f.IsBool()) {
			t.Errorf("--%s lacks a help, a group or a placeholder", f.Name)
		}
	}
}

// TestSettingsNameOptionsThatExist fails when CONFIG sends a user to a flag
// that is not there.
func TestSettingsNameOptionsThatExist(t *testing.T) {
	var g grammar
	parser, _ := newParser(&g, &bytes.Buffer{})
	known := optionNames(parser)
	for _, s := range server.Settings() {
		if s.Flag != "" && !known(s.Flag) {
			t.Errorf("the setting %s is said to come from --%s", s.Name, s.Flag)
		}
	}
	doc := readRoot(t, "docs/configuration.md")
	for _, want := range []string{
		"| `STINT_MAX_MEMORY` | `maxmemory`: GET, SET |", "| `STINT_IDLE_TIMEOUT` | `timeout`: GET, SET |", "| `STINT_DIR` | `dir`: GET |",
		"| `STINT_REQUIREPASS_FILE` | `requirepass`: GET, SET |", "| `STINT_CONFIG` | – |", "SET is not kept", "## Signals",
	} {
		if !strings.Contains(doc, want) {
			t.Errorf("docs/configuration.md lacks %q", want)
		}
	}
}

func TestExampleFileOfTheDocumentIsAccepted(t *testing.T) {
	_, rest, ok := strings.Cut(readRoot(t, "docs/configuration.md"), "```yaml\n")
	if !ok {
		t.Fatal("docs/configuration.md has no example")
	}
	text, _, _ := strings.Cut(rest, "```")
	if _, err := parse(t, nil, "--config", file(t, "s.yaml", text)); err != nil {
		t.Error(err)
	}
}

// TestDependenciesDocumentIsCurrent holds docs/dependencies.md to the direct
// requirements of go.mod: each is listed with its version and a reason.
func TestDependenciesDocumentIsCurrent(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json", filepath.Join(root, "go.mod")).Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path, Version string
			Indirect      bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	row := regexp.MustCompile("^\\| `([^`]+)` \\| [^|]+ \\| [^|]{20,} \\|$")
	s := bufio.NewScanner(strings.NewReader(readRoot(t, "docs/dependencies.md")))
	for s.Scan() {
		if m := row.FindStringSubmatch(s.Text()); m != nil {
			listed[m[1]] = true
		}
	}
	for _, r := range mod.Require {
		if r.Indirect {
			continue
		}
		if !listed[r.Path] {
			t.Errorf("docs/dependencies.md gives no reason for %s", r.Path)
		}
		delete(listed, r.Path)
	}
	for path := range listed {
		t.Errorf("docs/dependencies.md lists %s, which go.mod does not require directly", path)
	}
}

// TestMakeTargetsInTheDocumentsExist holds README and CONTRIBUTING to the
// Makefile.
func TestMakeTargetsInTheDocumentsExist(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z-]*):.*## \S`).FindAllStringSubmatch(readRoot(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	if len(targets) < 8 {
		t.Fatalf("the Makefile has %d targets with a description, want at least 8", len(targets))
	}
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		found := regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)").FindAllStringSubmatch(readRoot(t, name), -1)
		if len(found) == 0 {
			t.Errorf("%s names no make target", name)
		}
		for _, m := range found {
			if !targets[m[1]] {
				t.Errorf("%s names make %s, which is no target with a description", name, m[1])
			}
		}
	}
}

// TestLocalLinksInTheDocumentsLead finds links to files that are not there.
func TestLocalLinksInTheDocumentsLead(t *testing.T) {
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	docs = append(docs, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"), filepath.Join(root, "CHANGELOG.md"))
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, doc := range docs {
		data, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", filepath.Base(doc), m[1])
			}
		}
	}
}
