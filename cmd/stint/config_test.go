package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// parse fills a Config as run does, without starting anything.
func parse(t *testing.T, environ []string, args ...string) (*Config, error) {
	t.Helper()
	var g grammar
	parser, _ := newParser(&g, &bytes.Buffer{})
	src := newSources((&process{environ: environ}).lookup, optionNames(parser))
	if err := kong.Resolvers(src).Apply(parser); err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		return nil, src.explain(usageError(err))
	}
	return &g.Serve.Config, nil
}

// file writes a file of the test and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaultsAreThoseOfTheSpecification(t *testing.T) {
	c, err := parse(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ name, got, want string }{
		{"addr", strings.Join(c.Addr, " "), "127.0.0.1:6390"},
		{"dir", c.Dir, "./stint-data"},
		{"durability", c.Durability, "interval"},
		{"interval", c.Interval.String(), "1s"},
		{"protected-mode", c.ProtectedMode, "yes"},
		{"max-memory", c.MaxMemory.String(), "0"},
		{"idle-timeout", c.IdleTimeout.String(), "0"},
		{"max-output", c.MaxOutput.String(), "64MiB"},
		{"max-argument", c.MaxArgument.String(), "1MiB"},
		{"requirepass", c.Requirepass, ""},
	} {
		if x.got != x.want {
			t.Errorf("%s is %q, want %q", x.name, x.got, x.want)
		}
	}
	if c.MaxClients != 10000 || c.EnableDebugCommand || c.DebugClock != nil {
		t.Errorf("max-clients %d, debug %v, clock %v: want 10000, false, none", c.MaxClients, c.EnableDebugCommand, c.DebugClock)
	}
}

