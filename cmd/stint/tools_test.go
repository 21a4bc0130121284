package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/persist"
)

// stateFolder makes a folder with an empty state in it.
func stateFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ks, err := engine.New(engine.Options{Track: true})
	if err != nil {
		t.Fatal(err)
	}
	st, err := persist.Open(dir, persist.Options{Interval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Load(ks); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestToolsIgnoreWhatIsSetForTheServer runs them where the server's variables
// are, which is what an exec into its container does.
func TestToolsIgnoreWhatIsSetForTheServer(t *testing.T) {
	dir := stateFolder(t)
	other := file(t, "s.yaml", "dir: "+dir+"\nmax-clients: many\n") // wrong, but not for the tools
	backup := func() string { return filepath.Join(t.TempDir(), "b.db") }
	for _, variable := range []string{
		"STINT_CONFIG=/not/there", "STINT_INTERVAL=x", "STINT_MAX_CLIENTS=x", "STINT_DURABILITY=strict", "STINT_REQUIREPASS_FILE=/not/there",
		"STINT_FILE=x", "STINT_UNKNOWN=x", "STINT_HELP=x", "STINT_VERSION=x", "STINT_KEYS=", "STINT_COMMAND=x",
	} {
		for _, args := range [][]string{{"inspect", dir}, {"backup", "--dir", dir, backup()}, {"version"}, {"help"}} {
			var stdout, stderr bytes.Buffer
			if code := run(&process{args, []string{variable}, &stdout, &stderr}); code != exitOK || stdout.Len() == 0 || stderr.Len() > 0 {
				t.Errorf("%s stint %q: exit code %d, stderr %q", variable, args, code, stderr.String())
			}
		}
	}

	// Those of their own options they obey.
	for _, environ := range [][]string{{"STINT_DIR=" + dir}, {"STINT_CONFIG=" + other}, {"STINT_DIR=" + dir, "STINT_CONFIG=" + other}} {
		path := backup()
		var stdout, stderr bytes.Buffer
		if code := run(&process{[]string{"backup", path}, environ, &stdout, &stderr}); code != exitOK {
			t.Errorf("%q: exit code %d, stderr %q", environ, code, stderr.String())
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: %v", environ, err)
		}
	}
	for args, want := range map[string]string{"backup x": "--config: the file cannot be read", "inspect x": "STINT_KEYS"} {
		var stdout, stderr bytes.Buffer
		code := run(&process{strings.Fields(args), []string{"STINT_CONFIG=/not/there", "STINT_KEYS=perhaps"}, &stdout, &stderr})
		if code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit code %d, stderr %q, want %q", args, code, stderr.String(), want)
		}
	}
}
