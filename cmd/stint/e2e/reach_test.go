//go:build unix

package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFilesAreForTheServersUserAlone starts under a umask that forbids nothing.
func TestFilesAreForTheServersUserAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := launchBy(t, []string{"sh", "-c", `umask 0 && exec "$0" "$@"`, binary}, "--dir", dir)
	s.awaitListening()
	spend(s.Dial(), "a", 10, 1)
	s.Stop()
	backup := filepath.Join(t.TempDir(), "backup.db")
	if code, _, errs := tool(t, "backup", "--dir", dir, backup); code != 0 {
		t.Fatal(errs)
	}
	for path, want := range map[string]fs.FileMode{
		dir: 0o700, filepath.Join(dir, "state.db"): 0o600, filepath.Join(dir, "lock"): 0o600, backup: 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v (%v), want %v", path, info.Mode().Perm(), err, want)
		}
	}
}

// TestAClientCannotReachBeyondTheLimits tries what has been used against open
// Redis servers, and what would stop or fool this one.
func TestAClientCannotReachBeyondTheLimits(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "--dir", dir)
	c := s.Dial()
	for _, args := range [][]string{
		{"CONFIG", "SET", "dir", "/tmp"}, {"CONFIG", "SET", "dbfilename", "x"}, {"CONFIG", "SET", "enable-debug-command", "yes"},
		{"CONFIG", "SET", "bind", "0.0.0.0"}, {"CONFIG", "REWRITE"},
		{"SLAVEOF", "127.0.0.1", "1"}, {"REPLICAOF", "127.0.0.1", "1"}, {"MODULE", "LOAD", "/tmp/x.so"}, {"MIGRATE", "h", "1", "k", "0", "1"},
		{"EVAL", "return 1", "0"}, {"FUNCTION", "LOAD", "x"}, {"SCRIPT", "LOAD", "x"}, {"DEBUG", "CLOCK", "1"}, {"SHUTDOWN"}, {"SHUTDOWN", "NOSAVE"},
		{"MONITOR"}, {"RESTORE", "k", "0", "x"}, {"DUMP", "k"},
	} {
		if r, ok := c.Do(args...).(Error); !ok || !strings.HasPrefix(string(r), "ERR ") {
			t.Errorf("%q is answered by %q", args, r)
		}
	}
	expect(t, c.Do("PING"), "PONG")
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("the folder holds %v (%v)", files, err)
	}
}
