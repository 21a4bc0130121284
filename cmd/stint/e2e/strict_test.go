//go:build unix

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// strict starts a server that loses nothing.
func strict(t *testing.T, dir string, more ...string) *Server {
	s := start(t, append([]string{"--dir", dir, "--durability", "strict"}, more...)...)
	eventually(t, 10*time.Second, "the node leads", func() bool {
		return strings.Contains(fmt.Sprint(s.Dial().Do("RAFT", "INFO")), "serving:1")
	})
	return s
}

// TestStrictLosesNothingThatWasAnswered kills the process after every answer.
func TestStrictLosesNothingThatWasAnswered(t *testing.T) {
	dir := t.TempDir()
	want := 1000
	for round := range 4 {
		s := strict(t, dir)
		c := s.Dial()
		for range 20 {
			want--
			if got := fmt.Sprint(c.Do("THROTTLE", "k", "1000", "1/d")); !strings.Contains(got, fmt.Sprint(" ", want, " ")) {
				t.Fatalf("start %d: %s, want %d left", round, got, want)
			}
		}
		s.Kill()
	}
}

// TestAStateFileBecomesThatOfACluster starts a single node's folder with strict,
// backs that up while it runs, and begins anew from the backup.
func TestAStateFileBecomesThatOfACluster(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "--dir", dir)
	spend(s.Dial(), "a", 10, 3)
	s.Stop()
	s = strict(t, dir)
	left(s.Dial(), "a", 10, 997)
	spend(s.Dial(), "a", 10, 2)
	backup := filepath.Join(t.TempDir(), "b.stint")
	tool := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	tool("backup", backup, "--from", s.Addr)
	spend(s.Dial(), "a", 10, 1) // after the backup
	if out := tool("inspect", backup); !strings.Contains(out, "keys              10") {
		t.Errorf("inspect says %s", out)
	}
	if out, err := exec.CommandContext(t.Context(), binary, "backup", backup, "--from", s.Addr).CombinedOutput(); err == nil {
		t.Errorf("a backup is replaced: %s", out)
	}
	s.Stop()
	fresh := t.TempDir()
	tool("restore", backup, "--dir", fresh)
	if out, err := exec.CommandContext(t.Context(), binary, "restore", backup, "--dir", dir).CombinedOutput(); err == nil {
		t.Errorf("a folder with a state is restored into: %s", out)
	}
	left(strict(t, fresh).Dial(), "a", 10, 995)
	// A folder of the one kind is not started as the other.
	out, err := exec.CommandContext(t.Context(), binary, "--addr", "127.0.0.1:0", "--dir", dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "durability strict") {
		t.Errorf("the folder of a node is started with interval: %v: %s", err, out)
	}
}

// TestTheAdminAddressTellsHowItIs asks over HTTP.
func TestTheAdminAddressTellsHowItIs(t *testing.T) {
	s := strict(t, t.TempDir(), "--admin-addr", "127.0.0.1:0")
	url := ""
	eventually(t, 5*time.Second, "the log tells the address", func() bool {
		_, after, ok := strings.Cut(s.Log(), "serving metrics and health\" url=")
		if ok {
			url, _, _ = strings.Cut(after, "\n")
			url = strings.TrimSpace(url)
		}
		return ok
	})
	get := func(path string) string {
		r, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("%s: %d, %v, %s", path, r.StatusCode, err, b)
		}
		return string(b)
	}
	get("readyz")
	if text := get("metrics"); !strings.Contains(text, `stint_raft_state{state="leader"} 1`) {
		t.Errorf("the metrics do not tell who leads: %.2000s", text)
	}
}
