package engine

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// vector is a sequence of commands with the replies of an oracle that
// calculates in exact rationals.
type vector struct {
	Name  string
	Steps []struct {
		At    int64 `json:"at_ns"`
		Cmd   []string
		Reply json.RawMessage
	}
}

func readVectors(t *testing.T, visit func(vector)) {
	t.Helper()
	files, err := filepath.Glob("testdata/vectors/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	sequences := 0
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var v vector
			if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
				t.Fatal(err)
			}
			sequences++
			visit(v)
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if sequences != 640 {
		t.Fatalf("%d sequences, want 640", sequences)
	}
}

// step runs step i of v and compares the reply.
func (v *vector) step(t *testing.T, ks *Keyspace, i int) {
	t.Helper()
	v.stepOn(t, ks.Begin(v.Steps[i].At), i)
}

// stepOn is step with a transaction of the caller's.
func (v *vector) stepOn(t *testing.T, tx *Tx, i int) {
	t.Helper()
	s := v.Steps[i]
	want := string(s.Reply)
	if strings.HasPrefix(want, "{") {
		want = `"WRONGTYPE"`
		if !strings.Contains(string(s.Reply), "WRONGTYPE") {
			t.Fatalf("%s: unknown error %s", v.Name, s.Reply)
		}
	}
	got, err := json.Marshal(command(t, tx, s.Cmd))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Fatalf("%s, step %d: %q at %d replied %s, want %s", v.Name, i, s.Cmd, s.At, got, want)
	}
}

// TestVectors fails when a reply differs from the oracle's in any digit,
// whether full buckets are swept or not.
func TestVectors(t *testing.T) {
	for name, sweep := range map[string]bool{"never swept": false, "always swept": true} {
		t.Run(name, func(t *testing.T) {
			readVectors(t, func(v vector) {
				ks := newKeyspace(t, Options{Shards: 4})
				for i := range v.Steps {
					v.step(t, ks, i)
					for sweep && ks.Sweep(4) {
					}
				}
			})
		})
	}
}

// TestVectorsWithRestarts fails when a reply depends on whether the state was
// drained, and loaded by another keyspace, in between: by cuts alone, and by
// a dump with the cuts that began since.
func TestVectorsWithRestarts(t *testing.T) {
	t.Run("cuts", func(t *testing.T) {
		readVectors(t, func(v vector) {
			ks := newKeyspace(t, Options{Shards: 2, Track: true})
			var chunks [][]byte
			for i := range v.Steps {
				v.step(t, ks, i)
				if i%3 == 0 {
					c := ks.Cut()
					chunks = append(chunks, drain(c, 50)...)
					if i%2 == 0 {
						ks = restore(t, c.Latest(), chunks)
					}
				}
			}
		})
	})
	t.Run("dumps", func(t *testing.T) {
		readVectors(t, func(v vector) {
			ks := newKeyspace(t, Options{Shards: 2, Track: true})
			drain(ks.Cut(), 1)
			d := ks.Dump()
			var base, deltas [][]byte
			for i, more := 0, true; i < len(v.Steps); i++ {
				v.step(t, ks, i)
				var chunk []byte
				if more {
					chunk, more = d.Append(nil, 1)
					base = append(base, chunk)
				}
				c := ks.Cut()
				deltas = append(deltas, drain(c, 50)...)
				if !more && i%5 == 4 {
					ks = restore(t, c.Latest(), append(base, deltas...))
					d, more = ks.Dump(), true
					base, deltas = nil, nil
				}
			}
		})
	})
}
