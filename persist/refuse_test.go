package persist

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
)

func TestASecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	f, _ := begin(t, dir, still())
	begun := time.Now()
	_, err := Open(dir, still())
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Fatalf("a held folder: %v", err)
	}
	if d := time.Since(begun); d > 4*time.Second {
		t.Fatalf("refused after %v", d)
	}
	if _, err := Backup(dir, filepath.Join(t.TempDir(), "b")); !errors.Is(err, ErrLocked) {
		t.Fatalf("a backup of a running server's folder: %v", err)
	}
	if err := Inspect(dir, &bytes.Buffer{}, InspectOptions{}); !errors.Is(err, ErrLocked) {
		t.Fatalf("inspecting a running server's file: %v", err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	st, err := Open(dir, still())
	if err != nil {
		t.Fatalf("after the first has stopped: %v", err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAFileHeldWithoutTheFolderIsRefused(t *testing.T) {
	dir, _ := sample(t)
	path := filepath.Join(dir, FileName)
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := Open(dir, still()); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Fatalf("a state file that something has open: %v", err)
	}
}

func TestModesOfWhatIsCreated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	f, _ := begin(t, dir, still())
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, FileName): 0o600, filepath.Join(dir, lockName): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
	dirs, _ := os.ReadDir(dir)
	if len(dirs) != 2 {
		t.Fatalf("more than the state and the lock: %v", dirs)
	}
}

func TestAnIncompleteNewFileIsReplaced(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName+newSuffix), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := Open(dir, still())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	info, err := st.Load(newKeyspace(t))
	if err != nil || !info.Created {
		t.Fatalf("%+v, %v", info, err)
	}
}

func boltFile(t *testing.T, path string, f func(tx *bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(f), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// putHeader is what a program of another time might have written.
func putHeader(change func(h *header)) func(tx *bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(headerBucket))
		if err != nil {
			return err
		}
		h := &header{format: FormatVersion, tx: uint64(tx.ID()), eras: []group{{id: 1}}, writtenBy: "9.9.9"}
		change(h)
		return b.Put([]byte(headerKey), h.append(nil))
	}
}

func TestOtherFilesAreRefusedAndNotTouched(t *testing.T) {
	cases := map[string]struct {
		make func(t *testing.T, path string)
		want error
		say  string
	}{
		"empty": {func(t *testing.T, path string) { os.WriteFile(path, nil, 0o600) }, ErrForeign, "it is empty"},
		"text": {func(t *testing.T, path string) {
			os.WriteFile(path, bytes.Repeat([]byte("some text\n"), 10_000), 0o600)
		}, ErrForeign, "something else"},
		"zeros":  {func(t *testing.T, path string) { os.WriteFile(path, make([]byte, 65536), 0o600) }, ErrForeign, "something else"},
		"folder": {func(t *testing.T, path string) { os.Mkdir(path, 0o700) }, ErrForeign, "no regular file"},
		"another program's database": {func(t *testing.T, path string) {
			boltFile(t, path, func(tx *bolt.Tx) error {
				b, err := tx.CreateBucket([]byte("users"))
				if err != nil {
					return err
				}
				return b.Put([]byte("root"), []byte("toor"))
			})
		}, ErrForeign, "another program"},
		"a newer format": {func(t *testing.T, path string) {
			boltFile(t, path, putHeader(func(h *header) { h.format = FormatVersion + 1 }))
		}, ErrFormat, `format 2, written by stint "9.9.9"`},
		"format 0": {func(t *testing.T, path string) {
			boltFile(t, path, putHeader(func(h *header) { h.format = 0 }))
		}, ErrFormat, "format 0"},
		"a write by another program": {func(t *testing.T, path string) {
			boltFile(t, path, putHeader(func(h *header) {}))
			boltFile(t, path, func(tx *bolt.Tx) error { return nil })
		}, ErrDamaged, "transaction"},
		"a bucket of no stint": {func(t *testing.T, path string) {
			boltFile(t, path, func(tx *bolt.Tx) error {
				b, _ := tx.CreateBucket([]byte("other"))
				_ = b.Put([]byte("k"), nil)
				return putHeader(func(h *header) {})(tx)
			})
		}, ErrDamaged, `"other"`},
		"a missing base": {func(t *testing.T, path string) {
			boltFile(t, path, putHeader(func(h *header) { h.base = group{id: 1, chunks: 1} }))
		}, ErrDamaged, "base 1 has 0 chunks of 1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, FileName)
			c.make(t, path)
			before, _ := os.ReadFile(path)
			stat, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			st, err := Open(dir, still())
			if err == nil {
				_, err = st.Load(newKeyspace(t))
				st.Close()
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.say) {
				t.Fatalf("got %v, want %v with %q", err, c.want, c.say)
			}
			for what, err := range map[string]error{
				"backup":  second(Backup(dir, filepath.Join(t.TempDir(), "b"))),
				"inspect": Inspect(path, &bytes.Buffer{}, InspectOptions{}),
			} {
				if !errors.Is(err, c.want) && name != "folder" {
					t.Errorf("%s: %v", what, err)
				}
				if err == nil {
					t.Errorf("%s of it succeeds", what)
				}
			}
			after, _ := os.ReadFile(path)
			now, err := os.Stat(path)
			if err != nil || !bytes.Equal(before, after) || !now.ModTime().Equal(stat.ModTime()) {
				t.Fatalf("the file was touched: %v", err)
			}
		})
	}
}

