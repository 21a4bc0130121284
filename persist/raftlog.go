package persist

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/stint-dev/stint/persist/internal/boltfile"
)

// LogFileName is the name of Raft's log in the folder of a cluster's node, and
// SnapshotDir that of its folder of snapshots.
const (
	LogFileName = "raft.db"
	SnapshotDir = "snapshots"
)

// deleteStep bounds the entries that one transaction deletes: a large one would
// keep the next entry waiting.
const deleteStep = 256

// LogOptions of a Log.
type LogOptions struct {
	// NoSync does not wait for the disk: only to see that tests notice it.
	NoSync bool
}

// Log is Raft's log and its votes, in one bbolt file. What it stores is on disk
// when it returns. Its methods may be called from any goroutine.
type Log struct {
	*raftboltdb.BoltStore
	path string

	mu    sync.Mutex
	first uint64 // index of the first entry, if there are any
	sizes []uint32
	bytes int64
}

// OpenLog opens the log at path, which is made if there is none. The structure of
// one that is there is checked first: errors of a damaged one wrap ErrDamaged.
func OpenLog(path string, o LogOptions) (l *Log, err error) {
	l = &Log{path: path}
	if err := l.examine(); err != nil {
		return nil, err
	}
	defer trap(&err)
	l.BoltStore, err = raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bolt.Options{
			// The list of free pages of a large log would be written with each
			// entry; it is found by a scan when the file is opened.
			FreelistType: bolt.FreelistMapType, NoFreelistSync: true,
			Timeout: openTimeout, NoStatistics: true,
		},
		NoSync:                  o.NoSync,
		MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return nil, fmt.Errorf("open the log %s: %w", path, err)
	}
	if err := syncFolderOf(path); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// examine checks the structure of a log that is there and measures its entries.
func (l *Log) examine() error {
	f, err := openRegular(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the log %s: %w", l.path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return os.Remove(l.path) // a crash before anything was in it
	}
	b, err := boltfile.Open(f, info.Size())
	if err == nil {
		err = b.Scan(func(bucket, key []byte, v boltfile.Value) error {
			if string(bucket) != "logs" {
				return nil
			}
			i, err := parseChunkKey(key)
			switch {
			case err != nil:
				return err
			case len(l.sizes) == 0:
				l.first = i
			case i != l.first+uint64(len(l.sizes)):
				// Raft leaves such a gap when it restores a state.
				l.first, l.sizes, l.bytes = i, nil, 0
			}
			l.sizes = append(l.sizes, uint32(v.Size))
			l.bytes += int64(v.Size)
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("the log %s is %w: %w; remove the node from the cluster, move its folder away, and let it join again", l.path, ErrDamaged, err)
	}
	return nil
}

// Bytes is the size of all entries.
func (l *Log) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// StoreLog stores one entry.
func (l *Log) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs stores entries.
func (l *Log) StoreLogs(es []*raft.Log) (err error) {
	if err = l.store(es); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range es {
		size := uint32(len(e.Data) + len(e.Extensions) + entryOverhead)
		if at := e.Index - l.first; len(l.sizes) > 0 && e.Index >= l.first && at < uint64(len(l.sizes)) {
			l.bytes -= int64(l.sizes[at])
			l.sizes[at] = size
		} else {
			if len(l.sizes) == 0 || at != uint64(len(l.sizes)) {
				l.first, l.sizes, l.bytes = e.Index, l.sizes[:0], 0
			}
			l.sizes = append(l.sizes, size)
		}
		l.bytes += int64(size)
	}
	return nil
}

// entryOverhead is about what an entry takes besides its data.
const entryOverhead = 100

func (l *Log) store(es []*raft.Log) (err error) {
	defer trap(&err)
	return l.BoltStore.StoreLogs(es)
}

// DeleteRange deletes entries, a few at a time: from the end that no gap can appear
// at if the machine stops in between.
func (l *Log) DeleteRange(lo, hi uint64) error {
	last, err := l.LastIndex()
	if err != nil {
		return err
	}
	for lo <= hi {
		from, to := lo, min(hi, lo+deleteStep-1)
		if hi >= last {
			from, to = max(lo, hi-min(hi, deleteStep-1)), hi
		}
		if err := l.remove(from, to); err != nil {
			return err
		}
		if hi >= last {
			if from == 0 {
				return nil
			}
			hi, last = from-1, from-1
		} else {
			lo = to + 1
		}
	}
	return nil
}

func (l *Log) remove(from, to uint64) (err error) {
	defer trap(&err)
	if err := l.BoltStore.DeleteRange(from, to); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := uint64(len(l.sizes))
	if n == 0 || to < l.first || from >= l.first+n {
		return nil
	}
	a, b := max(from, l.first)-l.first, min(to+1, l.first+n)-l.first
	for _, size := range l.sizes[a:b] {
		l.bytes -= int64(size)
	}
	if a == 0 {
		l.sizes = append([]uint32(nil), l.sizes[b:]...)
		l.first += b
	} else {
		l.sizes = l.sizes[:a]
	}
	return nil
}
