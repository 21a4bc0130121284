package persist

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
)

var update = flag.Bool("update", false, "write the files of this format in testdata anew")

const t0 = int64(1_700_000_000_000_000_000) // unix ns

func newKeyspace(t testing.TB) *engine.Keyspace {
	t.Helper()
	ks, err := engine.New(engine.Options{Shards: 4, Track: true})
	if err != nil {
		t.Fatal(err)
	}
	return ks
}

// begin opens a folder with an engine in it.
func begin(t testing.TB, dir string, o Options) (*Flusher, *engine.Keyspace) {
	t.Helper()
	st, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	ks := newKeyspace(t)
	if _, err := st.Load(ks); err != nil {
		st.Close()
		t.Fatal(err)
	}
	f, err := st.Start()
	if err != nil {
		st.Close()
		t.Fatal(err)
	}
	return f, ks
}

func rate(count, period int64) limit.Rate { return limit.Rate{Count: count, Period: period} }

// decide fills an engine with n keys of every kind at time t0 + round seconds.
func decide(t testing.TB, ks *engine.Keyspace, n, round int) {
	t.Helper()
	tx := ks.Begin(t0 + int64(round)*1e9)
	defer tx.End()
	check := func(_ limit.Result, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	hour := int64(time.Hour)
	for i := range n {
		tx.Select(uint8(i % 3))
		key := fmt.Appendf(nil, "key %d", i)
		switch i % 5 {
		case 0:
			check(tx.Throttle(key, limit.BucketLimit{Capacity: 1000, Rate: rate(1, hour)}, int64(1+round%3), limit.Consume))
		case 1:
			check(tx.Leak(key, limit.BucketLimit{Capacity: 50, Rate: rate(7, hour)}, 1, limit.Consume))
		case 2:
			check(tx.Window(limit.KindFixed, key, limit.WindowLimit{Limit: 100, Period: 24 * hour}, 2, limit.Consume))
		case 3:
			check(tx.Window(limit.KindSliding, key, limit.WindowLimit{Limit: 100, Period: 24 * hour}, 1, limit.Consume))
		case 4:
			check(tx.Window(limit.KindLog, key, limit.WindowLimit{Limit: 30, Period: 24 * hour}, 1, limit.Consume))
		}
	}
	tx.Select(1)
	tx.Delete(fmt.Appendf(nil, "key %d", 1+3*(round%5)))
}

// content is everything in an engine, as text.
func content(ks *engine.Keyspace) string {
	lines := []string{fmt.Sprint("latest ", ks.Latest())}
	tx := ks.Begin(ks.Latest())
	defer tx.End()
	for db := range uint8(engine.Databases) {
		tx.Select(db)
		var keys []string
		eachKey(tx, func(key []byte, _ limit.Kind) { keys = append(keys, string(key)) })
		slices.Sort(keys)
		for _, key := range keys {
			i, _ := tx.Inspect([]byte(key))
			at, _ := tx.Expiry([]byte(key))
			lines = append(lines, fmt.Sprintf("db%d %q %s until %d", db, key, describeKey(i), at))
		}
	}
	return strings.Join(lines, "\n")
}

// sample makes a folder with a base, deltas and every kind of value.
func sample(t testing.TB) (dir, want string) {
	t.Helper()
	dir = t.TempDir()
	o := still()
	o.compact, o.chunk, o.batch = 4000, 500, 2000
	f, ks := begin(t, dir, o)
	for round := range 12 {
		decide(t, ks, 60, round)
		if err := f.Save(); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; f.Info().Compactions == 0; i++ {
		if i > 1000 {
			t.Fatal("no compaction")
		}
		if err := f.Save(); err != nil {
			t.Fatal(err)
		}
	}
	decide(t, ks, 30, 13)
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dir, content(ks)
}

func TestEngineComesBackAsItWas(t *testing.T) {
	dir, want := sample(t)
	st, err := Open(dir, still())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	ks := newKeyspace(t)
	info, err := st.Load(ks)
	if err != nil {
		t.Fatal(err)
	}
	if got := content(ks); got != want {
		t.Fatalf("loaded\n%s\nwant\n%s", got, want)
	}
	if info.Created || info.Latest != t0+13e9 || st.Latest() != info.Latest || info.Bytes == 0 {
		t.Fatalf("%+v", info)
	}
	if n := ks.Changed(); n != 0 {
		t.Fatalf("%d keys count as changed after loading", n)
	}
}

func TestFlushedDatabasesStayEmpty(t *testing.T) {
	dir := t.TempDir()
	f, ks := begin(t, dir, still())
	decide(t, ks, 60, 0)
	if err := f.Save(); err != nil {
		t.Fatal(err)
	}
	tx := ks.Begin(t0 + 1e9)
	tx.Select(1)
	tx.FlushDB()
	tx.Select(2)
	tx.Delete([]byte("key 2"))
	tx.End()
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := content(ks)
	g, ks2 := begin(t, dir, still())
	defer g.Close(t.Context())
	if got := content(ks2); got != want || strings.Contains(got, "\ndb1") {
		t.Fatalf("loaded\n%s\nwant\n%s", got, want)
	}
}

// loads opens a file as a start does and returns what is in it.
func loads(t testing.TB, path string) (string, error) {
	r, err := openReader(path, true)
	if err != nil {
		return "", err
	}
	defer r.Close()
	ks := newKeyspace(t)
	if err := refuse(path, r.load(engineKeyspace{ks})); err != nil {
		return "", err
	}
	return content(ks), nil
}

// refused says whether an error is a refusal in a sentence.
func refused(err error, path string) bool {
	return (errors.Is(err, ErrDamaged) || errors.Is(err, ErrForeign) || errors.Is(err, ErrFormat)) &&
		strings.Contains(err.Error(), path) && !strings.Contains(err.Error(), "\n")
}

// TestADamagedFileIsRefusedOrRight flips bytes all over a state file, and cuts
// it short: it loads exactly what was saved, or is refused; never anything
// else, and it is never written to.
func TestADamagedFileIsRefusedOrRight(t *testing.T) {
	dir, want := sample(t)
	path := filepath.Join(dir, FileName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damagedPath := filepath.Join(t.TempDir(), FileName)
	if err := os.WriteFile(damagedPath, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(damagedPath, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	put := func(at int, v []byte) {
		if _, err := f.WriteAt(v, int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	right, wrong := 0, 0
	try := func(what string, at int) {
		got, err := loads(t, damagedPath)
		switch {
		case err != nil && refused(err, damagedPath):
			wrong++
		case err != nil:
			t.Fatalf("%s at %d: not a refusal: %v", what, at, err)
		case got != want:
			t.Fatalf("%s at %d: loaded something else", what, at)
		default:
			right++
		}
	}
	for at := range b {
		if at%pageSize < 48 || at%7 == 0 {
			put(at, []byte{b[at] ^ byte(1<<(at%8))})
			try("a bit flipped", at)
			if at%21 == 0 {
				put(at, []byte{^b[at]})
				try("a byte inverted", at)
			}
			put(at, b[at:at+1])
		}
	}
	// Pages that are lost, or come from elsewhere in the file.
	n := len(b) / pageSize
	for i := range n {
		at := i * pageSize
		put(at, make([]byte, pageSize))
		try("a page of zeros", at)
		for _, j := range []int{0, 1, (i + 1) % n, (i + 7) % n} {
			put(at, b[j*pageSize:(j+1)*pageSize])
			try("a page from elsewhere", at)
		}
		put(at, b[at:at+pageSize])
	}
	try("nothing", 0)
	for size := len(b) - 1; size > 0; size -= 1 + size/60 {
		if err := f.Truncate(int64(size)); err != nil {
			t.Fatal(err)
		}
		try("cut short", size)
	}
	t.Logf("%d bytes: %d refused, %d right", len(b), wrong, right)
	if wrong < 1000 || right < 1 {
		t.Fatal("the damage was not noticed, or the file has nothing in it")
	}
}

func TestADamagedFileIsNotTouched(t *testing.T) {
	dir, _ := sample(t)
	path := filepath.Join(dir, FileName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += 509 {
		b := bytes.Clone(whole)
		b[at] ^= 0x55
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		st, err := Open(dir, still())
		if err == nil {
			var ks = newKeyspace(t)
			if _, err = st.Load(ks); err == nil {
				// The damage is in what is not used: it must serve.
				f, err := st.Start()
				if err != nil {
					t.Fatalf("byte %d: loaded but not started: %v", at, err)
				}
				decide(t, ks, 60, 20)
				if err := f.Close(t.Context()); err != nil {
					t.Fatalf("byte %d: %v", at, err)
				}
				if got, err := loads(t, path); err != nil || got != content(ks) {
					t.Fatalf("byte %d: after a start and a stop: %v", at, err)
				}
				continue
			}
			if _, err := st.Start(); err == nil {
				t.Fatal("started after a failed load")
			}
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if !refused(err, path) {
			t.Fatalf("byte %d: %v", at, err)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(after, b) {
			t.Fatalf("byte %d: the damaged file was written to", at)
		}
	}
}

// TestFilesOfThisFormatLoad loads a state file made when the format was
// settled. It fails if today's program would misread the files of users.
func TestFilesOfThisFormatLoad(t *testing.T) {
	golden := filepath.Join("testdata", "format1")
	if *update {
		dir := t.TempDir()
		o := still()
		o.Version = "1.0.0"
		o.now = func() time.Time { return time.Unix(0, t0) }
		f, ks := begin(t, dir, o)
		decide(t, ks, 40, 0)
		if err := f.Save(); err != nil {
			t.Fatal(err)
		}
		decide(t, ks, 10, 1)
		if err := f.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, FileName))
		if err == nil {
			err = errors.Join(os.MkdirAll("testdata", 0o755),
				os.WriteFile(golden+".db", b, 0o644), os.WriteFile(golden+".txt", []byte(content(ks)+"\n"), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	got, err := loads(t, golden+".db")
	if err != nil {
		t.Fatal(err)
	}
	if got+"\n" != string(want) {
		t.Fatalf("loaded\n%s\nwant\n%s", got, want)
	}
}
