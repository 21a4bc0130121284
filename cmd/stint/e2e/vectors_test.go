//go:build unix

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// sequence is one line of a file of vectors: commands at absolute times with
// the replies of an oracle in exact rationals.
type sequence struct {
	Name  string
	Steps []struct {
		AtNs  int64 `json:"at_ns"`
		Cmd   []string
		Reply any
	}
}

// sequences reads a file of vectors.
func sequences(t *testing.T, path string) []sequence {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []sequence
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s sequence
		dec := json.NewDecoder(strings.NewReader(lines.Text()))
		dec.UseNumber() // a float64 does not hold every integer of a reply
		if err := dec.Decode(&s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// vectorFiles are the files of vectors that the engine's tests use too.
func vectorFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../../engine/testdata/vectors/*.jsonl")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files of vectors, %v; want at least 8", len(files), err)
	}
	return files
}

// wire is a reply of a vector as the raw reader gives it.
func wire(v any) any {
	switch v := v.(type) {
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			panic(err)
		}
		return n
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = wire(v[i])
		}
		return all
	}
	return v
}

// run sends the steps from up to but without to as one pipeline, each after
// the clock was set, and compares the replies.
func (s *sequence) run(t *testing.T, c *Conn, from, to int) {
	t.Helper()
	var b strings.Builder
	for _, step := range s.Steps[from:to] {
		b.WriteString(command("DEBUG", "CLOCK", strconv.FormatInt(step.AtNs, 10)))
		b.WriteString(command(step.Cmd...))
	}
	c.Raw(b.String())
	for i := from; i < to; i++ {
		expect(t, c.Reply(), "OK")
		got := c.Reply()
		if m, ok := s.Steps[i].Reply.(map[string]any); ok {
			if e, ok := got.(Error); !ok || !strings.HasPrefix(string(e), m["error"].(string)) {
				t.Fatalf("%s, step %d, %q: got %#v, want an error that begins with %v", s.Name, i, s.Steps[i].Cmd, got, m["error"])
			}
			continue
		}
		if want := wire(s.Steps[i].Reply); fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
			t.Fatalf("%s, step %d, %q: got %v, want %v", s.Name, i, s.Steps[i].Cmd, got, want)
		}
	}
}

func TestVectorsOverTheWire(t *testing.T) {
	for _, proto := range []string{"2", "3"} {
		s := start(t, "--enable-debug-command", "--durability", "none")
		c := s.Dial()
		c.Do("HELLO", proto)
		n := 0
		for _, file := range vectorFiles(t) {
			for _, seq := range sequences(t, file) {
				expect(t, c.Do("DEBUG", "RESET"), "OK")
				seq.run(t, c, 0, len(seq.Steps))
				n++
			}
		}
		if n < 640 {
			t.Errorf("%d sequences, want 640", n)
		}
	}
}

// TestVectorsGoOnAfterARestart runs every sequence with the server restarted
// in its middle: by turns stopped in order, and killed after a SAVE.
func TestVectorsGoOnAfterARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, "--dir", dir, "--enable-debug-command", "--interval", "1h")
	n := 0
	for _, file := range vectorFiles(t) {
		for _, seq := range sequences(t, file) {
			c := s.Dial()
			expect(t, c.Do("DEBUG", "RESET"), "OK")
			middle := len(seq.Steps) / 2
			seq.run(t, c, 0, middle)
			if n++; n%2 == 0 {
				s.Stop()
			} else {
				expect(t, c.Do("SAVE"), "OK")
				s.Kill()
			}
			c.Close()
			s = start(t, "--dir", dir, "--enable-debug-command", "--interval", "1h",
				"--debug-clock", strconv.FormatInt(seq.Steps[middle].AtNs, 10))
			seq.run(t, s.Dial(), middle, len(seq.Steps))
		}
	}
	if n < 640 {
		t.Errorf("%d sequences, want 640", n)
	}
}
