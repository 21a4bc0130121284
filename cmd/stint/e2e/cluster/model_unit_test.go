//go:build unix

package cluster

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// epoch is a time for tests: not near the border of any window used here.
const epoch = int64(1_800_000_000_000_000_000) + 500e6

// story is a history of operations that were called one after the other. at is ms
// since the epoch.
type story struct {
	on  *subject
	ops []porcupine.Operation
}

func (s *story) add(v verb, cost, at int64, reply ...int64) *story {
	r := result{known: true, stamp: s.on.epoch + at*1e6}
	if len(reply) == 1 {
		r.n = reply[0]
	} else {
		copy(r.five[:], reply)
	}
	i := int64(len(s.ops))
	s.ops = append(s.ops, porcupine.Operation{Input: call{s.on, v, cost}, Output: r, Call: 2 * i, Return: 2*i + 1})
	return s
}

func (s *story) unknown(v verb, cost int64) *story {
	i := int64(len(s.ops))
	s.ops = append(s.ops, porcupine.Operation{Input: call{s.on, v, cost}, Output: result{}, Call: 2 * i, Return: math.MaxInt64})
	return s
}

func (s *story) linearizable() bool { return porcupine.CheckOperations(modelOf(s.on.kind), s.ops) }

func TestTheModelsRejectWhatCannotBe(t *testing.T) {
	b := func() *story {
		return &story{on: &subject{key: "b", kind: bucket, capacity: 10, count: 1, period: 1e9, epoch: epoch}}
	}
	f := func() *story {
		return &story{on: &subject{key: "f", kind: fixed, capacity: 3, period: 60e9, epoch: epoch}}
	}
	s := func() *story {
		return &story{on: &subject{key: "s", kind: sliding, capacity: 4, period: 1e9, epoch: epoch}}
	}
	// The first three units of the bucket are gone at once.
	b3 := func() *story { return b().add(take, 3, 0, 1, 10, 7, 0, 3000) }
	f2 := func() *story { return f().add(take, 2, 0, 1, 3, 1, 0, 59500) }
	for _, c := range []struct {
		what string
		is   bool
		s    *story
	}{
		{"units come back at the rate", true, b3().add(peek, 1, 1500, 1, 10, 8, 0, 1500)},
		{"units come back too early", false, b3().add(peek, 1, 1500, 1, 10, 9, 0, 1500)},
		{"a refusal says when", true, b3().add(take, 8, 0, 0, 10, 7, 1000, 3000)},
		{"a refusal without need", false, b3().add(take, 7, 0, 0, 10, 7, 1000, 3000)},
		{"a cost above the capacity", true, b3().add(take, 11, 0, 0, 10, 7, -1, 3000)},
		{"acknowledged units are lost", false, b3().add(take, 3, 10, 1, 10, 4, 0, 5990).add(peek, 1, 20, 1, 10, 7, 0, 2980)},
		{"time runs back below what is stored", false, b3().add(take, 1, 100, 1, 10, 6, 0, 3900).add(peek, 1, 50, 1, 10, 6, 0, 3950)},
		{"time runs back below a read", true, b3().add(peek, 1, 100, 1, 10, 7, 0, 2900).add(peek, 1, 50, 1, 10, 7, 0, 2950)},
		{"the unknown has happened", true, b3().unknown(take, 2).add(peek, 1, 10, 1, 10, 5, 0, 4990)},
		{"the unknown has not happened", true, b3().unknown(take, 2).add(peek, 1, 10, 1, 10, 7, 0, 2990)},
		{"the unknown happens between reads", true, b3().unknown(take, 2).add(peek, 1, 10, 1, 10, 7, 0, 2990).add(peek, 1, 20, 1, 10, 5, 0, 4980)},
		{"the unknown happens and unhappens", false, b3().unknown(take, 2).add(peek, 1, 10, 1, 10, 5, 0, 4990).add(peek, 1, 20, 1, 10, 7, 0, 2980)},
		{"the unknown happens twice", false, b3().unknown(take, 2).add(peek, 1, 10, 1, 10, 3, 0, 6990)},
		{"after the unknown in a full bucket all is allowed", true, b3().unknown(take, 2).add(peek, 1, 4000, 1, 10, 9, 0, 1000)},
		{"the unknown deletes", true, b3().unknown(remove, 0).add(exists, 0, 0, 1).add(exists, 0, 0, 0)},
		{"what is deleted exists", false, b3().add(remove, 0, 0, 1).add(exists, 0, 0, 1)},
		{"what is there is not deleted", false, b3().add(remove, 0, 0, 0)},
		{"a full bucket is none", true, b3().add(exists, 0, 3000, 0)},

		{"a window fills", true, f2().add(take, 1, 10, 1, 3, 0, 0, 59490).add(take, 1, 10, 0, 3, 0, 59490, 59490)},
		{"a window overflows", false, f2().add(take, 2, 10, 1, 3, -1, 0, 59490)},
		{"the next window is empty", true, f2().add(peek, 1, 59500, 1, 3, 3, 0, 0)},
		{"the next window is not yet there", false, f2().add(peek, 1, 59499, 1, 3, 3, 0, 0)},
		{"the unknown in a window", true, f2().unknown(take, 1).add(take, 1, 10, 0, 3, 0, 59490, 59490)},
		{"too much unknown in a window", false, f2().unknown(take, 2).add(peek, 1, 10, 1, 3, -1, 0, 59490)},
		{"after the unknown in another window all is allowed", true, f2().unknown(take, 1).add(take, 1, 59500, 1, 3, 1, 0, 60000)},

		{"the window before fades", true, s().add(take, 4, 0, 1, 4, 0, 0, 1500).add(take, 1, 600, 0, 4, 0, 150, 900)},
		{"the window before fades too early", false, s().add(take, 4, 0, 1, 4, 0, 0, 1500).add(take, 1, 600, 1, 4, 0, 0, 1900)},
	} {
		if got := c.s.linearizable(); got != c.is {
			t.Errorf("%s: linearizable: %v, want %v", c.what, got, c.is)
		}
	}
}