func TestPrecedenceIsFlagEnvironmentFileDefault(t *testing.T) {
	path := file(t, "s.yaml", "interval: 3s\ndir: /from/file\nmax-clients: 7\nprotected-mode: no\naddr: [127.0.0.1:1, 'unix:/a,b']\nenable-debug-command: true\n")
	c, err := parse(t, []string{"STINT_INTERVAL=4s", "STINT_DIR=/from/env", "STINT_MAX_OUTPUT=", "STINT_CONFIG=" + path}, "--interval", "5s")
	if err != nil {
		t.Fatal(err)
	}
	if time.Duration(c.Interval) != 5*time.Second || c.Dir != "/from/env" || c.MaxClients != 7 || c.ProtectedMode != "no" ||
		!c.EnableDebugCommand || c.MaxOutput != 64<<20 || strings.Join(c.Addr, " ") != "127.0.0.1:1 unix:/a,b" {
		t.Errorf("got %+v", c)
	}
	c, err = parse(t, []string{"STINT_ADDR=127.0.0.1:1,unix:/x", "STINT_CONFIG=/not/there"}, "--config", path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(c.Addr, " ") != "127.0.0.1:1 unix:/x" || time.Duration(c.Interval) != 3*time.Second {
		t.Errorf("got %+v", c)
	}
}

func TestAWrongOptionIsNamedWithItsSource(t *testing.T) {
	for _, x := range []struct {
		name string
		args string
		env  string
		yaml string
		want string // %F is the file's path
	}{
		{name: "flag", args: "--interval 1x", want: `--interval: "1x" is not a duration`},
		{name: "unknown flag", args: "--foo", want: "unknown flag --foo"},
		{name: "no value", args: "--dir", want: "--dir: a value is missing after it"},
		{name: "variable", env: "STINT_MAX_OUTPUT=64MBi", want: `--max-output: "64MBi" is not a size`},
		{name: "variable is named", env: "STINT_MAX_OUTPUT=64MBi", want: "(from environment variable STINT_MAX_OUTPUT)"},
		{name: "range in a variable", env: "STINT_INTERVAL=2h", want: "--interval: 2h is out of range: want 10ms to 1h (from environment variable STINT_INTERVAL)"},
		{name: "file", yaml: "dir: x\nmax-clients: many\n", want: "(from %F, line 2)"},
		{name: "unknown key", yaml: "dir: x\ndirr: y\n", want: `--config: %F: line 2: unknown key "dirr"`},
		{name: "config in the file", yaml: "config: x\n", want: "line 1: unknown key"},
		{name: "twice", yaml: "dir: x\ndir: y\n", want: "twice"},
		{name: "a list for one", yaml: "dir: [x, y]\n", want: "--dir: a single value is wanted, not a list (from %F, line 1)"},
		{name: "a mapping for one", yaml: "dir: {x: y}\n", want: "line 1: dir: a value is wanted"},
		{name: "null", yaml: "dir:\n", want: "line 1: dir: a value is wanted"},
		{name: "a list of lists", yaml: "addr: [[x]]\n", want: "a list may hold single values only"},
		{name: "not a mapping", yaml: "- dir\n", want: "line 1: want options"},
		{name: "two documents", yaml: "dir: x\n---\ndir: y\n", want: "one YAML document"},
		{name: "not YAML", yaml: "dir: x\n\ty", want: "not YAML: line 2"},
		{name: "no such file", args: "--config /not/there", want: "--config: the file cannot be read"},
		{name: "strict", args: "--durability strict", want: "comes with the cluster"},
		{name: "durability", args: "--durability always", want: `"always" is not one of none, interval`},
		{name: "protected mode", args: "--protected-mode maybe", want: `"maybe" is not one of yes, no`},
		{name: "log format", args: "--log-format xml", want: `"xml" is not one of text, json`},
		{name: "log level", args: "--log-level loud", want: `"loud" is not one of debug, info, warn, error`},
		{name: "interval too short", args: "--interval 9ms", want: "9ms is out of range"},
		{name: "interval 0", args: "--interval 0", want: "0 is out of range"},
		{name: "clients", args: "--max-clients 0", want: "0 is out of range: want 1 to 1048576"},
		{name: "argument too small", args: "--max-argument 4095", want: "4095 is out of range"},
		{name: "argument too large", args: "--max-argument 513MiB", want: "513MiB is out of range"},
		{name: "output", args: "--max-output 1023KiB", want: "1023KiB is too small"},
		{name: "address", args: "--addr localhost", want: `"localhost" is not an address`},
		{name: "port", args: "--addr 127.0.0.1:65536", want: "no port"},
		{name: "port sign", args: "--addr 127.0.0.1:+80", want: "no port"},
		{name: "unix", args: "--addr unix:", want: "has no path"},
		{name: "long unix", args: "--addr unix:/" + strings.Repeat("x", 103), want: "longer than"},
		{name: "address twice", args: "--addr :1 --addr :1", want: "given twice"},
		{name: "no folder", args: "--dir=", want: "a folder is needed"},
		{name: "clock", args: "--debug-clock=-1", want: "-1 is out of range"},
		{name: "clock too late", args: "--debug-clock 4611686018427387904", want: "is out of range"},
		{name: "two passwords", args: "--requirepass x --requirepass-file y", want: "give one of them"},
	} {
		t.Run(x.name, func(t *testing.T) {
			// Should a wrong option pass, the password file that is not
			// there keeps run from starting a server.
			environ := []string{"STINT_REQUIREPASS_FILE=/not/there"}
			if x.env != "" {
				environ = append(environ, x.env)
			}
			path := ""
			if x.yaml != "" {
				path = file(t, "s.yaml", x.yaml)
				environ = append(environ, "STINT_CONFIG="+path)
			}
			var stdout, stderr bytes.Buffer
			code := run(&process{strings.Fields(x.args), environ, &stdout, &stderr})
			want := strings.ReplaceAll(x.want, "%F", path)
			if code != exitUsage || !strings.Contains(stderr.String(), want) {
				t.Errorf("exit code %d, stderr %q; want %d and %q", code, stderr.String(), exitUsage, want)
			}
			if strings.Count(stderr.String(), "\n") != 1 || !strings.HasPrefix(stderr.String(), "stint: ") || stdout.Len() > 0 {
				t.Errorf("want one line on stderr, got %q and on stdout %q", stderr.String(), stdout.String())
			}
		})
	}
}

func TestEmptyFilesAreNoError(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "null\n"} {
		if _, err := parse(t, nil, "--config", file(t, "s.yaml", text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestBoundsAreAllowed(t *testing.T) {
	for _, args := range []string{
		"--interval 10ms", "--interval 1h", "--max-clients 1", "--max-clients 1048576", "--max-argument 4096", "--max-argument 512MiB",
		"--max-output 1MiB", "--debug-clock 0", "--debug-clock 4611686018427387903", "--addr :0", "--addr [::1]:65535",
		"--addr unix:/" + strings.Repeat("x", 102), "--dir= --durability none",
	} {
		if _, err := parse(t, nil, strings.Fields(args)...); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "1": 1, "1048576": 1 << 20, "512MiB": 512 << 20, "1GB": 1e9, "64 kib": 64 << 10, "2tb": 2e12, "7B": 7, "9223372036854775807": 1<<63 - 1,
	} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("%q is %d, %v; want %d", text, int64(s), err, int64(want))
		}
		var again Size
		if err := again.UnmarshalText([]byte(s.String())); err != nil || again != s {
			t.Errorf("%q does not survive being written as %q", text, s.String())
		}
	}
	for _, text := range []string{"", "-1", "+1", "1.5GB", "MiB", "1XB", "9223372036854775808", "8388608TiB", "0x10", "1 2"} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken as %d", text, int64(s))
		}
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "30": 30 * time.Second, "250ms": 250 * time.Millisecond, "1h30m": 90 * time.Minute, "2h": 2 * time.Hour, "5m": 5 * time.Minute,
	} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || time.Duration(d) != want {
			t.Errorf("%q is %v, %v; want %v", text, d, err, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0", time.Second: "1s", time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Second: "10s", 5 * time.Minute: "5m"} {
		if got := Duration(d).String(); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
	for _, text := range []string{"", "-1s", "-1", "1x", "1d", "s"} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken as %v", text, d)
		}
	}
}

