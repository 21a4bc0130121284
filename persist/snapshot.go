package persist

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"

	"github.com/stint-dev/stint/persist/internal/boltfile"
)

// A snapshot file is a bbolt database with one bucket, "snapshot":
//
//	"meta"                 CRC-32C, then JSON of snapshotMeta
//	index (8 bytes, BE)    CRC-32C over index and data, then data: a chunk
//
// It is built under another name, in order, with full pages, and gets its name
// when all of it is on disk.
const (
	snapshotBucket = "snapshot"
	snapshotMeta   = "meta"
	snapshotSuffix = ".snap"

	snapshotFormat = 1
	snapshotChunk  = 1 << 20  // bytes
	snapshotSync   = 16 << 20 // bytes between two syncs: one at the end would stall the log's own
	sumSize        = 4
)

// SnapshotOptions of Snapshots.
type SnapshotOptions struct {
	Retain int          // how many are kept; 0: 2
	Logger *slog.Logger // nil: nothing is logged
}

// Snapshots is a raft.SnapshotStore: a folder with a file for each snapshot. Its
// methods may be called from any goroutine.
type Snapshots struct {
	dir string
	o   SnapshotOptions

	mu  sync.Mutex // guards the folder's list against removal
	bad map[string]bool
}

var _ raft.SnapshotStore = (*Snapshots)(nil)

// snapshotHead is what a file says about its snapshot.
type snapshotHead struct {
	Format             int
	ID                 string
	Version            int
	Index, Term        uint64
	Configuration      []byte // as raft.EncodeConfiguration has it
	ConfigurationIndex uint64
	Size               int64
	Chunks             uint64
}

func (h *snapshotHead) meta() *raft.SnapshotMeta {
	return &raft.SnapshotMeta{
		Version: raft.SnapshotVersion(h.Version), ID: h.ID, Index: h.Index, Term: h.Term,
		Configuration: raft.DecodeConfiguration(h.Configuration), ConfigurationIndex: h.ConfigurationIndex, Size: h.Size,
	}
}

