package limit

import (
	"bufio"
	"encoding/json"
	"fmt"
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

// TestVectors fails when a reply differs from the oracle's in any digit.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("../testdata/vectors/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			lines := bufio.NewScanner(f)
			lines.Buffer(nil, 1<<20)
			sequences := 0
			for lines.Scan() {
				var v vector
				if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
					t.Fatal(err)
				}
				sequences++
				runVector(t, v)
			}
			if err := lines.Err(); err != nil || sequences == 0 {
				t.Fatalf("%d sequences, %v", sequences, err)
			}
		})
	}
}

func runVector(t *testing.T, v vector) {
	t.Helper()
	s := newSpace()
	for i, step := range v.Steps {
		want := string(step.Reply)
		if strings.HasPrefix(want, "{") {
			want = `"WRONGTYPE"`
			if !strings.Contains(string(step.Reply), "WRONGTYPE") {
				t.Fatalf("%s: unknown error %s", v.Name, step.Reply)
			}
		}
		got, err := json.Marshal(s.command(t, step.At, step.Cmd))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Fatalf("%s, step %d: %q at %d replied %s, want %s", v.Name, i, step.Cmd, step.At, got, want)
		}
	}
}

// command runs one command of a vector.
func (s *space) command(t *testing.T, at int64, cmd []string) any {
	t.Helper()
	name, key := strings.ToUpper(cmd[0]), cmd[1]
	v := s.get(key, at)
	switch name {
	case "TYPE":
		if v == nil {
			return None.String()
		}
		return v.Kind.String()
	case "EXISTS", "DEL":
		if v == nil {
			return 0
		}
		if name == "DEL" {
			delete(s.values, key)
		}
		return 1
	}
	r, err := parse(name, cmd[2:])
	if err != nil {
		t.Fatalf("%q: %v", cmd, err)
	}
	res, ok := s.do(key, r, at)
	if !ok {
		return "WRONGTYPE"
	}
	if name == "CL.THROTTLE" {
		limited, retry := int64(0), int64(-1)
		if res.Allowed == 0 {
			limited, retry = 1, seconds(res.WaitMs)
		}
		return []int64{limited, res.Limit, res.Remaining, retry, seconds(res.ResetMs)}
	}
	return []int64{res.Allowed, res.Limit, res.Remaining, res.WaitMs, res.ResetMs}
}

func seconds(ms int64) int64 {
	if ms < 0 {
		return -1
	}
	return (ms + 999) / 1000
}

// parse reads the arguments that vectors use; they are all correct.
func parse(name string, args []string) (request, error) {
	r := request{cost: 1}
	numbers := func(n int) (out [3]int64, err error) {
		for i := range n {
			v, ok := ParseUnits([]byte(args[i]))
			if !ok {
				return out, fmt.Errorf("number %q", args[i])
			}
			out[i] = v
		}
		args = args[n:]
		return out, nil
	}
	switch name {
	case "THROTTLE", "LEAK":
		n, err := numbers(1)
		if err != nil {
			return r, err
		}
		rate, ok := ParseRate([]byte(args[0]))
		if !ok {
			return r, fmt.Errorf("rate %q", args[0])
		}
		args = args[1:]
		r.kind = KindBucket
		if name == "LEAK" {
			r.kind = KindLeak
		}
		l := BucketLimit{Capacity: n[0], Rate: rate}
		r.limit = l.Params()
		if err := l.Check(); err != nil {
			return r, err
		}
	case "CL.THROTTLE":
		n, err := numbers(3)
		if err != nil {
			return r, err
		}
		r.kind = KindBucket
		l := BucketLimit{Capacity: n[0] + 1, Rate: Rate{Count: n[1], Period: n[2] * second}}
		r.limit = l.Params()
		if err := l.Check(); err != nil {
			return r, err
		}
	case "WINDOW":
		n, err := numbers(1)
		if err != nil {
			return r, err
		}
		period, ok := ParsePeriod([]byte(args[0]))
		if !ok {
			return r, fmt.Errorf("period %q", args[0])
		}
		args = args[1:]
		r.kind = KindSliding
		r.limit = Params{A: n[0], C: period}
	case "REFUND":
		r.refund = true
	default:
		return r, fmt.Errorf("unknown command %q", name)
	}
	for _, arg := range args {
		switch strings.ToUpper(arg) {
		case "PEEK":
			r.mode = Peek
		case "FORCE":
			r.mode = Force
		case "ATMOST":
			r.mode = AtMost
		case "FIXED":
			r.kind = KindFixed
		case "SLIDING":
			r.kind = KindSliding
		case "LOG":
			r.kind = KindLog
		default:
			cost, ok := ParseUnits([]byte(arg))
			if !ok {
				return r, fmt.Errorf("argument %q", arg)
			}
			r.cost = cost
		}
	}
	return r, nil
}
