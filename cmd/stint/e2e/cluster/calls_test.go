//go:build unix

package cluster

import (
	"fmt"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

// verb is what a call does.
type verb string

const (
	take   verb = "take"   // units are asked for
	peek   verb = "peek"   // what taking them would give
	remove verb = "remove" // the key is deleted
	exists verb = "exists" // whether it is there
)

// kind is the kind of limit of a subject.
type kind string

const (
	bucket  kind = "bucket"
	fixed   kind = "fixed"
	sliding kind = "sliding"
)

// subject is a key with its limit. The numbers are small, so that plain int64
// arithmetic follows them.
type subject struct {
	key      string
	kind     kind
	capacity int64
	count    int64 // a bucket gets so many units
	period   int64 // in this time, ns; or the length of a window
	epoch    int64 // unix ns before all that happens; times of a model count from here
}

// command is the call as a client sends it.
func (s *subject) command(v verb, cost int64) []string {
	switch v {
	case remove:
		return []string{"DEL", s.key}
	case exists:
		return []string{"EXISTS", s.key}
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	var args []string
	switch s.kind {
	case bucket:
		args = []string{"THROTTLE", s.key, number(s.capacity), fmt.Sprintf("%d/%dms", s.count, s.period/1e6), number(cost)}
	case fixed:
		args = []string{"WINDOW", s.key, number(s.capacity), fmt.Sprintf("%dms", s.period/1e6), number(cost), "FIXED"}
	case sliding:
		args = []string{"WINDOW", s.key, number(s.capacity), fmt.Sprintf("%dms", s.period/1e6), number(cost), "SLIDING"}
	}
	if v == peek {
		args = append(args, "PEEK")
	}
	return args
}

// call is the input of an operation.
type call struct {
	on   *subject
	verb verb
	cost int64
}

// result is its output: the reply, and the time at which it was decided. If it is
// not known, the operation may have happened at any time since its call, or not
// at all.
type result struct {
	known bool
	stamp int64 // unix ns
	n     int64 // of remove and exists
	five  [5]int64
}

func describe(in, out any) string {
	c, r := in.(call), out.(result)
	text := fmt.Sprintf("%s %s", c.verb, c.on.key)
	if c.verb == take || c.verb == peek {
		text += fmt.Sprintf(" %d", c.cost)
	}
	if !r.known {
		return text + " → unknown"
	}
	at := time.Duration(r.stamp - c.on.epoch).Round(time.Microsecond)
	if c.verb == take || c.verb == peek {
		return fmt.Sprintf("%s → %v at %v", text, r.five, at)
	}
	return fmt.Sprintf("%s → %d at %v", text, r.n, at)
}

// parse reads the replies of a call and of the stamp behind it.
func parse(c call, replies []any) (r result, ok bool) {
	if len(replies) != 2 {
		return r, false
	}
	r.known = true
	if r.stamp, ok = replies[1].(int64); !ok {
		return r, false
	}
	if c.verb == remove || c.verb == exists {
		r.n, ok = replies[0].(int64)
		return r, ok
	}
	list, _ := replies[0].([]any)
	if len(list) != 5 {
		return r, false
	}
	for i, v := range list {
		if r.five[i], ok = v.(int64); !ok {
			return r, false
		}
	}
	return r, true
}

// byKey splits a history by key.
func byKey(ops []porcupine.Operation) (parts [][]porcupine.Operation) {
	index := map[string]int{}
	for _, op := range ops {
		key := op.Input.(call).on.key
		i, ok := index[key]
		if !ok {
			i = len(parts)
			index[key] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], op)
	}
	return parts
}
