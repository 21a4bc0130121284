package engine

import (
	"fmt"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
)

// fillUp makes buckets of one unit each until one is refused.
func fillUp(t *testing.T, ks *Keyspace, now int64, l limit.BucketLimit) (n int) {
	t.Helper()
	tx := ks.Begin(now)
	defer tx.End()
	for ; n < 1<<20; n++ {
		switch _, err := tx.Throttle([]byte(fmt.Sprint("key:", now, n)), l, 1, limit.Consume); err {
		case nil:
		case ErrOOM:
			return n
		default:
			t.Fatal(err)
		}
	}
	t.Fatal("the memory limit holds nobody back")
	return 0
}

// TestTheMemoryLimitRefusesButNeverEvicts fails when the limit lets memory
// grow, forgets a bucket, or refuses what needs no more memory.
func TestTheMemoryLimitRefusesButNeverEvicts(t *testing.T) {
	const most = 1 << 20
	ks := newKeyspace(t, Options{MaxMemory: most, Shards: 4})
	l := bucket(10, 1, second)
	n := fillUp(t, ks, t0, l)
	if n < 5000 {
		t.Errorf("only %d buckets fit into 1 MiB", n)
	}
	if used := ks.Stats(t0).Memory; used > most {
		t.Errorf("%d bytes in use, the limit is %d", used, most)
	}
	tx := ks.Begin(t0)
	key := func(i int) []byte { return []byte(fmt.Sprint("key:", t0, i)) }
	for i := range n {
		if r, err := tx.Throttle(key(i), l, 1, limit.Peek); err != nil || r.Remaining != 9 {
			t.Fatalf("key %d: %+v, %v; want 9 remaining", i, r, err)
		}
	}
	for name, f := range map[string]func() (limit.Result, error){
		"a decision on a bucket": func() (limit.Result, error) { return tx.Throttle(key(0), l, 1, limit.Consume) },
		"another limit":          func() (limit.Result, error) { return tx.Throttle(key(1), bucket(20, 7, second), 1, limit.Consume) },
		"a refusal":              func() (limit.Result, error) { return tx.Throttle(key(0), l, 10, limit.Consume) },
		"a refusal of a new key": func() (limit.Result, error) { return tx.Throttle([]byte("new"), l, 11, limit.Consume) },
		"peek at a new key":      func() (limit.Result, error) { return tx.Throttle([]byte("new"), l, 1, limit.Peek) },
		"cost 0 of a new key":    func() (limit.Result, error) { return tx.Throttle([]byte("new"), l, 0, limit.Consume) },
		"a refund":               func() (limit.Result, error) { return tx.Refund(key(2), 1) },
	} {
		if _, err := f(); err != nil {
			t.Errorf("%s at the memory limit: %v", name, err)
		}
	}
	w := limit.WindowLimit{Limit: 1000, Period: second}
	for _, k := range []limit.Kind{limit.KindFixed, limit.KindSliding, limit.KindLog} {
		// A page with a free slot of that size may be there, or become so.
		var err error
		for i := 0; i < 1<<16 && err == nil; i++ {
			_, err = tx.Window(k, []byte(fmt.Sprint("new", k, i)), w, 1, limit.Consume)
		}
		if err != ErrOOM {
			t.Errorf("new windows of kind %v: %v, want ErrOOM", k, err)
		}
	}
	tx.End()

	// When they are full again they make room, without a sweep.
	later := t0 + 100*second
	if again := fillUp(t, ks, later, l); again < n*9/10 {
		t.Errorf("%d buckets fit after %d ran out", again, n)
	}
	if used := ks.Stats(later).Memory; used > most {
		t.Errorf("%d bytes in use, the limit is %d", used, most)
	}
}

// TestFullKeysMakeRoomWhereverTheyAre fails when OOM is the answer although
// another database, or another shard, holds nothing but full buckets.
func TestFullKeysMakeRoomWhereverTheyAre(t *testing.T) {
	for _, shards := range []int{1, 64} {
		ks := newKeyspace(t, Options{MaxMemory: 4 << 20, Shards: shards})
		n := fillUp(t, ks, t0, bucket(10, 1, second))
		for i := range 200 {
			tx := ks.Begin(t0 + 3600*second)
			tx.Select(uint8(1 + i%3))
			var err error
			key := []byte(fmt.Sprint("n", i))
			switch i % 3 {
			case 0:
				_, err = tx.Throttle(key, still(10), 1, limit.Consume)
			case 1:
				_, err = tx.Leak(key, still(10), 1, limit.Consume)
			case 2:
				_, err = tx.Window(limit.KindLog, key, limit.WindowLimit{Limit: 5, Period: limit.MaxPeriod}, 1, limit.Consume)
			}
			tx.End()
			if err != nil {
				t.Fatalf("%d shards: key %d: %v, with %d full buckets elsewhere", shards, i, err, n)
			}
		}
		if used := ks.Stats(t0).Memory; used > 4<<20 {
			t.Errorf("%d shards: %d bytes in use", shards, used)
		}
	}
}

