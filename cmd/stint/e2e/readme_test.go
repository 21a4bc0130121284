//go:build unix

package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// redisCLI stands in for redis-cli where it is not installed, and makes an
// installed one write what it shows on a terminal. It speaks over bash's own
// sockets and knows what the README's replies are made of.
const redisCLI = `
redis-cli() {
  if type -P redis-cli >/dev/null; then command redis-cli --no-raw "$@"; return; fi
  shift 2
  exec 4<>/dev/tcp/127.0.0.1/$PORT
  printf '%s\r\n' "$*" >&4
  IFS= read -r line <&4; line=${line%$'\r'}
  case $line in
    :*) echo "(integer) ${line:1}" ;;
    \**) for ((i = 1; i <= ${line:1}; i++)); do IFS= read -r item <&4; item=${item%$'\r'}; echo "$i) (integer) ${item:1}"; done ;;
    *) echo "unexpected: $line"; return 1 ;;
  esac
  exec 4>&-
}
`

var fence = regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$")

// TestReadmeCommands runs every sh block of the README in order, in bash, with
// the server that the block `make run` starts. A text block after it is how
// the output must begin.
func TestReadmeCommands(t *testing.T) {
	data, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	// A port that is free now; make run passes it to the server.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	l.Close()
	env := append(cleanEnv(), "STINT_ADDR="+addr, "STINT_DIR="+t.TempDir(), "PORT="+port)

	// The Makefile of the test must not think it runs within another make.
	for i, kv := range env {
		if strings.HasPrefix(kv, "MAKEFLAGS=") || strings.HasPrefix(kv, "MFLAGS=") || strings.HasPrefix(kv, "MAKELEVEL=") {
			env[i] = "UNUSED="
		}
	}
	bash := func(script string) *exec.Cmd {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		t.Cleanup(cancel)
		cmd := exec.CommandContext(ctx, "bash", "-euc", redisCLI+strings.ReplaceAll(script, "6390", port))
		cmd.Dir, cmd.Env = "../../..", env
		// In a group of its own, so that make and the server end together.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		return cmd
	}
	blocks := fence.FindAllStringSubmatch(string(data), -1)
	ran, compared, output := 0, 0, ""
	for _, b := range blocks {
		kind, text := b[1], b[2]
		switch {
		case kind == "text":
			if !strings.HasPrefix(strings.ReplaceAll(output, "\r", ""), text) {
				t.Errorf("the README shows\n%s\nbut it is\n%s", text, output)
			}
			compared++
		case strings.TrimSpace(text) == "make run":
			run := bash(text)
			var out strings.Builder
			run.Stdout, run.Stderr = &out, &out
			if err := run.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = syscall.Kill(-run.Process.Pid, syscall.SIGTERM)
				_ = run.Wait()
				if !strings.Contains(out.String(), "To try it:") || !strings.Contains(out.String(), "msg=listening") {
					t.Errorf("make run does not tell how to try it, or does not listen:\n%s", out.String())
				}
			}()
			eventually(t, 2*time.Minute, "the server of make run listens", func() bool {
				c, err := net.Dial("tcp", addr)
				if err == nil {
					c.Close()
				}
				return err == nil
			})
			ran++
		default:
			out, err := bash(text).CombinedOutput()
			if err != nil || strings.Contains(string(out), "ERR") {
				t.Errorf("%s: %v\n%s", text, err, out)
			}
			output = string(out)
			ran++
		}
	}
	if ran < 5 || compared < 3 {
		t.Errorf("%d blocks were run and %d compared, want at least 5 and 3", ran, compared)
	}
}
