package engine

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-dev/stint/engine/limit"
)

// replicated is a leader with an overlay, and a replica that applies the same
// effects and sweeps at other moments.
type replicated struct {
	leader, replica *Keyspace
	o               *Overlay
}

func newReplicated(t testing.TB) *replicated {
	r := &replicated{leader: newKeyspace(t, Options{Shards: 4}), replica: newKeyspace(t, Options{Shards: 16, Track: true})}
	r.o = r.leader.NewOverlay()
	return r
}

// commit applies what the overlay holds on both.
func (r *replicated) commit(t testing.TB, now int64) []byte {
	t.Helper()
	effects := r.o.Append(nil)
	if len(effects) > r.o.Size() {
		t.Fatalf("the effects have %d bytes, more than the %d that Size said", len(effects), r.o.Size())
	}
	if (len(effects) > 0) != (r.o.Writes() > 0) {
		t.Fatalf("%d writes and %d bytes of effects", r.o.Writes(), len(effects))
	}
	for _, ks := range []*Keyspace{r.leader, r.replica} {
		if err := ks.Apply(now, effects); err != nil {
			t.Fatal(err)
		}
	}
	return effects
}

func hashOfState(t testing.TB, ks *Keyspace) uint64 {
	t.Helper()
	f, err := ks.Freeze()
	if err != nil {
		t.Fatal(err)
	}
	return f.Hash()
}

// TestVectorsThroughTheOverlay fails when a reply depends on whether a decision
// was held back and applied as effects, one by one or several at a time.
func TestVectorsThroughTheOverlay(t *testing.T) {
	for _, each := range []int{1, 3, 1000} {
		t.Run(fmt.Sprint(each, " steps an entry"), func(t *testing.T) {
			readVectors(t, func(v vector) {
				r := newReplicated(t)
				var tx *Tx
				now := int64(0)
				for i, s := range v.Steps {
					// An overlay has one time, so only steps of one time share it.
					if tx == nil || max(s.At, r.leader.Latest()) != now || i%each == 0 {
						if tx != nil {
							r.commit(t, now)
						}
						for i%2 == 0 && r.replica.Sweep(16) {
						}
						tx = r.o.Begin(s.At)
						now = tx.Now()
					}
					v.stepOn(t, tx, i)
				}
				r.commit(t, now)
				if a, b := hashOfState(t, r.leader), hashOfState(t, r.replica); a != b {
					t.Fatalf("%s: the leader's state has hash %x, the replica's %x", v.Name, a, b)
				}
			})
		})
	}
}

var randomKeys = []string{"a", "b", "c", "d"}

// inspect is all that a transaction tells of a key without deciding on it.
func inspect(tx *Tx, key string) string {
	defer tx.End()
	i, ok := tx.Inspect([]byte(key))
	at, live := tx.Expiry([]byte(key))
	if !live {
		at = 0
	}
	return fmt.Sprintf("%+v %v %d %v", i, ok, at, live)
}

// randomCommand makes a command of any kind on one of a few keys.
func randomCommand(t *rapid.T) []string {
	key := rapid.SampledFrom(randomKeys).Draw(t, "key")
	cost := fmt.Sprint(rapid.IntRange(0, 6).Draw(t, "cost"))
	capacity := fmt.Sprint(rapid.SampledFrom([]int{3, 5, 10}).Draw(t, "capacity"))
	period := rapid.SampledFrom([]string{"1s", "1s", "1s", "2s", "500ms"}).Draw(t, "period")
	mode := rapid.SampledFrom([]string{"", "", "", "PEEK", "FORCE"}).Draw(t, "mode")
	var args []string
	switch rapid.IntRange(0, 9).Draw(t, "command") {
	case 0:
		if mode == "PEEK" {
			mode = "ATMOST"
		}
		args = []string{"THROTTLE", key, capacity, "7/" + period, cost}
	case 1:
		if mode == "FORCE" {
			mode = ""
		}
		args = []string{"LEAK", key, capacity, "7/s", cost}
	case 2:
		args = []string{"WINDOW", key, capacity, period, cost, "FIXED"}
	case 3:
		args = []string{"WINDOW", key, capacity, period, cost, "SLIDING"}
	case 4, 5:
		args = []string{"WINDOW", key, capacity, period, cost, "LOG"}
	case 6, 7:
		return []string{"REFUND", key, cost}
	case 8:
		return []string{"TYPE", key}
	default:
		return []string{"DEL", key}
	}
	if mode != "" {
		args = append(args, mode)
	}
	return args
}

