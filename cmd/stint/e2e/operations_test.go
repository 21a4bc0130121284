//go:build unix

package e2e

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// systemctl stands in for the service manager: it starts and stops the server
// that the test's variables describe, as the unit would, and returns when it
// serves or has ended.
const systemctl = `
pause() { read -r -t 0.02 <> <(:) || true; }
systemctl() {
  local pid
  if test "$2" != stint; then echo "systemctl $*: no such unit"; return 1; fi
  case $1 in
    start)
      stint --dir "$STATE" --addr "127.0.0.1:$PORT" --interval 1h >>"$LOG" 2>&1 &
      pid=$! # pause sets $! anew
      echo "$pid" >"$LOG.pid"
      until (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; do kill -0 "$pid" || return 1; pause; done ;;
    stop)
      pid=$(cat "$LOG.pid")
      kill -TERM "$pid"
      until tail -n 1 "$LOG" | grep -q msg=stopped; do pause; done ;;
    *) echo "systemctl $*: what is that?"; return 1 ;;
  esac
}
`

// TestDocumentedOperations runs every sh block of docs/operations.md in order
// against one server: the backup is made and restored, and what was decided
// before it is there again.
func TestDocumentedOperations(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	l.Close()
	dir := t.TempDir()
	state, log := filepath.Join(dir, "state"), filepath.Join(dir, "log")
	env := append(cleanEnv(), "STATE="+state, "LOG="+log, "PATH="+filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
	place := strings.NewReplacer("/var/lib/stint", state, "/var/backups", dir)
	do := func(text string) string {
		out, err := script(t, systemctl+place.Replace(text), port, env).CombinedOutput()
		if err != nil || strings.Contains(string(out), "ERR") {
			data, _ := os.ReadFile(log)
			t.Errorf("%s: %v\n%s\nlog:\n%s", text, err, out, data)
		}
		return string(out)
	}
	t.Cleanup(func() { // the last one that was started, if it still runs
		data, _ := os.ReadFile(log + ".pid")
		if pid, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	running := func() *Conn { return dial(t, "tcp", addr) }

	do("systemctl start stint")
	spend(running(), "before", 10, 7)
	restored := false
	list := blocks(t, "docs/operations.md")
	ran, compared := runBlocks(t, list, shows, func(text string) string {
		if strings.Contains(text, "state.db.old") {
			spend(running(), "after", 10, 7)
			out := do(text)
			expect(t, running().Do("DBSIZE"), int64(10))
			left(running(), "before", 10, 993)
			restored = true
			return out
		}
		return do(text)
	})
	if ran < 5 || compared < 4 || !restored {
		t.Errorf("%d blocks were run and %d compared, restored: %v", ran, compared, restored)
	}
}

// TestDocumentedAlarmsAreFields looks up the fields of the alarms in INFO.
func TestDocumentedAlarmsAreFields(t *testing.T) {
	info, ok := start(t).Dial().Do("INFO").(string)
	if !ok {
		t.Fatal("INFO replies no text")
	}
	fields := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(document(t, "docs/operations.md"), -1)
	if len(fields) < 15 {
		t.Errorf("%d fields are in the tables, want at least 15", len(fields))
	}
	for _, f := range fields {
		// Fields of TLS are there with an address that begins with tls: only.
		if strings.HasPrefix(f[1], "tls_") && strings.Contains(document(t, "docs/info.md"), "`"+f[1]+"`") {
			continue
		}
		if !strings.Contains(info, "\n"+f[1]+":") {
			t.Errorf("INFO has no %s", f[1])
		}
	}
}

// TestDocumentedLogLinesAreLogged looks for the text of each documented line
// in the sources of the server, at the level that the document says.
func TestDocumentedLogLinesAreLogged(t *testing.T) {
	var sources strings.Builder
	for _, folder := range []string{"cmd", "server", "persist"} {
		err := filepath.WalkDir(filepath.Join("../../..", folder), func(path string, e fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			sources.Write(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	lines := regexp.MustCompile("(?m)^\\| (ERROR|WARN|INFO) `([^`]+)` \\|").FindAllStringSubmatch(document(t, "docs/operations.md"), -1)
	if len(lines) < 12 {
		t.Errorf("%d lines are in the table, want at least 12", len(lines))
	}
	method := map[string]string{"ERROR": "Error", "WARN": "Warn", "INFO": "Info", "DEBUG": "Debug"}
	for _, l := range lines {
		call := regexp.MustCompile(`(\w+)\("` + regexp.QuoteMeta(l[2])).FindStringSubmatch(sources.String())
		if call == nil {
			t.Errorf("nothing logs %q", l[2])
			continue
		}
		for level, name := range method { // a function of any other name logs for its caller
			if call[1] == name && level != l[1] {
				t.Errorf("%q is logged at level %s, the document says %s", l[2], level, l[1])
			}
		}
	}
}

// document is the text of a document of the repository.
func document(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
