package engine

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
)

const second = int64(1e9)

// t0 is when most tests begin.
const t0 = 1_900_000_000 * second

func bucket(capacity int64, count int64, period int64) limit.BucketLimit {
	return limit.BucketLimit{Capacity: capacity, Rate: limit.Rate{Count: count, Period: period}}
}

// still is a bucket that as good as never refills.
func still(capacity int64) limit.BucketLimit { return bucket(capacity, 1, 1<<60/capacity) }

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	for _, o := range []Options{{Shards: 3}, {Shards: -1}, {Shards: 2048}, {MaxMemory: -1}} {
		if _, err := New(o); !errors.Is(err, ErrOptions) {
			t.Errorf("New(%+v): %v, want ErrOptions", o, err)
		}
	}
	for _, n := range []int{1, 2, 1024} {
		ks := newKeyspace(t, Options{Shards: n})
		tx := ks.Begin(t0)
		for i := range 100 {
			if r, err := tx.Throttle([]byte(fmt.Sprint(i)), still(1), 1, limit.Consume); err != nil || r.Allowed != 1 {
				t.Errorf("%d shards: %+v, %v", n, r, err)
			}
		}
		if got := tx.Count(); got != 100 {
			t.Errorf("%d shards hold %d keys, want 100", n, got)
		}
	}
}

// TestConcurrentDecisionsAdmitExactlyTheCapacity fails when two decisions on a
// key see the same state.
func TestConcurrentDecisionsAdmitExactlyTheCapacity(t *testing.T) {
	const workers, tries, keys, capacity = 8, 500, 4, 300
	ks := newKeyspace(t, Options{Track: true})
	var mu sync.Mutex
	admitted := map[string]int64{}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			mine := map[string]int64{}
			var tx Tx
			for i := range tries {
				key := fmt.Sprint("k", (w+i)%keys)
				ks.BeginInto(&tx, t0+int64(i))
				r, err := tx.Throttle([]byte(key), still(capacity), 1, limit.Consume)
				tx.End()
				if err != nil {
					t.Error(err)
				}
				mine[key] += r.Allowed
			}
			mu.Lock()
			defer mu.Unlock()
			for k, n := range mine {
				admitted[k] += n
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			drain(ks.Cut(), 100)
			ks.Sweep(8)
			ks.Stats(t0)
		}
	}
	for k, n := range admitted {
		if n != capacity {
			t.Errorf("%s admitted %d, want %d", k, n, capacity)
		}
	}
}

func TestAnotherKindIsRefusedUntilTheKeyIsFull(t *testing.T) {
	ks := newKeyspace(t, Options{})
	tx := ks.Begin(t0)
	key := []byte("k")
	l, w := bucket(1, 1, second), limit.WindowLimit{Limit: 5, Period: second}
	if _, err := tx.Throttle(key, l, 1, limit.Consume); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Leak(key, l, 1, limit.Consume); err != ErrWrongType {
		t.Errorf("LEAK on a bucket: %v", err)
	}
	for _, k := range []limit.Kind{limit.KindFixed, limit.KindSliding, limit.KindLog} {
		if _, err := tx.Window(k, key, w, 1, limit.Peek); err != ErrWrongType {
			t.Errorf("WINDOW %v on a bucket: %v", k, err)
		}
	}
	tx.End()
	kinds := []limit.Kind{limit.KindLog, limit.KindFixed, limit.KindSliding, limit.KindLog}
	for i, k := range kinds {
		tx := ks.Begin(t0 + int64(i+1)*10*second)
		if r, err := tx.Window(k, key, w, 1, limit.Consume); err != nil || r.Remaining != 4 {
			t.Errorf("WINDOW %v on a full key: %+v, %v", k, r, err)
		}
		if got := tx.Kind(key); got != k {
			t.Errorf("the key holds %v, want %v", got, k)
		}
		tx.End()
	}
}

