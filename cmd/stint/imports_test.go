package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/stint-dev/stint"

// goPackage is what go list says about a package.
type goPackage struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

// listPackages runs go list -json with its arguments in the module's folder. With
// a profile for the compiler, packages would be there once for each program.
func listPackages(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-pgo=off", "-json=ImportPath,Imports,Standard"}, args...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []goPackage
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// layerOf is the top-level folder of a package of this module, "" for others.
func layerOf(path string) string {
	rest, ok := strings.CutPrefix(path, module+"/")
	if !ok {
		return ""
	}
	layer, _, _ := strings.Cut(rest, "/")
	return layer
}

// TestImportsPointOneWay holds the rule of the layout: cmd → server, cluster,
// persist → engine, and those three never meet.
func TestImportsPointOneWay(t *testing.T) {
	allowed := map[string][]string{
		"engine":  {"engine"},
		"server":  {"server", "engine"},
		"persist": {"persist", "engine"},
		"cluster": {"cluster", "engine"},
		"cmd":     {"cmd", "server", "persist", "cluster", "engine"},
		"bench":   {"bench", "server", "persist", "engine"},
	}
	for _, p := range listPackages(t, "./...") {
		from := layerOf(p.ImportPath)
		to, ok := allowed[from]
		if !ok {
			t.Errorf("%s is in no known folder", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			layer := layerOf(imported)
			if layer != "" && !strings.Contains(" "+strings.Join(to, " ")+" ", " "+layer+" ") {
				t.Errorf("%s imports %s: %s may import %s only", p.ImportPath, imported, from, strings.Join(to, ", "))
			}
		}
	}
}

// TestEngineNeedsTheStandardLibraryOnly keeps the engine embeddable: no
// dependency but a hash, and in the decision functions none at all, nor
// anything that reads a clock or does I/O.
func TestEngineNeedsTheStandardLibraryOnly(t *testing.T) {
	for _, p := range listPackages(t, "-deps", "./engine/...") {
		if !p.Standard && layerOf(p.ImportPath) != "engine" && p.ImportPath != "github.com/cespare/xxhash/v2" {
			t.Errorf("the engine depends on %s", p.ImportPath)
		}
	}
	for _, p := range listPackages(t, "./engine/limit") {
		for _, imported := range p.Imports {
			switch imported {
			case "time", "os", "net", "log", "log/slog", "sync", "math/rand", "math/rand/v2":
				t.Errorf("the decision functions import %s: they must stay pure", imported)
			}
			if layerOf(imported) != "" || strings.Contains(imported, ".") {
				t.Errorf("the decision functions import %s: the standard library only", imported)
			}
		}
	}
	for _, p := range listPackages(t, "./engine") {
		for _, imported := range p.Imports {
			switch imported {
			case "time", "os", "net", "log", "log/slog":
				t.Errorf("the engine imports %s: it has no clock, I/O or log", imported)
			}
		}
	}
}