// OpenSnapshots opens the folder of snapshots, which is made if there is none.
// What a crash has left unfinished is removed. The caller holds the lock of the
// node's folder.
func OpenSnapshots(dir string, o SnapshotOptions) (*Snapshots, error) {
	if o.Retain <= 0 {
		o.Retain = 2
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := makeFolder(dir, &onDisk); err != nil {
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"+newSuffix))
	if err != nil {
		return nil, fmt.Errorf("look for unfinished snapshots: %w", err)
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove an unfinished snapshot: %w", err)
		}
	}
	return &Snapshots{dir: dir, o: o, bad: map[string]bool{}}, nil
}

func (s *Snapshots) path(id string) string { return filepath.Join(s.dir, id+snapshotSuffix) }

// Create begins a snapshot. It counts when the sink is closed.
func (s *Snapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	unique := make([]byte, 4)
	_, _ = rand.Read(unique)
	id := fmt.Sprintf("%016x-%016x-%s", term, index, hex.EncodeToString(unique))
	k := &snapshotSink{s: s, tmp: s.path(id) + newSuffix, head: snapshotHead{
		Format: snapshotFormat, ID: id, Version: int(version), Index: index, Term: term,
		Configuration: raft.EncodeConfiguration(configuration), ConfigurationIndex: configurationIndex,
	}}
	if err := k.open(); err != nil {
		return nil, fmt.Errorf("create a snapshot: %w", err)
	}
	return k, nil
}

// snapshotSink is a snapshot that is being written, by one goroutine.
type snapshotSink struct {
	s    *Snapshots
	tmp  string
	head snapshotHead

	db     *bolt.DB
	tx     *bolt.Tx
	bucket *bolt.Bucket
	buf    []byte // the chunk at hand, with room for its sum
	since  int    // bytes since the last sync
	failed error
}

func (k *snapshotSink) open() (err error) {
	defer trap(&err)
	k.db, err = bolt.Open(k.tmp, 0o600, &bolt.Options{PageSize: pageSize, NoFreelistSync: true, FreelistType: bolt.FreelistMapType, NoSync: true, NoGrowSync: true, NoStatistics: true, Timeout: openTimeout})
	if err != nil {
		return err
	}
	return k.begin()
}

func (k *snapshotSink) begin() (err error) {
	if k.tx, err = k.db.Begin(true); err != nil {
		return err
	}
	k.bucket, err = k.tx.CreateBucketIfNotExists([]byte(snapshotBucket))
	if err == nil {
		k.bucket.FillPercent = 1
	}
	return err
}

// ID of the snapshot.
func (k *snapshotSink) ID() string { return k.head.ID }

// Write adds to the snapshot.
func (k *snapshotSink) Write(b []byte) (n int, err error) {
	for len(b) > 0 && k.failed == nil {
		if k.buf == nil {
			k.buf = make([]byte, sumSize, sumSize+snapshotChunk)
		}
		step := min(len(b), cap(k.buf)-len(k.buf))
		k.buf = append(k.buf, b[:step]...)
		b, n = b[step:], n+step
		k.head.Size += int64(step)
		if len(k.buf) == cap(k.buf) {
			k.failed = k.chunk()
		}
	}
	return n, k.failed
}

// chunk writes the chunk at hand.
func (k *snapshotSink) chunk() (err error) {
	if len(k.buf) <= sumSize {
		return nil
	}
	defer trap(&err)
	key := chunkKey(k.head.Chunks)
	order.PutUint32(k.buf, chunkSum(key, k.buf[sumSize:]))
	if err := k.bucket.Put(key, k.buf); err != nil {
		return err
	}
	k.head.Chunks++
	k.since += len(k.buf)
	k.buf = make([]byte, sumSize, sumSize+snapshotChunk) // bbolt keeps the other until the commit
	if k.since < snapshotSync {
		return nil
	}
	k.since = 0
	if err := k.tx.Commit(); err != nil {
		return err
	}
	k.tx = nil
	if err := k.db.Sync(); err != nil {
		return err
	}
	return k.begin()
}

// Close completes the snapshot: when it returns nil the snapshot would survive the
// machine, and older ones may be gone.
func (k *snapshotSink) Close() error {
	if k.db == nil {
		return nil
	}
	err := k.failed
	if err == nil {
		err = k.finish()
	}
	if err != nil {
		k.discard()
		return fmt.Errorf("write the snapshot %s: %w", k.tmp, err)
	}
	if err := onDisk.place(k.tmp, k.s.path(k.head.ID)); err != nil {
		k.discard()
		return fmt.Errorf("name the snapshot %s: %w", k.tmp, err)
	}
	_ = os.Remove(k.tmp) // a link is left where the file system has links
	if err := onDisk.syncFolder(k.s.dir); err != nil {
		return fmt.Errorf("name the snapshot %s: %w", k.tmp, err)
	}
	k.s.reap()
	return nil
}

func (k *snapshotSink) finish() (err error) {
	defer trap(&err)
	if err := k.chunk(); err != nil {
		return err
	}
	b, err := json.Marshal(k.head)
	if err != nil {
		return err
	}
	sum := order.AppendUint32(nil, checksum(b))
	if err := k.bucket.Put([]byte(snapshotMeta), append(sum, b...)); err != nil {
		return err
	}
	if err := k.tx.Commit(); err != nil {
		return err
	}
	k.tx = nil
	if err := k.db.Sync(); err != nil {
		return err
	}
	err = k.db.Close()
	k.db = nil
	return err
}

// discard leaves nothing of the snapshot.
func (k *snapshotSink) discard() {
	defer func() { _ = recover() }() // of bbolt, which may have broken down before
	defer os.Remove(k.tmp)
	if k.tx != nil {
		_ = k.tx.Rollback()
		k.tx = nil
	}
	if k.db != nil {
		_ = k.db.Close()
		k.db = nil
	}
}

// Cancel gives the snapshot up.
func (k *snapshotSink) Cancel() error {
	if k.db != nil {
		k.discard()
	}
	return nil
}

// names lists the IDs of the snapshots in the folder, newest first.
func (s *Snapshots) names() ([]string, error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list the snapshots: %w", err)
	}
	var ids []string
	for _, f := range files {
		if id, ok := strings.CutSuffix(f.Name(), snapshotSuffix); ok && f.Type().IsRegular() {
			ids = append(ids, id)
		}
	}
	sort.Sort(sort.Reverse(sort.StringSlice(ids)))
	return ids, nil
}

// List describes the snapshots, newest first. Those that cannot be read are left
// out, so that an older one is used, and logged once.
func (s *Snapshots) List() ([]*raft.SnapshotMeta, error) {
	ids, err := s.names()
	if err != nil {
		return nil, err
	}
	var list []*raft.SnapshotMeta
	for _, id := range ids {
		r, err := s.open(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			s.mu.Lock()
			known := s.bad[id]
			s.bad[id] = true
			s.mu.Unlock()
			if !known {
				s.o.Logger.Error("a snapshot cannot be used; an older one is, and the log", "error", err)
			}
			continue
		}
		list = append(list, r.head.meta())
		_ = r.Close()
		if len(list) == s.o.Retain {
			break
		}
	}
	return list, nil
}