// TestWhatIsRefusedLeavesNothingBehind fails when a refused key costs memory.
func TestWhatIsRefusedLeavesNothingBehind(t *testing.T) {
	ks := newKeyspace(t, Options{MaxMemory: 1 << 20, Shards: 64})
	fillUp(t, ks, t0, still(10))
	// Other databases take what is left: their tables, and then every slot.
	tx := ks.Begin(t0)
	for db := range uint8(14) {
		tx.Select(db)
		for i := range 500 {
			_, _ = tx.Throttle([]byte(fmt.Sprint("more", i)), still(10), 1, limit.Consume)
		}
	}
	tx.Select(15)
	before := ks.budget.Used()
	for i := range 1000 {
		if _, err := tx.Throttle([]byte(fmt.Sprint(i)), still(10), 1, limit.Consume); err != ErrOOM {
			t.Fatalf("key %d: %v, want ErrOOM", i, err)
		}
	}
	if used := ks.budget.Used(); used > before {
		t.Errorf("refused keys took %d bytes", used-before)
	}
	tx.End()
}

// TestALogAtTheMemoryLimitKeepsItsEntries fails when an entry that does not
// fit is counted, or costs another one its place.
func TestALogAtTheMemoryLimitKeepsItsEntries(t *testing.T) {
	ks := newKeyspace(t, Options{MaxMemory: 64 << 10, Shards: 1})
	w := limit.WindowLimit{Limit: 1_000_000, Period: 1000 * second}
	admitted := int64(0)
	var err error
	for i := range int64(100_000) {
		tx := ks.Begin(t0 + i)
		_, err = tx.Window(limit.KindLog, []byte("k"), w, 3, limit.Consume)
		tx.End()
		if err != nil {
			break
		}
		admitted += 3
	}
	if err != ErrOOM {
		t.Fatalf("%v, want ErrOOM", err)
	}
	tx := ks.Begin(t0 + second)
	r, err := tx.Window(limit.KindLog, []byte("k"), w, 1, limit.Peek)
	if err != nil || r.Remaining != w.Limit-admitted {
		t.Errorf("%d remain (%v), want %d", r.Remaining, err, w.Limit-admitted)
	}
	tx.End()
	if used := ks.Stats(t0).Memory; used > 64<<10 {
		t.Errorf("%d bytes in use", used)
	}
	tx = ks.Begin(t0 + 2000*second)
	if _, err := tx.Window(limit.KindLog, []byte("k"), w, 1, limit.Consume); err != nil {
		t.Errorf("after the entries have left: %v", err)
	}
}

// TestASlidingLogHoldsAtMostItsEntries pins the error beyond them.
func TestASlidingLogHoldsAtMostItsEntries(t *testing.T) {
	ks := newKeyspace(t, Options{Shards: 1})
	w := limit.WindowLimit{Limit: 1_000_000, Period: limit.MaxPeriod}
	var tx Tx
	for i := range int64(limit.MaxLogEntries) {
		ks.BeginInto(&tx, t0+i)
		if _, err := tx.Window(limit.KindLog, []byte("k"), w, 1, limit.Force); err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
		tx.End()
	}
	ks.BeginInto(&tx, t0+limit.MaxLogEntries)
	defer tx.End()
	if _, err := tx.Window(limit.KindLog, []byte("k"), w, 1, limit.Force); err != limit.ErrLogFull {
		t.Errorf("%v, want ErrLogFull", err)
	}
	if r, err := tx.Window(limit.KindLog, []byte("k"), w, 0, limit.Peek); err != nil || r.Remaining != -1_000_000 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestSweepGivesMemoryBack fails when full buckets stay in memory.
func TestSweepGivesMemoryBack(t *testing.T) {
	ks := newKeyspace(t, Options{Shards: 4, Track: true})
	empty := ks.Stats(t0).Memory
	tx := ks.Begin(t0)
	for i := range 50_000 {
		if _, err := tx.Throttle([]byte(fmt.Sprint(i)), bucket(1, 1, second), 1, limit.Consume); err != nil {
			t.Fatal(err)
		}
	}
	tx.End()
	drain(ks.Cut(), 1<<20)
	full := ks.Stats(t0).Memory
	for ks.Sweep(4) {
	}
	if got := ks.Stats(t0).Keys[0]; got != 50_000 {
		t.Fatalf("%d keys before they are full, want 50000", got)
	}
	tx = ks.Begin(t0 + second)
	if _, err := tx.Throttle([]byte("last"), still(1), 1, limit.Consume); err != nil {
		t.Fatal(err)
	}
	tx.End()
	for ks.Sweep(4) {
	}
	s := ks.Stats(t0 + second)
	if s.Keys[0] != 1 || s.Memory-empty > (full-empty)/4 {
		t.Errorf("%d keys in %d bytes after the sweep; %d bytes when it was full", s.Keys[0], s.Memory, full)
	}
}
