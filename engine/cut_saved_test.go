package engine

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
)

// TestADrainShowsWhatWasSavedForIt fails when a key that is written between a
// cut and its drain is drained as anything but what it was at the cut.
func TestADrainShowsWhatWasSavedForIt(t *testing.T) {
	const keys, db = 50, 3
	ks := newKeyspace(t, Options{Track: true, Shards: 2})
	write := func(now int64) {
		tx := ks.Begin(now)
		defer tx.End()
		tx.Select(db)
		for i := range keys {
			if _, err := tx.Throttle([]byte(fmt.Sprint("bucket", i)), still(1000), int64(i+1), limit.Consume); err != nil {
				t.Fatal(err)
			}
			w := limit.WindowLimit{Limit: 1000, Period: 3600 * second}
			if _, err := tx.Window(limit.KindLog, []byte(fmt.Sprint("log", i)), w, int64(i+1), limit.Consume); err != nil {
				t.Fatal(err)
			}
		}
	}
	// values are the encoded values by key, as a chunk has them.
	values := func(chunks [][]byte) map[string][]byte {
		m := map[string][]byte{}
		for _, chunk := range chunks {
			if err := VisitChunk(chunk, func(c *Change) error {
				if _, twice := m[string(c.Key)]; c.Op != OpPut || c.DB != db || twice {
					t.Errorf("op %d, database %d, key %q, again: %v", c.Op, c.DB, c.Key, twice)
				}
				m[string(c.Key)] = limit.AppendValue(nil, &c.Value)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		return m
	}
	write(t0)
	d := ks.Dump()
	var dumped [][]byte
	for more := true; more; {
		var chunk []byte
		chunk, more = d.Append(nil, 1000)
		dumped = append(dumped, chunk)
	}
	want := values(dumped)
	c := ks.Cut()
	write(t0 + second)
	got := values(drain(c, 100))
	if c.Keys() != 2*keys || len(got) != 2*keys || len(want) != 2*keys {
		t.Fatalf("%d keys counted, %d drained, %d dumped, want %d", c.Keys(), len(got), len(want), 2*keys)
	}
	for key, value := range want {
		if !bytes.Equal(got[key], value) {
			t.Errorf("%s is drained as %x, was %x", key, got[key], value)
		}
	}
}