func TestPasswordFile(t *testing.T) {
	for text, want := range map[string]string{"secret": "secret", "secret\n": "secret", "se cret \r\nmore\n": "se cret "} {
		c := Config{RequirepassFile: file(t, "pass", text)}
		if got, err := c.Password(); err != nil || got != want {
			t.Errorf("%q gives %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{"": "is empty", "\nsecret": "is empty", strings.Repeat("secret", 1000): "longer than"} {
		c := Config{RequirepassFile: file(t, "pass", text)}
		if got, err := c.Password(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.9q gives %.9q, %v; want an error with %q and without the password", text, got, err, want)
		}
	}
	if got, err := (&Config{Requirepass: "secret"}).Password(); err != nil || got != "secret" {
		t.Errorf("--requirepass gives %q, %v", got, err)
	}
	if _, err := (&Config{RequirepassFile: "/not/there"}).Password(); err == nil {
		t.Error("a missing password file is taken as no password")
	}
}

func TestMisspelledVariablesAreFound(t *testing.T) {
	var g grammar
	parser, _ := newParser(&g, &bytes.Buffer{})
	got := strangers([]string{"STINT_DIR=x", "STINT_DIRR=x", "PATH=x", "STINT_SERVICE_HOST=x", "STINT_PORT=tcp://x", "STINT_PORT_6390_TCP=x", "STINT_MAX_CLIENTS=1"}, optionNames(parser))
	if strings.Join(got, " ") != "STINT_DIRR" {
		t.Errorf("got %q, want STINT_DIRR alone", got)
	}
}

func TestHelpNamesEveryOptionAndCommand(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}} {
		var stdout, stderr bytes.Buffer
		if code := run(&process{args, []string{"STINT_REQUIREPASS=hidden"}, &stdout, &stderr}); code != exitOK || stderr.Len() > 0 {
			t.Fatalf("%q: exit code %d, stderr %q", args, code, stderr.String())
		}
		var g grammar
		parser, _ := newParser(&g, &bytes.Buffer{})
		for _, f := range serverFlags(parser.Model) {
			if !strings.Contains(stdout.String(), "\n  "+flagUsage(f)+"\n") {
				t.Errorf("%q does not show %s", args, flagUsage(f))
			}
		}
		for _, c := range parser.Model.Children {
			if !strings.Contains(stdout.String(), "\n  "+commandUsage(c)+" ") {
				t.Errorf("%q does not show %s", args, commandUsage(c))
			}
		}
		if strings.Contains(stdout.String(), "hidden") {
			t.Errorf("%q shows the password", args)
		}
		for i, line := range strings.Split(stdout.String(), "\n") {
			if len(line) > helpWidth+4 {
				t.Errorf("%q: line %d is %d columns wide", args, i+1, len(line))
			}
		}
	}
}

func TestVersionCommand(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(&process{[]string{"version"}, nil, &stdout, &stderr}); code != exitOK || !strings.HasPrefix(stdout.String(), "stint ") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
}
