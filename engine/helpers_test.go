package engine

import (
	"strings"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
)

// newKeyspace makes a keyspace or ends the test.
func newKeyspace(t testing.TB, o Options) *Keyspace {
	t.Helper()
	ks, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return ks
}

// rate parses a rate that is known to be one.
func rate(t testing.TB, s string) limit.Rate {
	t.Helper()
	r, ok := limit.ParseRate([]byte(s))
	if !ok {
		t.Fatalf("%q is no rate", s)
	}
	return r
}

// drain empties a cut into chunks of about size bytes.
func drain(c *Cut, size int) (chunks [][]byte) {
	for more := true; more; {
		var chunk []byte
		chunk, more = c.Append(nil, size)
		chunks = append(chunks, chunk)
	}
	return chunks
}

// restore makes a keyspace of a latest time and chunks.
func restore(t testing.TB, latest int64, chunks [][]byte) *Keyspace {
	t.Helper()
	ks := newKeyspace(t, Options{Track: true, Shards: 8})
	ks.Advance(latest)
	for _, c := range chunks {
		if err := ks.Load(c); err != nil {
			t.Fatal(err)
		}
	}
	return ks
}

// command runs a command as the wire spells it on a transaction, and replies
// what JSON would make of the reply. Arguments are trusted.
func command(t testing.TB, tx *Tx, args []string) any {
	t.Helper()
	defer tx.End()
	name, key := strings.ToUpper(args[0]), []byte(args[1])
	switch name {
	case "DEL":
		return one(tx.Delete(key))
	case "EXISTS":
		return one(tx.Kind(key) != limit.None)
	case "TYPE":
		return tx.Kind(key).String()
	}
	args = args[2:]
	number := func() int64 {
		n, ok := limit.ParseUnits([]byte(args[0]))
		if !ok {
			t.Fatalf("%q is no number", args[0])
		}
		args = args[1:]
		return n
	}
	mode, kind, cost := limit.Consume, limit.KindSliding, int64(1)
	tail := func() {
		if len(args) > 0 && args[0] != "" && '0' <= args[0][0] && args[0][0] <= '9' {
			cost = number()
		}
		for _, a := range args {
			switch strings.ToUpper(a) {
			case "PEEK":
				mode = limit.Peek
			case "FORCE":
				mode = limit.Force
			case "ATMOST":
				mode = limit.AtMost
			case "FIXED":
				kind = limit.KindFixed
			case "SLIDING":
				kind = limit.KindSliding
			case "LOG":
				kind = limit.KindLog
			default:
				t.Fatalf("%q is no option", a)
			}
		}
	}
	var r limit.Result
	var err error
	switch name {
	case "THROTTLE", "LEAK":
		l := limit.BucketLimit{Capacity: number(), Rate: rate(t, args[0])}
		args = args[1:]
		tail()
		if name == "LEAK" {
			r, err = tx.Leak(key, l, cost, mode)
		} else {
			r, err = tx.Throttle(key, l, cost, mode)
		}
	case "CL.THROTTLE":
		l := limit.BucketLimit{Capacity: number() + 1}
		l.Rate.Count = number()
		l.Rate.Period = number() * 1e9
		tail()
		if r, err = tx.Throttle(key, l, cost, mode); err == nil {
			retry := int64(-1)
			if r.Allowed == 0 && r.WaitMs >= 0 {
				retry = (r.WaitMs + 999) / 1000
			}
			return []int64{1 - r.Allowed, r.Limit, r.Remaining, retry, (r.ResetMs + 999) / 1000}
		}
	case "WINDOW":
		l := limit.WindowLimit{Limit: number()}
		var ok bool
		if l.Period, ok = limit.ParsePeriod([]byte(args[0])); !ok {
			t.Fatalf("%q is no period", args[0])
		}
		args = args[1:]
		tail()
		r, err = tx.Window(kind, key, l, cost, mode)
	case "REFUND":
		r, err = tx.Refund(key, number())
	default:
		t.Fatalf("unknown command %q", name)
	}
	switch err {
	case nil:
		return []int64{r.Allowed, r.Limit, r.Remaining, r.WaitMs, r.ResetMs}
	case ErrWrongType:
		return "WRONGTYPE"
	}
	return err.Error()
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
