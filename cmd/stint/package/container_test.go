//go:build unix

package packaging

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// instructions are the lines of the Containerfile with a name, in order.
func instructions(t *testing.T, name string) (all []string) {
	t.Helper()
	for line := range strings.Lines(read(t, "cmd/stint/package/Containerfile")) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			all = append(all, strings.TrimSpace(rest))
		}
	}
	return all
}

// TestTheImageBuildsFromWhatItCopies does by hand what a build of the image
// does: a folder gets what the first stage copies, and there the same command
// builds the server.
func TestTheImageBuildsFromWhatItCopies(t *testing.T) {
	ignore := strings.Split(read(t, "cmd/stint/package/Containerfile.dockerignore"), "\n")
	source, copied := t.TempDir(), 0
	for _, args := range instructions(t, "COPY") {
		words := strings.Fields(args)
		if strings.HasPrefix(words[0], "--from=") {
			continue
		}
		for _, from := range words[:len(words)-1] {
			copied++
			info, err := os.Stat(filepath.Join(root, from))
			if err != nil {
				t.Errorf("COPY %s: %v", args, err)
				continue
			}
			if !strings.Contains("\n"+strings.Join(ignore, "\n")+"\n", "\n!"+from+"\n") {
				t.Errorf("%s is copied, and Containerfile.dockerignore keeps it out", from)
			}
			if info.IsDir() {
				err = os.CopyFS(filepath.Join(source, from), withoutTests{os.DirFS(filepath.Join(root, from))})
			} else {
				err = os.WriteFile(filepath.Join(source, from), []byte(read(t, from)), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if copied < 6 {
		t.Errorf("%d files and folders are copied, want at least 6", copied)
	}
	build := ""
	for _, run := range instructions(t, "RUN") {
		if strings.Contains(run, "go build") {
			build = run
		}
	}
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(build, "/out/", out+"/"))
	cmd.Dir, cmd.Env = source, append(os.Environ(), "VERSION=v9.8.7")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, text)
	}
	if text, err := exec.Command(filepath.Join(out, "stint"), "--version").Output(); err != nil || !strings.HasPrefix(string(text), "stint v9.8.7 ") {
		t.Errorf("--version says %q (%v)", text, err)
	}
}

// withoutTests hides what a build does not read, and what others may just be
// writing.
type withoutTests struct{ fs.FS }

func (f withoutTests) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(f.FS, name)
	kept := list[:0]
	for _, e := range list {
		if e.Name() != "testdata" && !strings.HasSuffix(e.Name(), "_test.go") {
			kept = append(kept, e)
		}
	}
	return kept, err
}

// TestTheImageIsWhatTheServerWants holds the rest of the Containerfile to the
// repository and to the server's options.
func TestTheImageIsWhatTheServerWants(t *testing.T) {
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))
	from := instructions(t, "FROM")
	if version == nil || len(from) != 2 || from[0] != fmt.Sprintf("docker.io/library/golang:%s AS build", version[1]) || from[1] != "scratch" {
		t.Errorf("the image is made from %q, and go.mod wants Go %q", from, version)
	}
	if user := instructions(t, "USER"); len(user) != 1 || !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(user[0]) {
		t.Errorf("the user is %q, want one by number, and not root", user)
	}
	if signal := instructions(t, "STOPSIGNAL"); len(signal) != 1 || signal[0] != "SIGTERM" {
		t.Errorf("the signal to stop is %q", signal)
	}
	help, err := exec.Command(binary, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	variables := strings.Fields(strings.Join(instructions(t, "ENV"), " "))
	if len(variables) == 0 {
		t.Error("no option is set")
	}
	for _, kv := range variables {
		name, value, _ := strings.Cut(kv, "=")
		flag := "--" + strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "STINT_"), "_", "-"))
		if !strings.HasPrefix(name, "STINT_") || !strings.Contains(string(help), "\n  "+flag+" ") {
			t.Errorf("%s is no option of the server", name)
		}
		if name == "STINT_ADDR" && !strings.HasSuffix(value, ":"+strings.Join(instructions(t, "EXPOSE"), "")) {
			t.Errorf("%s is not what is exposed", value)
		}
		if name == "STINT_DIR" && strings.Join(instructions(t, "VOLUME"), "") != value {
			t.Errorf("%s is not the volume", value)
		}
	}
	// Whether the server is well is asked with the variables it was started with.
	_, check, ok := strings.Cut(strings.Join(instructions(t, "HEALTHCHECK"), ""), " CMD ")
	entry := strings.Join(instructions(t, "ENTRYPOINT"), "")
	var asks, runs []string
	if err := errors.Join(json.Unmarshal([]byte(check), &asks), json.Unmarshal([]byte(entry), &runs)); !ok || err != nil || len(runs) != 1 || len(asks) != 3 || asks[0] != runs[0] {
		t.Fatalf("the health check is %q, and %q runs: %v", check, entry, err)
	}
	help, err = exec.Command(binary, "help", asks[1]).Output()
	if err != nil || !strings.Contains(string(help), "Exit code 0") || !strings.Contains(string(help), "\n  "+asks[2]+"\n") {
		t.Errorf("%q: the command or its option is not there, or its exit code says nothing: %v\n%s", asks, err, help)
	}
}