// Open opens a snapshot for reading. What is read is checked on the way: an error
// says which file is damaged.
func (s *Snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	r, err := s.open(id)
	if err != nil {
		return nil, nil, err
	}
	return r.head.meta(), r, nil
}

// reap removes all but the newest.
func (s *Snapshots) reap() {
	ids, err := s.names()
	if err != nil {
		return
	}
	for _, id := range ids[min(s.o.Retain, len(ids)):] {
		if err := os.Remove(s.path(id)); err != nil {
			s.o.Logger.Warn("an old snapshot could not be removed", "error", err)
		}
	}
}

// snapshotReader reads a snapshot with plain reads.
type snapshotReader struct {
	path   string
	file   *os.File
	bolt   *boltfile.File
	head   snapshotHead
	values []boltfile.Value // of the chunks
	next   int
	buf    []byte // the chunk at hand
	rest   []byte // of it
	read   int64
}

func (s *Snapshots) open(id string) (_ *snapshotReader, err error) {
	r := &snapshotReader{path: s.path(id)}
	if r.file, err = openRegular(r.path); err != nil {
		return nil, fmt.Errorf("open the snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			r.file.Close()
		}
	}()
	info, err := r.file.Stat()
	if err != nil {
		return nil, err
	}
	if r.bolt, err = boltfile.Open(r.file, info.Size()); err != nil {
		return nil, r.damaged("%w", err)
	}
	var meta boltfile.Value
	err = r.bolt.Scan(func(bucket, key []byte, v boltfile.Value) error {
		if string(bucket) != snapshotBucket {
			return fmt.Errorf("it holds a bucket %q", bucket)
		}
		if string(key) == snapshotMeta {
			meta = v
			return nil
		}
		if i, err := parseChunkKey(key); err != nil || i != uint64(len(r.values)) {
			return fmt.Errorf("chunk %d is missing", len(r.values))
		}
		r.values = append(r.values, v)
		return nil
	})
	if err != nil {
		return nil, r.damaged("%w", err)
	}
	b, err := r.bolt.Read(meta, nil)
	if err != nil || len(b) < sumSize || checksum(b[sumSize:]) != order.Uint32(b) {
		return nil, r.damaged("its description is missing or wrong")
	}
	if err := json.Unmarshal(b[sumSize:], &r.head); err != nil {
		return nil, r.damaged("its description: %w", err)
	}
	switch {
	case r.head.Format > snapshotFormat:
		return nil, fmt.Errorf("%w: the snapshot %s is of format %d, and this program reads up to %d: use the version of stint that wrote it", ErrFormat, r.path, r.head.Format, snapshotFormat)
	case r.head.ID != id:
		return nil, r.damaged("it is snapshot %s under another name", r.head.ID)
	case r.head.Chunks != uint64(len(r.values)):
		return nil, r.damaged("it has %d of %d chunks", len(r.values), r.head.Chunks)
	}
	return r, nil
}

func (r *snapshotReader) damaged(format string, args ...any) error {
	return fmt.Errorf("the snapshot %s is %w: %w; move it away: the node then uses an older one or copies the state from the others", r.path, ErrDamaged, fmt.Errorf(format, args...))
}

func (r *snapshotReader) Read(b []byte) (n int, err error) {
	for len(r.rest) == 0 {
		if r.next == len(r.values) {
			if r.read != r.head.Size {
				return 0, r.damaged("it has %d bytes where %d were written", r.read, r.head.Size)
			}
			return 0, io.EOF
		}
		if r.buf, err = r.bolt.Read(r.values[r.next], r.buf); err != nil {
			return 0, fmt.Errorf("read the snapshot %s: %w", r.path, err)
		}
		if len(r.buf) < sumSize || chunkSum(chunkKey(uint64(r.next)), r.buf[sumSize:]) != order.Uint32(r.buf) {
			return 0, r.damaged("the checksum of chunk %d is wrong", r.next)
		}
		r.rest = r.buf[sumSize:]
		r.read += int64(len(r.rest))
		r.next++
	}
	n = copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// chunkSum is the checksum of a chunk and its place.
func chunkSum(key, data []byte) uint32 {
	return crc32.Update(checksum(key), castagnoli, data)
}

// Close ends the reading.
func (r *snapshotReader) Close() error { return r.file.Close() }