// TestAChunkThatIsNotTheLastOneWrittenIsRefused puts a chunk of another time
// in the place of one: its own checksum and place are right.
func TestAChunkThatIsNotTheLastOneWrittenIsRefused(t *testing.T) {
	dir, _ := sample(t)
	path := filepath.Join(dir, FileName)
	boltFile(t, path, func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(headerBucket))
		h, err := parseHeader(b.Get([]byte(headerKey)))
		if err != nil {
			return err
		}
		place := chunkPlace{deltaChunk, h.era().id, 0}
		old := bytes.Clone(tx.Bucket([]byte(place.bucket())).Get(chunkKey(0)))
		sealChunk(old, place, 1<<40)
		h.tx = uint64(tx.ID())
		return errors.Join(tx.Bucket([]byte(place.bucket())).Put(chunkKey(0), old), b.Put([]byte(headerKey), h.append(nil)))
	})
	if _, err := loads(t, path); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "written last") {
		t.Fatalf("a chunk of another time: %v", err)
	}
}

func TestAChunkInAnotherPlaceIsNoticed(t *testing.T) {
	p := chunkPlace{baseChunk, 3, 7}
	b := append(make([]byte, chunkHeader), "payload"...)
	sealChunk(b, p, 5)
	if got, err := openChunk(b, p); err != nil || string(got) != "payload" {
		t.Fatalf("%q, %v", got, err)
	}
	for _, other := range []chunkPlace{{deltaChunk, 3, 7}, {baseChunk, 4, 7}, {baseChunk, 3, 8}} {
		if _, err := openChunk(b, other); !errors.Is(err, ErrDamaged) {
			t.Errorf("%+v found at %+v: %v", p, other, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestAStateBeyondTheMemoryLimitLoads(t *testing.T) {
	dir, want := sample(t)
	st, err := Open(dir, still())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	ks, err := engine.New(engine.Options{Track: true, MaxMemory: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Load(ks); err != nil || content(ks) != want {
		t.Fatalf("with a memory limit below what was saved: %v", err)
	}
}

func TestBackupIsTheState(t *testing.T) {
	dir, want := sample(t)
	source := filepath.Join(dir, FileName)
	before, _ := os.ReadFile(source)
	for _, from := range []string{dir, source} {
		to := t.TempDir()
		dest := filepath.Join(to, "copy.db")
		info, err := Backup(from, dest)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := loads(t, dest); err != nil || got != want {
			t.Fatalf("the backup holds something else: %v", err)
		}
		stat, err := os.Stat(dest)
		if err != nil || stat.Size() != info.Bytes || stat.Mode().Perm() != 0o600 || info.Latest != t0+13e9 || info.Changes < 60 || info.Source != source {
			t.Fatalf("%+v, %v", info, err)
		}
		if _, err := Backup(from, dest); !errors.Is(err, fs.ErrExist) {
			t.Fatalf("a second backup to the same name: %v", err)
		}
		if files, _ := os.ReadDir(to); len(files) != 1 {
			t.Fatalf("left besides the backup: %v", files)
		}
		// A backup in the place of the state file is one.
		again := t.TempDir()
		if err := os.Rename(dest, filepath.Join(again, FileName)); err != nil {
			t.Fatal(err)
		}
		f, ks := begin(t, again, still())
		if got := content(ks); got != want {
			t.Fatal("a restored backup holds something else")
		}
		decide(t, ks, 9, 30)
		if err := f.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := loads(t, filepath.Join(again, FileName)); err != nil || got != content(ks) {
			t.Fatalf("after going on from a backup: %v", err)
		}
	}
	if after, _ := os.ReadFile(source); !bytes.Equal(before, after) {
		t.Fatal("a backup changed its source")
	}
}

func TestBackupOfADamagedFileLeavesNothing(t *testing.T) {
	dir, _ := sample(t)
	path := filepath.Join(dir, FileName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := openReader(path, false)
	if err != nil {
		t.Fatal(err)
	}
	// A byte within the payload of a chunk that counts.
	var marker []byte
	if err := r.chunks(func(_ chunkPlace, payload []byte) error { marker = bytes.Clone(payload); return nil }); err != nil {
		t.Fatal(err)
	}
	r.Close()
	for at := 0; ; at++ {
		i := bytes.Index(b[at:], marker)
		if i < 0 {
			break
		}
		at += i
		b[at+len(marker)-1] ^= 1 // wherever it is, stale copies included
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	_, err = Backup(dir, filepath.Join(to, "copy.db"))
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "checksum") {
		t.Fatalf("backup of a damaged file: %v", err)
	}
	if files, _ := os.ReadDir(to); len(files) != 0 {
		t.Fatalf("left behind: %v", files)
	}
	if _, err := Backup(t.TempDir(), filepath.Join(to, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("backup of a folder without a state: %v", err)
	}
}

func TestInspectTellsWhatIsThere(t *testing.T) {
	dir, _ := sample(t)
	path := filepath.Join(dir, FileName)
	before, _ := os.ReadFile(path)
	var short, long bytes.Buffer
	if err := Inspect(dir, &short, InspectOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := Inspect(path, &long, InspectOptions{Keys: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		path, "format:          1\n", "by stint test", "latest decision: 2023-11-14T22:13:33Z", "generation ", "(eras: ", "verified:        yes",
		"db0:             20 keys, 4 bucket, 4 leak, 4 fixed, 4 sliding, 4 log\n", "db2:",
	} {
		if !strings.Contains(short.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, &short)
		}
	}
	if !strings.HasPrefix(long.String(), short.String()) {
		t.Error("with keys, the summary is another")
	}
	if n := strings.Count(long.String(), " limit="); n != 59 && n != 60 {
		t.Errorf("%d keys are told of", n)
	}
	if want := `db0 "key 12" fixed limit=100 period=1d used=`; !strings.Contains(long.String(), want) {
		t.Errorf("the keys lack %q:\n%s", want, &long)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^(db\d+ "[^"]+") \S+ limit=\d+ (rate|period)=(\S+) `).FindAllStringSubmatch(long.String(), -1) {
		names = append(names, m[1])
		// What is shown can be given again.
		ok := false
		if m[2] == "rate" {
			_, ok = limit.ParseRate([]byte(m[3]))
		} else {
			_, ok = limit.ParsePeriod([]byte(m[3]))
		}
		if !ok {
			t.Errorf("no command reads the %s %s of %s", m[2], m[3], m[1])
		}
	}
	if len(names) < 59 || !slices.IsSorted(names) {
		t.Errorf("%d keys are not sorted: %q", len(names), names)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("inspecting changed the file")
	}
}

// TestAdviceFitsWhoAsked fails when who starts a server and who looks at a
// file read the advice meant for the other.
func TestAdviceFitsWhoAsked(t *testing.T) {
	free := t.TempDir()
	used := t.TempDir()
	f, ks := begin(t, used, still())
	decide(t, ks, 9, 3)
	defer f.Close(t.Context())
	other := filepath.Join(t.TempDir(), FileName)
	if err := os.WriteFile(other, []byte("# A readme\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	look := func(path string) error { return Inspect(path, io.Discard, InspectOptions{}) }
	copied := func(path string) error { return second(Backup(path, filepath.Join(t.TempDir(), "b"))) }
	opened := func(path string) error { return second(Open(path, still())) }
	const server, readable = "choose another folder with --dir", "name the state.db of a server's folder"
	for _, c := range []struct {
		name string
		err  error
		kind error
		want string
	}{
		{"start in a folder in use", opened(used), ErrLocked, server},
		{"backup of a folder in use", copied(used), ErrLocked, "stop it first"},
		{"inspect a folder in use", look(used), ErrLocked, "stop it first"},
		{"start with another file", opened(filepath.Dir(other)), ErrForeign, server},
		{"backup of another file", copied(other), ErrForeign, readable},
		{"inspect another file", look(other), ErrForeign, readable},
		{"inspect nothing", look(filepath.Join(free, "none")), fs.ErrNotExist, "there is no file or folder " + filepath.Join(free, "none")},
		{"inspect an empty folder", look(free), fs.ErrNotExist, free + " holds no state.db"},
		{"backup of an empty folder", copied(free), fs.ErrNotExist, free + " holds no state.db"},
	} {
		if !errors.Is(c.err, c.kind) || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.name, c.err, c.want)
			continue
		}
		if c.want != server && strings.Contains(c.err.Error(), "another folder") {
			t.Errorf("%s: %v; that is advice for who starts a server", c.name, c.err)
		}
	}
}

func FuzzChunk(f *testing.F) {
	place := chunkPlace{deltaChunk, 3, 7}
	dir, _ := sample(f)
	r, err := openReader(filepath.Join(dir, FileName), false)
	if err != nil {
		f.Fatal(err)
	}
	defer r.Close()
	_ = r.chunks(func(_ chunkPlace, payload []byte) error {
		b := append(make([]byte, chunkHeader), payload...)
		sealChunk(b, place, 5)
		f.Add(b, false)
		return nil
	})
	f.Add([]byte{}, false)
	f.Add(make([]byte, chunkHeader), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) >= chunkHeader {
			sealChunk(b, place, 5) // to come past the checksum
		}
		payload, err := openChunk(b, place)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		n := 0
		visited := engine.VisitChunk(payload, func(*engine.Change) error { n++; return nil })
		loaded := newKeyspace(t).Load(payload)
		if (visited == nil) != (loaded == nil) {
			t.Fatalf("visited: %v, loaded: %v", visited, loaded)
		}
	})
}

func FuzzHeader(f *testing.F) {
	h := &header{format: FormatVersion, tx: 3, sequence: 9, latest: t0, created: 1, saved: 2, base: group{1, 2, 3, 4},
		eras: []group{{5, 6, 7, 8}, {9, 10, 11, 12}}, createdBy: "1.0.0", writtenBy: "1.1.0"}
	whole := h.append(nil)
	f.Add(whole[12:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		b := append(bytes.Clone(whole[:12]), body...)
		order.PutUint32(b[8:], checksum(b[12:]))
		h, err := parseHeader(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		if got := h.append(nil); !bytes.Equal(got, b) {
			t.Fatalf("read and written again:\n%x\n%x", got, b)
		}
	})
}