// TestOnlyDecisionsAdvanceTime fails when a read makes the latest time seen
// later, or a decision runs at an earlier one.
func TestOnlyDecisionsAdvanceTime(t *testing.T) {
	key := []byte("k")
	l := bucket(10, 1, second)
	reads := map[string]func(tx *Tx){
		"Kind":    func(tx *Tx) { tx.Kind(key) },
		"Expiry":  func(tx *Tx) { tx.Expiry(key) },
		"Inspect": func(tx *Tx) { tx.Inspect(key) },
		"Delete":  func(tx *Tx) { tx.Delete([]byte("other")) },
		"Scan":    func(tx *Tx) { tx.Scan(0, 10, func([]byte, limit.Kind) {}) },
		"Count":   func(tx *Tx) { tx.Count() },
	}
	for name, read := range reads {
		ks := newKeyspace(t, Options{})
		tx := ks.Begin(t0)
		if _, err := tx.Throttle(key, l, 10, limit.Consume); err != nil {
			t.Fatal(err)
		}
		tx.End()
		tx = ks.Begin(t0 + 1000*second)
		read(tx)
		tx.End()
		if ks.Latest() != t0 {
			t.Errorf("%s: the latest time is %d, want %d", name, ks.Latest(), t0)
		}
		tx = ks.Begin(t0 + 5*second)
		if r, _ := tx.Throttle(key, l, 0, limit.Peek); r.Remaining != 5 {
			t.Errorf("%s: %d remain, want 5", name, r.Remaining)
		}
		tx.End()
	}
	decisions := map[string]func(tx *Tx){
		"refused": func(tx *Tx) { _, _ = tx.Throttle(key, l, 11, limit.Consume) },
		"peek":    func(tx *Tx) { _, _ = tx.Throttle(key, l, 1, limit.Peek) },
		"cost 0": func(tx *Tx) {
			_, _ = tx.Window(limit.KindFixed, []byte("w"), limit.WindowLimit{Limit: 1, Period: second}, 0, limit.Consume)
		},
		"refund": func(tx *Tx) { _, _ = tx.Refund([]byte("absent"), 1) },
		"wrong":  func(tx *Tx) { _, _ = tx.Leak(key, l, 1, limit.Consume) },
	}
	for name, decide := range decisions {
		ks := newKeyspace(t, Options{})
		tx := ks.Begin(t0)
		if _, err := tx.Throttle(key, l, 10, limit.Consume); err != nil {
			t.Fatal(err)
		}
		tx.End()
		tx = ks.Begin(t0 + second)
		decide(tx)
		tx.End()
		if want := t0 + second; ks.Latest() != want {
			t.Errorf("%s: the latest time is %d, want %d", name, ks.Latest(), want)
		}
		// A clock that is behind counts as standing still, for other keys too.
		tx = ks.Begin(t0 - 1000*second)
		if tx.Now() != t0+second {
			t.Errorf("%s: a later transaction is at %d, want %d", name, tx.Now(), t0+second)
		}
	}
}

func TestTimeIsKeptWithinItsBounds(t *testing.T) {
	ks := newKeyspace(t, Options{})
	if now := ks.Begin(-5).Now(); now != 0 {
		t.Errorf("a transaction before time is at %d", now)
	}
	if now := ks.Begin(1<<63 - 1).Now(); now != limit.MaxTime {
		t.Errorf("a transaction after time is at %d", now)
	}
}