func TestConcurrentCallsAreOrderedByTheirAnswers(t *testing.T) {
	s := &story{on: &subject{key: "b", kind: bucket, capacity: 2, count: 1, period: 3600e9, epoch: epoch}}
	s.add(take, 1, 0, 1, 2, 0, 0, 7200000).add(take, 1, 0, 1, 2, 1, 0, 3600000)
	if s.linearizable() {
		t.Error("calls one after the other in the wrong order were accepted")
	}
	for i := range s.ops {
		s.ops[i].Call, s.ops[i].Return = 0, 10
	}
	if !s.linearizable() {
		t.Error("concurrent calls in the order of their answers were refused")
	}
}

// TestTheModelsAgreeWithTheServer runs random commands one after the other on a
// single node whose clock the test moves: each model must accept all answers, and
// must refuse them when one number is changed.
func TestTheModelsAgreeWithTheServer(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	n := &node{t: t, name: "n1", program: mustProgram(t), dir: t.TempDir(), addr: freeAddr(t)}
	n.startAlone("--durability", "none")
	t.Cleanup(n.kill)
	eventually(t, patience, "the server answers", func() bool { _, err := n.ask("PING"); return err == nil })
	w := &wire{addr: n.addr}
	defer w.close()
	now := epoch // it never runs back: the server would not follow
	for _, on := range []*subject{
		{key: "bucket", kind: bucket, capacity: 20, count: 7, period: 250e6},
		{key: "fixed", kind: fixed, capacity: 20, period: 1700e6},
		{key: "sliding", kind: sliding, capacity: 20, period: 1300e6},
	} {
		on.epoch = epoch
		s := &story{on: on}
		for range 2000 {
			now += r.Int64N(2) * r.Int64N(400e6)
			c := call{on, take, 1 + r.Int64N(12)}
			switch r.IntN(12) {
			case 0, 1, 2:
				c.verb = peek
			case 3:
				c.verb = exists
			case 4:
				if r.IntN(4) == 0 {
					c.verb = remove
				}
			case 5:
				c.cost = 21
			}
			replies, o, err := w.do(10*time.Second, []string{"DEBUG", "CLOCK", strconv.FormatInt(now, 10)}, c.on.command(c.verb, c.cost))
			if o != decided || len(replies) != 2 {
				t.Fatal(o, err, replies)
			}
			got, ok := parse(c, []any{replies[1], now})
			if !ok {
				t.Fatalf("%s: %v", describe(c, got), replies)
			}
			i := int64(len(s.ops))
			s.ops = append(s.ops, porcupine.Operation{Input: c, Output: got, Call: 2 * i, Return: 2*i + 1})
		}
		if !s.linearizable() {
			for n := range s.ops {
				if !(&story{on, s.ops[:n+1]}).linearizable() {
					for _, op := range s.ops[max(0, n-5) : n+1] {
						t.Log(describe(op.Input, op.Output))
					}
					t.Fatalf("%s: the model refuses the last of these", on.key)
				}
			}
		}
		for range 20 {
			changed := slices.Clone(s.ops)
			op := &changed[r.IntN(len(changed))]
			out := op.Output.(result)
			if c := op.Input.(call); c.verb == take || c.verb == peek {
				out.five[r.IntN(5)]++
			} else {
				out.n ^= 1
			}
			op.Output = out
			if (&story{on, changed}).linearizable() {
				t.Errorf("%s: the model accepts %s, which was %s", on.key, describe(op.Input, op.Output), describe(op.Input, s.ops[op.Call/2].Output))
			}
		}
	}
}
