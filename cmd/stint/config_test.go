package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
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
		return nil, src.explain(usageError(err, args))
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
		{name: "negative size", args: "--max-memory -5", want: `--max-memory: "-5" is not a size: want bytes`},
		{name: "negative size in the file", yaml: "max-memory: -5\n", want: `--max-memory: "-5" is not a size: want bytes`},
		{name: "negative clients", args: "--max-clients -5", want: "--max-clients: \"-5\" is not a whole number: want decimal digits only\n"},
		{name: "a flag for a value", args: "--dir --addr :1", want: "--dir: a value is missing after it"},
		{name: "too little memory", args: "--max-memory 1048575", want: "--max-memory: 1048575 is too small: want at least 1MiB, or 0 for no limit"},
		{name: "no number", args: "--max-clients many", want: "--max-clients: \"many\" is not a whole number: want decimal digits only\n"},
		{name: "no number in the file", yaml: "dir: x\nmax-clients: many\n", want: "--max-clients: \"many\" is not a whole number: want decimal digits only (from %F, line 2)\n"},
		{name: "no clock", args: "--debug-clock 1.5", want: "--debug-clock: \"1.5\" is not a whole number: want decimal digits only\n"},
		{name: "hexadecimal", args: "--max-clients 0x10", want: `--max-clients: "0x10" is not a whole number`},
		{name: "hexadecimal clock", args: "--debug-clock 0x10", want: `--debug-clock: "0x10" is not a whole number`},
		{name: "octal", args: "--max-clients 0o10", want: `--max-clients: "0o10" is not a whole number`},
		{name: "binary", env: "STINT_MAX_CLIENTS=0b11", want: `--max-clients: "0b11" is not a whole number: want decimal digits only (from environment variable STINT_MAX_CLIENTS)`},
		{name: "underscore", args: "--max-clients 1_0", want: `--max-clients: "1_0" is not a whole number`},
		{name: "underscore in the file", yaml: "max-clients: 1_0\n", want: `--max-clients: "1_0" is not a whole number`},
		{name: "sign", args: "--max-clients +5", want: `--max-clients: "+5" is not a whole number`},
		{name: "sign in the file", yaml: "debug-clock: +5\n", want: `--debug-clock: "+5" is not a whole number`},
		{name: "blank", env: "STINT_MAX_CLIENTS= 5", want: `--max-clients: " 5" is not a whole number`},
		{name: "nothing", args: "--max-clients=", want: `--max-clients: "" is not a whole number`},
		{name: "no value for a number", args: "--max-clients --addr :1", want: "--max-clients: a value is missing after it"},
		{name: "too large a number", args: "--debug-clock 9223372036854775808", want: `--debug-clock: "9223372036854775808" is too large a number`},
		{name: "no bool in the file", yaml: "enable-debug-command: perhaps\n", want: "--enable-debug-command: \"perhaps\" is neither true nor false (from %F, line 1)\n"},
		{name: "short flag", args: "-p 6390", want: "stint: unknown flag -p; stint --help shows what there is\n"},
		{name: "near flag", args: "--max-client 5", want: `did you mean "--max-clients"`},
		{name: "inspect nothing", args: "inspect", want: "stint: inspect wants a FILE: stint inspect ./stint-data\n"},
		{name: "backup nothing", args: "backup --dir x", want: "stint: backup wants a FILE: stint backup ./backup.db\n"},
		{name: "help of nothing", args: "help me", want: "there is no command \"me\"; stint --help shows"},
		{name: "file", yaml: "dir: x\nmax-clients: many\n", want: "(from %F, line 2)"},
		{name: "unknown key", yaml: "dir: x\ndirr: y\n", want: `--config: %F: line 2: unknown key "dirr"`},
		{name: "config in the file", yaml: "config: x\n", want: "line 1: unknown key"},
		{name: "twice", yaml: "dir: x\ndir: y\n", want: "twice"},
		{name: "a list for one", yaml: "dir: [x, y]\n", want: "--dir: a single value is wanted, not a list (from %F, line 1)"},
		{name: "a list of one for one", yaml: "interval: [1]\n", want: "--interval: a single value is wanted, not a list (from %F, line 1)"},
		{name: "a block list of one for one", yaml: "dir: x\nrequirepass:\n  - x\n", want: "--requirepass: a single value is wanted, not a list (from %F, line 2)"},
		{name: "a list by an alias", yaml: "addr: &a [':1']\ndir: *a\n", want: "--dir: a single value is wanted, not a list (from %F, line 2)"},
		{name: "an empty list", yaml: "addr: []\n", want: "line 1: addr: a value is wanted"},
		{name: "null in a list", yaml: "addr: [':1', null]\n", want: "a list may hold single values only"},
		{name: "a mapping for one", yaml: "dir: {x: y}\n", want: "line 1: dir: a value is wanted"},
		{name: "null", yaml: "dir:\n", want: "line 1: dir: a value is wanted"},
		{name: "a list of lists", yaml: "addr: [[x]]\n", want: "a list may hold single values only"},
		{name: "not a mapping", yaml: "- dir\n", want: "line 1: want options"},
		{name: "two documents", yaml: "dir: x\n---\ndir: y\n", want: "one YAML document"},
		{name: "not YAML", yaml: "dir: x\n\ty", want: "not YAML: line 2"},
		{name: "no such file", args: "--config /not/there", want: "--config: the file cannot be read"},
		{name: "a level that is none", args: "--durability paranoid", want: "not one of none, interval, strict"},
		{name: "durability", args: "--durability always", want: `"always" is not one of none, interval`},
		{name: "protected mode", args: "--protected-mode maybe", want: `"maybe" is not one of yes, no`},
		{name: "log format", args: "--log-format xml", want: `"xml" is not one of text, json`},
		{name: "log level in capitals", args: "--log-level LOUD", want: `"LOUD" is not one of debug, info, warn, error`},
		{name: "strict is the only level in a cluster", args: "--node-id a --raft-addr 127.0.0.1:7000 --durability INTERVAL", want: "have strict"},
		{name: "a node without a name", args: "--raft-addr 127.0.0.1:7000", want: "needs a name"},
		{name: "a name with a dot", args: "--raft-addr 127.0.0.1:7000 --node-id a.b", want: "is no name"},
		{name: "an address for all", args: "--raft-addr 0.0.0.0:7000 --node-id a --raft-insecure", want: "others cannot connect to"},
		{name: "open to others", args: "--raft-addr 0.0.0.0:7000 --raft-advertise 10.0.0.1:7000 --node-id a", want: "has no password"},
		{name: "too few to found", args: "--raft-addr 127.0.0.1:7000 --node-id a --join 127.0.0.1:7000 --bootstrap-expect 3", want: "lists 1"},
		{name: "founds without itself", args: "--raft-addr 127.0.0.1:7000 --node-id a --join 127.0.0.1:7001 --bootstrap-expect 1", want: "own address"},
		{name: "a cluster without a port", args: "--node-id a", want: "give --raft-addr"},
		{name: "half of TLS", args: "--raft-addr 127.0.0.1:7000 --node-id a --raft-tls-cert c", want: "belong together"},
		{name: "too hasty", args: "--election-timeout 1ms", want: "election-timeout"},
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
		{name: "clock", args: "--debug-clock=-1", want: `"-1" is not a whole number`},
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
		"--max-output 1MiB", "--max-memory 0", "--max-memory 1MiB", "--max-memory 1.5GiB", "--max-memory 2G", "--debug-clock 0", "--debug-clock 4611686018427387903", "--addr :0", "--addr [::1]:65535",
		"--addr unix:/" + strings.Repeat("x", 102), "--dir= --durability none",
	} {
		if _, err := parse(t, nil, strings.Fields(args)...); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// A zero before a number is a habit of people who align columns; nobody means
// base 8 by it.
func TestNumbersAreDecimal(t *testing.T) {
	path := file(t, "s.yaml", "debug-clock: 010\n")
	c, err := parse(t, nil, "--max-clients", "010", "--config", path)
	if err != nil || c.MaxClients != 10 || *c.DebugClock != 10 {
		t.Errorf("010 is read as %+v, %v", c, err)
	}
}

func TestWordsMayComeInAnyCase(t *testing.T) {
	c, err := parse(t, []string{"STINT_DURABILITY=None"}, "--log-level", "WARN", "--log-format", "Json", "--protected-mode", "NO")
	if err != nil {
		t.Fatal(err)
	}
	if c.LogLevel != "warn" || c.LogFormat != "json" || c.ProtectedMode != "no" || c.Durability != "none" {
		t.Errorf("got %+v", c)
	}
}

func TestSizesAreWrittenAsTheyAreRead(t *testing.T) {
	for size, want := range map[Size]string{0: "0", 7: "7", 1: "1", 1 << 20: "1MiB", 512 << 20: "512MiB", 3 << 29: "1536MiB", 1e9: "1GB", 2e12: "2TB", 1500: "1500", 1<<63 - 1: "9223372036854775807"} {
		if size.String() != want {
			t.Errorf("%d is written %q, want %q", int64(size), size, want)
		}
		var again Size
		if err := again.UnmarshalText([]byte(size.String())); err != nil || again != size {
			t.Errorf("%q is read as %d, %v", size, int64(again), err)
		}
	}
	if err := new(Size).UnmarshalText([]byte("1XB")); err == nil {
		t.Error("1XB is a size")
	}
}

func TestDurationsAreWrittenAsTheyAreRead(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0", time.Second: "1s", time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Second: "10s", 5 * time.Minute: "5m"} {
		if got := Duration(d).String(); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
		var again Duration
		if err := again.UnmarshalText([]byte(want)); err != nil || time.Duration(again) != d {
			t.Errorf("%q is read as %v, %v", want, again, err)
		}
	}
	if err := new(Duration).UnmarshalText([]byte("1x")); err == nil {
		t.Error("1x is a duration")
	}
}

