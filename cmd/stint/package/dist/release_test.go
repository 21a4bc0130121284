//go:build unix

package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestARelease makes the release for this machine and uses it as who downloads
// it would.
func TestARelease(t *testing.T) {
	t.Chdir(root)
	here := runtime.GOOS + "/" + runtime.GOARCH
	release := func() (dir, said string) {
		dir = t.TempDir()
		var out strings.Builder
		err := run(t.Context(), []string{"-version", "v1.2.3-test", "-out", dir, "-targets", here},
			func(string) string { return "1893501000" }, &out, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return dir, out.String()
	}
	dir, said := release()
	checkSums(t, dir, 1)
	name := fmt.Sprintf("stint-v1.2.3-test-%s-%s", runtime.GOOS, runtime.GOARCH)
	if !strings.Contains(said, name+".tar.gz") {
		t.Errorf("it says %q", said)
	}
	data, err := os.ReadFile(filepath.Join(dir, name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	again, _ := release()
	if second, err := os.ReadFile(filepath.Join(again, name+".tar.gz")); err != nil || !bytes.Equal(data, second) {
		t.Errorf("made twice, the archives differ (%v)", err)
	}

	_, contents := unpack(t, data)
	for _, want := range []string{
		"stint", "README.md", "LICENSE", "CHANGELOG.md", "THIRD-PARTY-LICENSES",
		"docs/limits.md", "docs/security.md", "docs/operations.md",
		"package/stint.yaml", "package/stint.service", "package/sysusers.conf", "package/password.conf",
	} {
		if len(contents[name+"/"+want]) == 0 {
			t.Errorf("the archive has no %s, or nothing in it", want)
		}
	}
	licences := string(contents[name+"/THIRD-PARTY-LICENSES"])
	for _, module := range []string{"Go runtime", "github.com/alecthomas/kong v", "github.com/tidwall/redcon v", "go.etcd.io/bbolt v", "go.yaml.in/yaml/v3 v", "golang.org/x/sys v"} {
		if !strings.Contains(licences, module) {
			t.Errorf("there is no licence of %s", module)
		}
	}

	binary := filepath.Join(t.TempDir(), "stint")
	if err := os.WriteFile(binary, contents[name+"/stint"], 0o755); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" {
		static(t, binary)
	}
	out, err := exec.Command(binary, "--version").Output()
	if err != nil || !strings.HasPrefix(string(out), "stint v1.2.3-test (") {
		t.Errorf("--version says %q (%v)", out, err)
	}
	decides(t, binary)
}

// static expects a program that needs no other file to run.
func static(t *testing.T, binary string) {
	t.Helper()
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary is not static: it has a segment %v", p.Type)
		}
	}
	for _, s := range f.Sections {
		if strings.Contains(s.Name, "debug") {
			return // profilers read them
		}
	}
	t.Error("the binary has no symbols: profiles of it would have no lines")
}

var listening = regexp.MustCompile(`msg=listening addr=(\S+)`)

// decides starts the server, has it decide once, and stops it.
func decides(t *testing.T, binary string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "--addr", "127.0.0.1:0", "--dir", t.TempDir())
	cmd.Env = []string{}
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addr := make(chan string, 1)
	var text strings.Builder
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			text.WriteString(lines.Text() + "\n")
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				addr <- m[1]
			}
		}
	}()
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v:\n%s", err, text.String())
		}
	}()
	select {
	case a := <-addr:
		c, err := net.DialTimeout("tcp", a, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		const want = "*5\r\n:1\r\n:10\r\n:9\r\n:0\r\n:600\r\n"
		got := make([]byte, len(want))
		if _, err := io.WriteString(c, "THROTTLE user:42 10 100/m\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Errorf("the decision is %q (%v), want %q", got, err, want)
		}
	case <-ended:
		t.Error("the server ended before it listened")
	case <-time.After(30 * time.Second):
		t.Error("the server does not listen after 30 s")
	}
}
