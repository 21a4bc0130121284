package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licenceFile matches the names of files that a module asks to be kept with
// what is made of it.
var licenceFile = regexp.MustCompile(`^(?i:licen[cs]e|copying|notice|patents)([._-].*)?$`)

// licences is the text of the licences of all that is in a binary: Go's
// runtime and library, and each module that the linker put in. All of them ask
// that it goes with the binary.
func (r *release) licences(ctx context.Context, binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read which modules are in the binary: %w", err)
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "stint is published under the licence in LICENSE. The binary contains the following\nas well, under theirs.\n")
	if err := appendLicences(&b, "The Go runtime and standard library, "+info.GoVersion, strings.TrimSpace(string(root))); err != nil {
		return nil, err
	}
	folders, err := r.moduleFolders(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range info.Deps {
		folder, ok := folders[m.Path]
		if !ok {
			return nil, fmt.Errorf("the module %s is in the binary, and go list does not know where its source is", m.Path)
		}
		if err := appendLicences(&b, m.Path+" "+m.Version, folder); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// moduleFolders is where the sources of the modules are that have been fetched.
func (r *release) moduleFolders(ctx context.Context) (map[string]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-json=Path,Dir", "all")
	cmd.Dir = r.root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m all: %w", err)
	}
	folders := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Dir string }
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return folders, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list -m all: %w", err)
		}
		if m.Dir != "" {
			folders[m.Path] = m.Dir
		}
	}
}

// appendLicences appends the licence files of one folder under a heading. A
// folder without one is an error: what may not be passed on is not packed.
func appendLicences(b *bytes.Buffer, what, folder string) error {
	list, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("look for the licence of %s: %w", what, err)
	}
	list = slices.DeleteFunc(list, func(e os.DirEntry) bool {
		return e.IsDir() || strings.HasSuffix(e.Name(), ".go") || !licenceFile.MatchString(e.Name())
	})
	if len(list) == 0 {
		return fmt.Errorf("%s has no licence file in %s: find out under which terms it may be passed on", what, folder)
	}
	for _, e := range list {
		data, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return fmt.Errorf("read the licence of %s: %w", what, err)
		}
		title := what + " (" + e.Name() + ")"
		fmt.Fprintf(b, "\n%s\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), title, strings.Repeat("=", 80), bytes.TrimSpace(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))))
	}
	return nil
}
