//go:build unix

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// limited runs the binary under a limit on open files, as ulimit sets it, to
// its end.
func limited(t *testing.T, limit string, args ...string) (code int, output string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", "ulimit " + limit + ` && exec "$0" "$@"`, binary}, args...)...)
	cmd.Env = cleanEnv()
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// TestTooFewOpenFilesAreRefused starts the server and the tools with so few
// that Go's runtime would crash later, and with so few that no client would be served.
// Below 8 the runtime crashes before main: Raft's package reads random numbers when
// it is loaded, which takes a timer.
func TestTooFewOpenFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	for _, limit := range []string{"-n 8", "-n 9", "-n 10", "-n 12", "-n 32"} {
		for _, args := range [][]string{
			{"--addr", "127.0.0.1:0", "--dir", dir},
			{"--addr", "127.0.0.1:0", "--dir", dir, "--config", filepath.Join(dir, "none")},
			{"--addr", "127.0.0.1:0", "--durability", "none", "--requirepass-file", filepath.Join(dir, "none")},
			{"inspect", dir}, {"backup", "--dir", dir, filepath.Join(dir, "b")},
		} {
			if limit == "-n 32" && (args[0] == "inspect" || args[0] == "backup" || len(args) == 6 && args[4] == "--config") {
				continue // they are refused for another reason
			}
			code, output := limited(t, limit, args...)
			if code != 1 || !strings.HasPrefix(output, "stint: the system lets this process open ") || strings.Count(output, "\n") != 1 {
				t.Errorf("ulimit %s, %q: exit code %d, %.300s", limit, args, code, output)
			}
		}
		if code, output := limited(t, limit, "version"); code != 0 {
			t.Errorf("ulimit %s, version: exit code %d, %.300s", limit, code, output)
		}
	}
}

// TestTheLeastOfOpenFilesServes starts with as few as are accepted, and wants
// clients served and the state kept.
func TestTheLeastOfOpenFilesServes(t *testing.T) {
	dir := t.TempDir()
	s := launchBy(t, []string{"sh", "-c", `ulimit -n 33 && exec "$0" "$@"`, binary}, "--dir", dir)
	s.awaitListening()
	if !strings.Contains(s.Log(), "fewer files than --max-clients needs") {
		t.Errorf("no warning in\n%s", s.Log())
	}
	var clients []*Conn
	for range 10 {
		clients = append(clients, s.Dial())
	}
	for _, c := range clients {
		expect(t, c.Do("PING"), "PONG")
	}
	spend(clients[0], "a", 10, 3)
	expect(t, clients[1].Do("SAVE"), "OK")
	s.Stop()
	left(start(t, "--dir", dir).Dial(), "a", 10, 997)
}

// TestTheSoftLimitOnOpenFilesIsRaised gives a soft limit that --max-clients does
// not fit into, below a hard one that it does.
func TestTheSoftLimitOnOpenFilesIsRaised(t *testing.T) {
	s := launchBy(t, []string{"sh", "-c", `ulimit -Sn 20 && exec "$0" "$@"`, binary}, "--max-clients", "100", "--durability", "none")
	s.awaitListening()
	if strings.Contains(s.Log(), "fewer files") {
		t.Errorf("the limit was not raised:\n%s", s.Log())
	}
	for range 60 { // each is open until the test ends
		expect(t, s.Dial().Do("PING"), "PONG")
	}
}

// TestUnknownVariablesAreWarnedOf gives the server one that no command knows,
// one that a tool knows, and one that Kubernetes makes.
func TestUnknownVariablesAreWarnedOf(t *testing.T) {
	s := launchBy(t, []string{"env", "STINT_DIRR=x", "STINT_KEYS=true", "STINT_SERVICE_HOST=x", binary}, "--durability", "none")
	s.awaitListening()
	if strings.Count(s.Log(), "looks like an option but is none") != 1 || !strings.Contains(s.Log(), "name=STINT_DIRR") {
		t.Errorf("want a warning of STINT_DIRR alone:\n%s", s.Log())
	}
}