// TestTheOverlayDecidesAsTheKeyspaceDoes runs random commands, with random ends of
// entries, flushes and sweeps, against a keyspace that decides directly.
func TestTheOverlayDecidesAsTheKeyspaceDoes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newReplicated(t)
		direct := newKeyspace(t, Options{Shards: 2})
		now := int64(1_000_000_000_000)
		for range rapid.IntRange(1, 12).Draw(rt, "entries") {
			now += rapid.SampledFrom([]int64{0, 1, 50_000_000, 400_000_000, 3_000_000_000}).Draw(rt, "passes")
			tx := r.o.Begin(now)
			for range rapid.IntRange(0, 8).Draw(rt, "commands") {
				db := uint8(rapid.IntRange(0, 1).Draw(rt, "db"))
				d := direct.Begin(now)
				d.Select(db)
				tx.Select(db)
				switch rapid.IntRange(0, 40).Draw(rt, "flush") {
				case 0:
					d.FlushDB()
					tx.FlushDB()
					continue
				case 1:
					d.FlushAll()
					tx.FlushAll()
					continue
				}
				c := randomCommand(rt)
				want, got := command(t, d, c), command(t, tx, c)
				if !reflect.DeepEqual(want, got) {
					rt.Fatalf("%q at %d: held back %v, directly %v", c, now, got, want)
				}
				for _, key := range randomKeys {
					if want, got := inspect(d, key), inspect(tx, key); want != got {
						rt.Fatalf("%s after %q at %d: held back %s, directly %s", key, c, now, got, want)
					}
				}
			}
			r.commit(t, now)
			direct.Advance(now)
			for _, key := range randomKeys {
				for db := range uint8(2) {
					var is [3]string
					for i, ks := range []*Keyspace{direct, r.leader, r.replica} {
						tx := ks.Begin(now)
						tx.Select(db)
						is[i] = inspect(tx, key)
						tx.End()
					}
					if is[1] != is[0] || is[2] != is[0] {
						rt.Fatalf("%s of database %d: directly %s, leader %s, replica %s", key, db, is[0], is[1], is[2])
					}
				}
			}
			if rapid.Bool().Draw(rt, "sweep") {
				for r.replica.Sweep(16) {
				}
			}
			if rapid.Bool().Draw(rt, "drain") {
				drain(r.replica.Cut(), 100)
			}
		}
		want := hashOfState(t, direct)
		if a, b := hashOfState(t, r.leader), hashOfState(t, r.replica); a != want || b != want {
			rt.Fatalf("hashes: directly %x, leader %x, replica %x", want, a, b)
		}
	})
}

// TestAnEffectIsSmall pins what an entry of the log costs.
func TestAnEffectIsSmall(t *testing.T) {
	r := newReplicated(t)
	now := int64(1_900_000_000_123_456_789)
	tx := r.o.Begin(now)
	l := limit.BucketLimit{Capacity: 100, Rate: rate(t, "100/m")}
	key := func(i int) []byte { return fmt.Appendf(nil, "user:%09d", i) }
	for i := range 1000 {
		for range 10 {
			if _, err := tx.Throttle(key(i), l, 1, limit.Consume); err != nil {
				t.Fatal(err)
			}
		}
	}
	if each := len(r.commit(t, now))/1000 - 14; each > 12 {
		t.Errorf("an effect has %d bytes beyond its key, want at most 12", each)
	}
	tx = r.o.Begin(now)
	if _, err := tx.Throttle(key(1), limit.BucketLimit{Capacity: 1_000_000, Rate: rate(t, "123456/h")}, 1, limit.Consume); err != nil {
		t.Fatal(err)
	}
	if n := len(r.commit(t, now)) - 14; n > 24 {
		t.Errorf("the first effect of a limit has %d bytes beyond its key, want at most 24", n)
	}
}

// TestAChangeOfALargeLogCostsItsChange fails when a log is written as a whole.
func TestAChangeOfALargeLogCostsItsChange(t *testing.T) {
	r := newReplicated(t)
	l := limit.WindowLimit{Limit: 1_000_000, Period: 1e12}
	now := int64(2e12)
	for i := range int64(50_000) {
		tx := r.o.Begin(now + i)
		if _, err := tx.Window(limit.KindLog, []byte("k"), l, 2, limit.Consume); err != nil {
			t.Fatal(err)
		}
		if n := len(r.commit(t, now+i)); n > 40 {
			t.Fatalf("entry %d has %d bytes", i, n)
		}
	}
	if a, b := hashOfState(t, r.leader), hashOfState(t, r.replica); a != b {
		t.Errorf("hashes %x and %x", a, b)
	}
}

// FuzzApply fails when damaged effects panic, or leave a state that cannot be
// encoded.
func FuzzApply(f *testing.F) {
	now := int64(1e18)
	seed := func(run func(tx *Tx)) {
		ks, _ := New(Options{Shards: 1})
		o := ks.NewOverlay()
		run(o.Begin(now))
		f.Add(o.Append(nil))
	}
	seed(func(tx *Tx) {
		_, _ = tx.Throttle([]byte("a"), limit.BucketLimit{Capacity: 5, Rate: limit.Rate{Count: 1, Period: 1e9}}, 1, limit.Consume)
		tx.Select(3)
		_, _ = tx.Window(limit.KindLog, []byte("b"), limit.WindowLimit{Limit: 5, Period: 1e9}, 1, limit.Consume)
		_, _ = tx.Window(limit.KindSliding, []byte("c"), limit.WindowLimit{Limit: 5, Period: 1e9}, 1, limit.Consume)
		tx.Delete([]byte("b"))
	})
	seed(func(tx *Tx) { tx.FlushAll() })
	f.Fuzz(func(t *testing.T, effects []byte) {
		ks := newKeyspace(t, Options{Shards: 1})
		tx := ks.Begin(now)
		_, _ = tx.Window(limit.KindLog, []byte("b"), limit.WindowLimit{Limit: 5, Period: 1e9}, 3, limit.Consume)
		tx.End()
		if err := ks.Apply(now, effects); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		v, err := ks.Freeze()
		if err != nil {
			t.Fatal(err)
		}
		chunk, _ := v.Append(nil, 1<<30)
		if err := VisitChunk(chunk, func(*Change) error { return nil }); err != nil {
			t.Fatal(err)
		}
	})
}
