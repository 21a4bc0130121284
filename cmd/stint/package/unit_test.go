//go:build unix

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// exposure is the highest level that systemd-analyze security may give, in
// tenths. It is 1.1 by systemd 252, mostly for the network, which a server is
// for; other versions weigh a little differently.
const exposure = 15

// unitHere writes the unit into a folder with the path of the real binary in
// it, for systemd-analyze wants the program to be there.
func unitHere(t *testing.T, dir string) string {
	t.Helper()
	text := read(t, "cmd/stint/package/stint.service")
	here := strings.ReplaceAll(text, "ExecStart=/usr/bin/stint ", "ExecStart="+binary+" ")
	if here == text {
		t.Fatal("the unit does not start /usr/bin/stint")
	}
	path := filepath.Join(dir, "stint.service")
	if err := os.WriteFile(path, []byte(here), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTheUnitVerifies wants not a word from systemd-analyze verify: with the
// unit alone, and with the drop-in for the password.
func TestTheUnitVerifies(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("there is no systemd-analyze here: not tried")
		return
	}
	verify := func(unit string) string {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
		if err != nil {
			return string(out) + err.Error()
		}
		return string(out)
	}
	dir := t.TempDir()
	unit := unitHere(t, dir)
	if out := verify(unit); out != "" {
		t.Errorf("systemd-analyze verify says\n%s", out)
	}
	if err := os.Mkdir(unit+".d", 0o755); err != nil {
		t.Fatal(err)
	}
	dropIn := filepath.Join(unit+".d", "password.conf")
	if err := os.WriteFile(dropIn, []byte(read(t, "cmd/stint/package/password.conf")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := verify(unit); out != "" {
		t.Errorf("with the drop-in, systemd-analyze verify says\n%s", out)
	}
	// The drop-in is read, and a fault would be told.
	if err := os.WriteFile(dropIn, []byte("[Service]\nNoSuchThing=yes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := verify(unit); !strings.Contains(out, "NoSuchThing") {
		t.Errorf("a fault in the drop-in is not found: %q", out)
	}
}

// TestTheUnitIsHardened holds the score of systemd-analyze security.
func TestTheUnitIsHardened(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("there is no systemd-analyze here: not tried")
		return
	}
	unit := unitHere(t, t.TempDir())
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--no-pager", unit).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := regexp.MustCompile(`Overall exposure level for \S+: (\d+)\.(\d)`).FindStringSubmatch(string(out))
	if m == nil {
		t.Fatalf("no level in\n%s", out)
	}
	if level, err := strconv.Atoi(m[1] + m[2]); err != nil || level > exposure {
		t.Errorf("the level is %s.%s, want at most %d.%d:\n%s", m[1], m[2], exposure/10, exposure%10, out)
	}
}

// setting is the last value that the unit gives a name.
func setting(t *testing.T, name string) string {
	t.Helper()
	all := regexp.MustCompile(`(?m)^`+name+`=(.*)$`).FindAllStringSubmatch(read(t, "cmd/stint/package/stint.service"), -1)
	if all == nil {
		t.Fatalf("the unit has no %s", name)
	}
	return all[len(all)-1][1]
}

// TestTheUnitLetsTheServerStop holds the unit to the server's own limits.
func TestTheUnitLetsTheServerStop(t *testing.T) {
	// stopLimit in cmd/stint/serve.go, after which the server ends by itself.
	own := regexp.MustCompile(`stopLimit +=[ ]*(\d+) \* time\.Millisecond`).FindStringSubmatch(read(t, "cmd/stint/serve.go"))
	if own == nil {
		t.Fatal("cmd/stint/serve.go has no stopLimit in milliseconds")
	}
	limit, err := time.ParseDuration(own[1] + "ms")
	if err != nil {
		t.Fatal(err)
	}
	if stop, err := time.ParseDuration(setting(t, "TimeoutStopSec")); err != nil || stop < limit+2*time.Second {
		t.Errorf("TimeoutStopSec is %s, the server may take %v", setting(t, "TimeoutStopSec"), limit)
	}
	for name, want := range map[string]string{
		"KillSignal": "SIGTERM", "RestartPreventExitStatus": "2", "StateDirectory": "stint", "Type": "notify", "NotifyAccess": "main",
		"ExecReload": "/bin/kill -HUP $MAINPID", "ExecStart": "/usr/bin/stint --config /etc/stint/stint.yaml",
	} {
		if got := setting(t, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	// The runtime reads the length of the queue of connections there.
	if strings.Contains(read(t, "cmd/stint/package/stint.service"), "\nProcSubset=pid") {
		t.Error("ProcSubset=pid hides /proc/sys/net/core/somaxconn from the server")
	}
	maxClients := regexp.MustCompile("`--max-clients N` .*? `(\\d+)` \\|").FindStringSubmatch(read(t, "docs/configuration.md"))
	if maxClients == nil {
		t.Fatal("docs/configuration.md has no default of --max-clients")
	}
	clients, err1 := strconv.Atoi(maxClients[1])
	files, err2 := strconv.Atoi(setting(t, "LimitNOFILE"))
	if err1 != nil || err2 != nil || files < clients+64 {
		t.Errorf("LimitNOFILE is %s, for %s clients", setting(t, "LimitNOFILE"), maxClients[1])
	}
}
