//go:build unix

package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// redisCLI stands in for redis-cli where it is not installed, and makes an
// installed one write what it shows on a terminal. It speaks over bash's own
// sockets and writes replies of RESP2 as redis-cli does, one that is nested
// beneath the number of its element.
const redisCLI = `
reply() { # $1: what stands before each line but the first
  local line item n i head
  IFS= read -r line <&4; line=${line%$'\r'}
  case $line in
    :*) echo "(integer) ${line:1}" ;;
    +*) echo "${line:1}" ;;
    -*) echo "(error) ${line:1}" ;;
    '$-1') echo "(nil)" ;;
    \$*) n=${line:1}; IFS= read -r -N "$n" item <&4; IFS= read -r line <&4; echo "\"$item\"" ;;
    \*0) echo "(empty array)" ;;
    \**)
      n=${line:1}
      for ((i = 1; i <= n; i++)); do
        printf -v head "%${#n}d) " $i
        if ((i > 1)); then printf '%s' "$1"; fi
        printf '%s' "$head"
        reply "$1${head//?/ }"
      done ;;
    *) echo "unexpected: $line"; return 1 ;;
  esac
}
redis-cli() {
  if type -P redis-cli >/dev/null && test -z "${NO_REDIS_CLI-}"; then command redis-cli --no-raw "$@"; return; fi
  shift 2
  exec 4<>/dev/tcp/127.0.0.1/$PORT
  printf '%s\r\n' "$*" >&4
  reply ""
  exec 4>&-
}
`

var fence = regexp.MustCompile("(?ms)^```(sh|text|go)\n(.*?)^```$")

// blocks are the fenced blocks of a document of the repository that the tests
// read: the language and the text of each.
func blocks(t *testing.T, path string) [][]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return fence.FindAllStringSubmatch(string(data), -1)
}

// script is bash running text at the root of the repository, with the port of
// the documents replaced by the server's.
func script(t *testing.T, text, port string, env []string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "bash", "-euc", redisCLI+strings.ReplaceAll(text, "6390", port))
	cmd.Dir, cmd.Env = "../../..", append(env, "PORT="+port)
	// In a group of its own, so that make and the server end together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// A time that a document shows was measured in another run. Those of at least
// minute ms may be off by as much as slack: the commands of a block take a
// while, and a bucket refills meanwhile.
const (
	minute = 50_000
	slack  = 10_000
)

var integerLine = regexp.MustCompile(`^(.*\(integer\) )(\d+)$`)

// shows says whether the output begins with what a document shows, line by
// line. A line with … stands for what begins like it.
func shows(shown, output string) bool {
	got := strings.Split(strings.ReplaceAll(output, "\r", ""), "\n")
	for i, want := range strings.Split(strings.TrimSuffix(shown, "\n"), "\n") {
		if i >= len(got) {
			return false
		}
		if before, _, found := strings.Cut(want, "…"); found && strings.HasPrefix(got[i], before) || want == got[i] {
			continue
		}
		w, g := integerLine.FindStringSubmatch(want), integerLine.FindStringSubmatch(got[i])
		if w == nil || g == nil || w[1] != g[1] {
			return false
		}
		wn, _ := strconv.Atoi(w[2])
		gn, _ := strconv.Atoi(g[2])
		if wn < minute || gn < wn-slack || gn > wn+slack {
			return false
		}
	}
	return true
}

func TestShows(t *testing.T) {
	for _, c := range []struct {
		shown, output string
		want          bool
	}{
		{"+OK\n", "+OK\r\n", true},
		{"+OK\n", "+OKAY\r\n", false},
		{"a\n", "a\nb\n", true},
		{"a\nb\n", "a\n", false},
		{"5) (integer) …\n", "5) (integer) 17\n", true},
		{"5) (integer) …\n", "4) (integer) 17\n", false},
		{"1) (integer) 600\n", "1) (integer) 601\n", false},
		{"1) (integer) 3600000\n", "1) (integer) 3599000\n", true},
		{"1) (integer) 3600000\n", "2) (integer) 3600000\n", false},
		{"1) (integer) 3600000\n", "1) (integer) 3580000\n", false},
		{"1) (integer) 3600000\n", "1) (integer) 3620000\n", false},
	} {
		if got := shows(c.shown, c.output); got != c.want {
			t.Errorf("shows(%q, %q) is %v", c.shown, c.output, got)
		}
	}
}

// runBlocks runs the sh blocks in order and compares the text block after each
// with its output, by the function given. run runs one block. It returns how
// many were run and compared.
func runBlocks(t *testing.T, list [][]string, equal func(shown, output string) bool, run func(text string) string) (ran, compared int) {
	t.Helper()
	output := ""
	for _, b := range list {
		switch kind, text := b[1], b[2]; kind {
		case "text":
			if !equal(text, output) {
				t.Errorf("the document shows\n%s\nbut it is\n%s", text, output)
			}
			compared++
		case "sh":
			output = run(text)
			ran++
		}
	}
	return ran, compared
}