func TestPasswordFile(t *testing.T) {
	for text, want := range map[string]string{"\ufeffsecret\n": "secret", "se\ufeffcret": "se\ufeffcret", "secret": "secret", "secret\n": "secret", "se cret \r\nmore\n": "se cret "} {
		c := Config{RequirepassFile: file(t, "pass", text)}
		if got, err := c.Password(); err != nil || got != want {
			t.Errorf("%q gives %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{"\ufeff\nsecret": "is empty", "": "is empty", "\nsecret": "is empty", strings.Repeat("secret", 1000): "longer than"} {
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

// TestThePasswordFileIsReadAsFarAsItsPasswordGoes, whatever follows: the file
// may be a device that has no end.
func TestThePasswordFileIsReadAsFarAsItsPasswordGoes(t *testing.T) {
	longest := strings.Repeat("p", maxPassword)
	for _, text := range []string{longest, longest + "\n", byteOrderMark + longest + "\r\n" + longest} {
		c := Config{RequirepassFile: file(t, "pass", text)}
		if got, err := c.Password(); err != nil || got != longest {
			t.Errorf("a file of %d bytes gives a password of %d bytes, %v", len(text), len(got), err)
		}
	}
	if runtime.GOOS == "windows" {
		return // has no such device
	}
	if _, err := (&Config{RequirepassFile: "/dev/zero"}).Password(); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("/dev/zero gives %v", err)
	}
}

func TestMisspelledVariablesAreFound(t *testing.T) {
	var g grammar
	parser, _ := newParser(&g, &bytes.Buffer{})
	got := strangers([]string{"STINT_DIR=x", "STINT_DIRR=x", "PATH=x", "STINT_SERVICE_HOST=x", "STINT_PORT=tcp://x", "STINT_PORT_6390_TCP=x", "STINT_MAX_CLIENTS=1", "STINT_KEYS=true"}, anyOption(parser))
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

func TestVersionIsACommandAndAFlag(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}, {"-v"}, {"--version", "inspect"}} {
		var stdout, stderr bytes.Buffer
		environ := []string{"STINT_VERSION=x", "STINT_HELP=x"} // which are no options
		code := run(&process{args, environ, &stdout, &stderr})
		if code != exitOK || !strings.HasPrefix(stdout.String(), "stint ") || strings.Count(stdout.String(), "\n") != 1 || stderr.Len() > 0 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, stdout.String(), stderr.String())
		}
	}
}

func TestHelpIsACommandToo(t *testing.T) {
	help := func(args ...string) string {
		var stdout, stderr bytes.Buffer
		if code := run(&process{args, nil, &stdout, &stderr}); code != exitOK || stderr.Len() > 0 || stdout.Len() == 0 {
			t.Errorf("%q: exit code %d, stderr %q", args, code, stderr.String())
		}
		return stdout.String()
	}
	for _, x := range []struct{ command, flag []string }{
		{[]string{"help"}, []string{"--help"}},
		{[]string{"help", "serve"}, []string{"--help"}},
		{[]string{"help", "inspect"}, []string{"inspect", "--help"}},
		{[]string{"help", "help"}, []string{"help", "--help"}},
	} {
		if help(x.command...) != help(x.flag...) {
			t.Errorf("%q is not %q", x.command, x.flag)
		}
	}
	for _, want := range []string{"SIGTERM or SIGINT", "--version"} {
		if !strings.Contains(help("help"), want) {
			t.Errorf("the help does not tell of %s", want)
		}
	}
}