func TestFlushEmptiesOneOrAllDatabases(t *testing.T) {
	ks := newKeyspace(t, Options{Track: true})
	tx := ks.Begin(t0)
	count := func() (n [Databases]int64) {
		for db := range uint8(Databases) {
			tx.Select(db)
			n[db] = tx.Count()
		}
		return n
	}
	fill := func() {
		for db := range uint8(Databases) {
			tx.Select(db)
			for i := range int(db) + 1 {
				if _, err := tx.Throttle([]byte(fmt.Sprint(i)), still(1), 1, limit.Consume); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	empty := ks.Stats(t0).Memory
	fill()
	tx.Select(3)
	tx.FlushDB()
	n := count()
	for db, got := range n {
		want := int64(db + 1)
		if db == 3 {
			want = 0
		}
		if got != want || ks.Stats(t0).Keys[db] != want {
			t.Errorf("database %d has %d keys, want %d", db, got, want)
		}
	}
	tx.FlushAll()
	if n := count(); n != [Databases]int64{} {
		t.Errorf("after FlushAll: %v", n)
	}
	if got := ks.Stats(t0).Memory; got != empty {
		t.Errorf("%d bytes in use after FlushAll, want %d", got, empty)
	}
	fill()
	tx.End()
	ks.Reset()
	if ks.Latest() != 0 || ks.Stats(0).Keys != [Databases]int64{} {
		t.Errorf("after Reset: latest %d, keys %v", ks.Latest(), ks.Stats(0).Keys)
	}
	tx = ks.Begin(7)
	if r, err := tx.Throttle([]byte("0"), still(1), 1, limit.Consume); err != nil || r.Allowed != 1 || ks.Latest() != 7 {
		t.Errorf("after Reset: %+v, %v at %d", r, err, ks.Latest())
	}
}

// TestScanShowsEveryKeyThatStays fails when SCAN misses a key that is there
// throughout, while others come and go.
func TestScanShowsEveryKeyThatStays(t *testing.T) {
	ks := newKeyspace(t, Options{Shards: 8})
	tx := ks.Begin(t0)
	for i := range 2000 {
		l := still(1)
		if i%4 == 0 {
			l = bucket(1, 1, second)
		}
		if _, err := tx.Throttle([]byte(fmt.Sprint("k", i)), l, 1, limit.Consume); err != nil {
			t.Fatal(err)
		}
	}
	tx.End()
	tx = ks.Begin(t0 + 2*second)
	seen := map[string]bool{}
	cursor, calls := uint64(0), 0
	for {
		cursor = tx.Scan(cursor, 50, func(key []byte, k limit.Kind) {
			if k != limit.KindBucket {
				t.Errorf("%s is a %v", key, k)
			}
			seen[string(key)] = true
		})
		if cursor == 0 {
			break
		}
		if calls++; calls > 5000 {
			t.Fatal("the scan does not end")
		}
		i := calls % 500 * 4
		tx.Delete([]byte(fmt.Sprint("k", i+1)))
		if _, err := tx.Throttle([]byte(fmt.Sprint("new", calls)), still(1), 1, limit.Consume); err != nil {
			t.Fatal(err)
		}
		tx.End()
		ks.Sweep(1)
	}
	if calls < 20 {
		t.Errorf("%d calls for 2,000 keys at 50 a call", calls)
	}
	for i := range 2000 {
		key := fmt.Sprint("k", i)
		switch i % 4 {
		case 0:
			if seen[key] {
				t.Errorf("%s is shown, though it is full", key)
			}
		case 2, 3:
			if !seen[key] {
				t.Errorf("%s is missing", key)
			}
		}
	}
	// Made-up cursors do no harm.
	for _, c := range []uint64{1, 1 << 39, 1 << 40, 1<<64 - 1, 1<<63 + 12345} {
		for n := 0; c != 0 && n < 1000; n++ {
			c = tx.Scan(c, 100, func([]byte, limit.Kind) {})
		}
		if c != 0 {
			t.Error("the scan of a made-up cursor does not end")
		}
	}
}

func TestInspectTellsTheStoredLimitAndWhatIsUsed(t *testing.T) {
	ks := newKeyspace(t, Options{})
	tx := ks.Begin(t0)
	key := []byte("k")
	if _, ok := tx.Inspect(key); ok {
		t.Error("an absent key is shown")
	}
	if _, err := tx.Throttle(key, bucket(10, 1, second), 4, limit.Consume); err != nil {
		t.Fatal(err)
	}
	tx.End()
	tx = ks.Begin(t0 + second/2)
	want := Info{Kind: limit.KindBucket, Limit: limit.Params{A: 10, B: 1, C: second}, Used: 4, Remaining: 6, ResetMs: 3500}
	if got, ok := tx.Inspect(key); !ok || got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	w := limit.WindowLimit{Limit: 10, Period: 4 * second}
	for i := range int64(3) {
		tx.End()
		tx = ks.Begin(t0 + i*second)
		if _, err := tx.Window(limit.KindLog, []byte("log"), w, 2, limit.Consume); err != nil {
			t.Fatal(err)
		}
	}
	tx.End()
	tx = ks.Begin(t0 + 4*second)
	want = Info{Kind: limit.KindLog, Limit: limit.Params{A: 10, C: 4 * second}, Used: 4, Remaining: 6, ResetMs: 2000, Entries: 2}
	if got, ok := tx.Inspect([]byte("log")); !ok || got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestDecisionsDoNotAllocate pins the hot paths at no allocation.
func TestDecisionsDoNotAllocate(t *testing.T) {
	for _, track := range []bool{false, true} {
		ks := newKeyspace(t, Options{Track: track})
		var tx Tx
		now := t0
		key := []byte("user:42")
		keys := [][]byte{[]byte("b"), []byte("l"), []byte("f"), []byte("s"), []byte("g")}
		w := limit.WindowLimit{Limit: 3, Period: second}
		ks.BeginInto(&tx, now)
		run := func(f func() (limit.Result, error)) func() {
			return func() {
				now += 1000
				ks.BeginInto(&tx, now)
				if _, err := f(); err != nil {
					t.Error(err)
				}
				tx.End()
			}
		}
		for name, f := range map[string]func(){
			"throttle": run(func() (limit.Result, error) { return tx.Throttle(keys[0], bucket(5, 100, second), 1, limit.Consume) }),
			"leak":     run(func() (limit.Result, error) { return tx.Leak(keys[1], bucket(5, 100, second), 1, limit.Consume) }),
			"fixed":    run(func() (limit.Result, error) { return tx.Window(limit.KindFixed, keys[2], w, 1, limit.Consume) }),
			"sliding":  run(func() (limit.Result, error) { return tx.Window(limit.KindSliding, keys[3], w, 1, limit.Consume) }),
			"log":      run(func() (limit.Result, error) { return tx.Window(limit.KindLog, keys[4], w, 1, limit.Consume) }),
			"refund":   run(func() (limit.Result, error) { return tx.Refund(key, 1) }),
			"inspect":  func() { tx.Inspect(keys[0]); tx.End() },
		} {
			f()
			if n := testing.AllocsPerRun(500, f); n != 0 {
				t.Errorf("%s (tracked: %v) allocates %v times", name, track, n)
			}
		}
	}
}

// TestWhatForceForgetsIsCounted fails when units beyond FORCE's bound go
// missing without a trace, for each kind, at the bound too.
func TestWhatForceForgetsIsCounted(t *testing.T) {
	const most = limit.MaxUnits
	for name, force := range map[string]func(tx *Tx) (limit.Result, error){
		"bucket": func(tx *Tx) (limit.Result, error) {
			return tx.Throttle([]byte("k"), bucket(10, most, 1), most, limit.Force)
		},
		"fixed": func(tx *Tx) (limit.Result, error) {
			return tx.Window(limit.KindFixed, []byte("k"), limit.WindowLimit{Limit: 10, Period: limit.MaxPeriod}, most, limit.Force)
		},
		"sliding": func(tx *Tx) (limit.Result, error) {
			return tx.Window(limit.KindSliding, []byte("k"), limit.WindowLimit{Limit: 10, Period: limit.MaxPeriod}, most, limit.Force)
		},
		"log": func(tx *Tx) (limit.Result, error) {
			return tx.Window(limit.KindLog, []byte("k"), limit.WindowLimit{Limit: 10, Period: limit.MaxPeriod}, most, limit.Force)
		},
	} {
		ks := newKeyspace(t, Options{})
		tx := ks.Begin(t0)
		want := int64(0)
		for i := range 3 {
			r, err := force(tx)
			if err != nil || r.Allowed != 1 || (i > 0) != (r.Forgotten > 0) {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
			want += r.Forgotten
		}
		tx.End()
		if got := ks.Stats(t0).Forgotten; got != want {
			t.Errorf("%s: %d units are counted as forgotten, want %d", name, got, want)
		}
	}
}

// TestKeysOutOfBoundsAreNotAMatterOfMemory fails when a program that embeds
// the engine is told of memory because its key is empty.
func TestKeysOutOfBoundsAreNotAMatterOfMemory(t *testing.T) {
	ks := newKeyspace(t, Options{})
	tx := ks.Begin(t0)
	w := limit.WindowLimit{Limit: 5, Period: second}
	for n, want := range map[int]error{0: ErrKey, MaxKey + 1: ErrKey, 1: nil, MaxKey: nil} {
		key := make([]byte, n)
		if _, err := tx.Throttle(key, still(9), 1, limit.Consume); err != want {
			t.Errorf("a key of %d bytes: %v, want %v", n, err, want)
		}
		tx.Delete(key)
		if _, err := tx.Window(limit.KindLog, key, w, 1, limit.Consume); err != want {
			t.Errorf("a log under a key of %d bytes: %v, want %v", n, err, want)
		}
	}
	for _, k := range []limit.Kind{limit.None, limit.KindBucket, limit.KindLeak, 99} {
		if _, err := tx.Window(k, []byte("k"), w, 1, limit.Consume); err != ErrKind {
			t.Errorf("a window of kind %v: %v, want ErrKind", k, err)
		}
	}
}

func TestDecisionsAreCounted(t *testing.T) {
	ks := newKeyspace(t, Options{})
	tx := ks.Begin(t0)
	l, w := still(2), limit.WindowLimit{Limit: 2, Period: limit.MaxPeriod}
	decide := map[string]func(cost int64, m limit.Mode) (limit.Result, error){
		"bucket": func(c int64, m limit.Mode) (limit.Result, error) { return tx.Throttle([]byte("b"), l, c, m) },
		"leak":   func(c int64, m limit.Mode) (limit.Result, error) { return tx.Leak([]byte("l"), l, c, m) },
		"fixed": func(c int64, m limit.Mode) (limit.Result, error) {
			return tx.Window(limit.KindFixed, []byte("f"), w, c, m)
		},
		"sliding": func(c int64, m limit.Mode) (limit.Result, error) {
			return tx.Window(limit.KindSliding, []byte("s"), w, c, m)
		},
		"log": func(c int64, m limit.Mode) (limit.Result, error) {
			return tx.Window(limit.KindLog, []byte("g"), w, c, m)
		},
	}
	for _, f := range decide {
		for _, c := range []struct {
			cost int64
			mode limit.Mode
		}{{1, limit.Consume}, {1, limit.Consume}, {1, limit.Consume}, {1, limit.Peek}, {0, limit.Consume}, {9, limit.Peek}} {
			if _, err := f(c.cost, c.mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	tx.End()
	n := int64(len(decide))
	if s := ks.Stats(t0); s.Allowed != 2*n || s.Refused != n {
		t.Errorf("%d allowed, %d refused; want %d and %d", s.Allowed, s.Refused, 2*n, n)
	}
}

// TestScanTakesFewSteps fails when a person who scans a few keys has to go on
// for ever.
func TestScanTakesFewSteps(t *testing.T) {
	ks := newKeyspace(t, Options{})
	tx := ks.Begin(t0)
	for n, most := range map[int]int{0: 1, 4: 1, 25: 6, 1000: 110} {
		tx.FlushAll()
		for i := range n {
			if _, err := tx.Throttle([]byte(fmt.Sprint(i)), still(2), 1, limit.Consume); err != nil {
				t.Fatal(err)
			}
		}
		seen, steps, cursor := 0, 0, uint64(0)
		for {
			steps++
			if cursor = tx.Scan(cursor, 10, func([]byte, limit.Kind) { seen++ }); cursor == 0 {
				break
			}
		}
		if seen != n || steps > most {
			t.Errorf("%d of %d keys in %d steps, want at most %d", seen, n, steps, most)
		}
	}
}

// What sweeping forgets is counted, also of a database that is flushed later.
func TestSweptKeysAreCounted(t *testing.T) {
	ks, err := New(Options{Shards: 2})
	if err != nil {
		t.Fatal(err)
	}
	l := limit.BucketLimit{Capacity: 3, Rate: limit.Rate{Count: 1, Period: 1_000_000_000}}
	const at = int64(1_700_000_000_000_000_000)
	tx := ks.Begin(at)
	for i := range byte(40) {
		if _, err := tx.Throttle([]byte{'k', i}, l, 1, limit.Consume); err != nil {
			t.Fatal(err)
		}
	}
	tx.End()
	ks.Advance(at + 2_000_000_000)
	if n := ks.Stats(at).Expired; n != 0 {
		t.Errorf("%d keys expired before anything was swept", n)
	}
	for ks.Sweep(2) {
	}
	if n := ks.Stats(at).Expired; n != 40 {
		t.Errorf("%d keys expired, want 40", n)
	}
	tx.FlushAll()
	if n := ks.Stats(at).Expired; n != 40 {
		t.Errorf("%d keys expired after the flush, want 40", n)
	}
}