// TestReadmeCommands runs every sh block of the README in order, in bash, with
// the server that the block `make run` starts.
func TestReadmeCommands(t *testing.T) {
	// A port that is free now; make run passes it to the server.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	l.Close()
	env := append(cleanEnv(), "STINT_ADDR="+addr, "STINT_DIR="+t.TempDir())

	// The Makefile of the test must not think it runs within another make.
	for i, kv := range env {
		if strings.HasPrefix(kv, "MAKEFLAGS=") || strings.HasPrefix(kv, "MFLAGS=") || strings.HasPrefix(kv, "MAKELEVEL=") {
			env[i] = "UNUSED="
		}
	}
	ran, compared := runBlocks(t, blocks(t, "README.md"), shows, func(text string) string {
		if strings.TrimSpace(text) != "make run" {
			out, err := script(t, text, port, env).CombinedOutput()
			if err != nil || strings.Contains(string(out), "ERR") {
				t.Errorf("%s: %v\n%s", text, err, out)
			}
			return string(out)
		}
		run := script(t, text, port, env)
		var out strings.Builder
		run.Stdout, run.Stderr = &out, &out
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = syscall.Kill(-run.Process.Pid, syscall.SIGTERM)
			_ = run.Wait()
			if !strings.Contains(out.String(), "To try it:") || !strings.Contains(out.String(), "msg=listening") {
				t.Errorf("make run does not tell how to try it, or does not listen:\n%s", out.String())
			}
		})
		eventually(t, 2*time.Minute, "the server of make run listens", func() bool {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
		return ""
	})
	if ran < 5 || compared < 4 {
		t.Errorf("%d blocks were run and %d compared, want at least 5 and 4", ran, compared)
	}
}

// TestDocumentedCommands runs the sh blocks of the reference against a server
// whose clock stands still where the document says, and compares every reply
// to the digit: once as redis-cli shows them, once without it.
func TestDocumentedCommands(t *testing.T) {
	exactly := func(shown, output string) bool { return shown == output }
	for _, c := range []struct {
		doc   string
		least int // blocks that show their output
	}{
		{"docs/limits.md", 10},
		{"docs/clients.md", 1},
	} {
		for _, without := range []string{"", "NO_REDIS_CLI=1"} {
			t.Run(c.doc+" "+without, func(t *testing.T) {
				s := start(t, "--durability", "none", "--enable-debug-command", "--debug-clock", "1893501000000000000")
				_, port, _ := net.SplitHostPort(s.Addr)
				env := append(cleanEnv(), without)
				ran, compared := runBlocks(t, blocks(t, c.doc), exactly, func(text string) string {
					out, err := script(t, text, port, env).CombinedOutput()
					if err != nil {
						t.Errorf("%s: %v\n%s", text, err, out)
					}
					return string(out)
				})
				if ran < c.least || compared < c.least {
					t.Errorf("%d blocks were run and %d compared, want at least %d", ran, compared, c.least)
				}
			})
		}
	}
}

// TestDocumentedPrograms compiles the Go programs of the documents: those that
// begin with a package clause.
func TestDocumentedPrograms(t *testing.T) {
	for _, c := range []struct {
		doc   string
		least int
	}{
		{"README.md", 1},
		{"docs/clients.md", 3},
		{"docs/engine.md", 1},
	} {
		n := 0
		for _, b := range blocks(t, c.doc) {
			if b[1] != "go" || !strings.HasPrefix(b[2], "package ") {
				continue
			}
			n++
			file := filepath.Join(t.TempDir(), "main.go")
			if err := os.WriteFile(file, []byte(b[2]), 0o644); err != nil {
				t.Fatal(err)
			}
			// Imports are those of this module, in whose folder it runs.
			if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s\n%s", c.doc, err, out, b[2])
			}
			if out, err := exec.Command("gofmt", "-l", file).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s: a program is not formatted by gofmt: %v\n%s", c.doc, err, b[2])
			}
		}
		if n < c.least {
			t.Errorf("%s has %d programs, want at least %d", c.doc, n, c.least)
		}
	}
}

// TestDocumentedInfoFields looks up each field of the tables of docs/info.md in
// what the server replies.
func TestDocumentedInfoFields(t *testing.T) {
	data, err := os.ReadFile("../../../docs/info.md")
	if err != nil {
		t.Fatal(err)
	}
	info, ok := start(t).Dial().Do("INFO").(string)
	if !ok {
		t.Fatal("INFO replies no text")
	}
	n := 0
	for row := range strings.Lines(string(data)) {
		if !strings.HasPrefix(row, "| `") {
			continue
		}
		field, _, _ := strings.Cut(row[2:], " |")
		for _, name := range regexp.MustCompile("`[a-z_]+`").FindAllString(field, -1) {
			name = strings.Trim(name, "`")
			n++
			if !strings.Contains(info, "\n"+name+":") {
				t.Errorf("INFO has no %s", name)
			}
		}
	}
	if n < 35 {
		t.Errorf("%d fields are documented, want at least 35", n)
	}
}
