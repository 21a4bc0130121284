package persist

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
)

const (
	// snapshotChunk is how many bytes a chunk holds, but for the last. bbolt writes
	// the last four of a transaction anew in the next: they are to be small beside
	// it.
	snapshotChunk = 64 << 10
	// snapshotBatch is how many bytes of chunks one transaction writes. bbolt
	// holds them twice until it is done, so this bounds the memory.
	snapshotBatch = batchBytes
	// snapshotSync is how many bytes are written between two syncs. Were there
	// but one, at the end, Raft's log, which syncs the same disk with each entry,
	// would wait for all of it at once.
	snapshotSync = 16 << 20
	// snapshotBuffers are the chunks in memory: those of a transaction, and some
	// that are filled meanwhile. With only those of one there would be nobody to
	// move first.
	snapshotBuffers = snapshotBatch/snapshotChunk + 16
)

// errCancelled is how the writer of a cancelled snapshot ends.
var errCancelled = errors.New("cancelled")

// snapshotSink is a snapshot that is being written. Its methods are for one
// goroutine. They only gather chunks; a goroutine of its own, begun by
// newSnapshotSink and ended by Close and Cancel, writes them with low priority,
// as decisions go on beside it.
type snapshotSink struct {
	s         *Snapshots
	path, tmp string
	head      snapshotHead

	buf    []byte // the chunk being filled; nil: none
	made   int    // buffers
	closed bool   // by Close or Cancel
	result error  // of Close

	full chan []byte   // chunks to be written, in order
	free chan []byte   // buffers that come back
	stop chan struct{} // closed by Cancel
	done chan struct{} // the goroutine has ended

	// The goroutine's own; failed may be read when it has ended.
	failed error
	db     *bolt.DB
	file   *os.File // under db
	since  int      // bytes since the last sync
	litter garbage
}

func newSnapshotSink(s *Snapshots, head snapshotHead) (*snapshotSink, error) {
	if err := head.fits(); err != nil {
		return nil, err
	}
	k := &snapshotSink{
		s: s, path: s.path(head.name), tmp: s.path(head.name) + newSuffix, head: head,
		full: make(chan []byte, snapshotBuffers), free: make(chan []byte, snapshotBuffers),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := k.open(); err != nil {
		k.discard()
		return nil, err
	}
	go k.run()
	return k, nil
}

// ID is that of the snapshot.
func (k *snapshotSink) ID() string { return k.head.name.String() }

// Write adds to the snapshot. An error may be that of an earlier Write: then the
// snapshot cannot be completed, and Cancel or Close is all that is left.
func (k *snapshotSink) Write(b []byte) (n int, err error) {
	if k.closed {
		return 0, fmt.Errorf("write to the snapshot %s: %w", k.path, fs.ErrClosed)
	}
	for len(b) > 0 {
		if k.buf == nil {
			if k.buf, err = k.buffer(); err != nil {
				return n, err
			}
		}
		step := min(len(b), cap(k.buf)-len(k.buf))
		k.buf = append(k.buf, b[:step]...)
		b, n = b[step:], n+step
		if len(k.buf) == cap(k.buf) {
			if err := k.send(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// buffer gets an empty chunk, and waits for the writer if too many are full.
func (k *snapshotSink) buffer() ([]byte, error) {
	var b []byte
	select {
	case b = <-k.free:
	default:
		if k.made < snapshotBuffers {
			k.made++
			return make([]byte, snapshotChunkHeader, snapshotChunkHeader+snapshotChunk), nil
		}
		select {
		case b = <-k.free:
		case <-k.done:
			return nil, k.trouble()
		}
	}
	return b[:snapshotChunkHeader], nil
}

// send hands the chunk to the writer.
func (k *snapshotSink) send() error {
	select {
	case <-k.done:
		return k.trouble()
	default:
	}
	payload := k.buf[snapshotChunkHeader:]
	k.head.sum = crc32.Update(k.head.sum, castagnoli, payload)
	k.head.size += int64(len(payload))
	sealSnapshotChunk(k.buf, k.head.name.random, k.head.chunks)
	k.head.chunks++
	k.full <- k.buf // it has room for all buffers
	k.buf = nil
	return nil
}

func (k *snapshotSink) trouble() error {
	return fmt.Errorf("write the snapshot %s: %w", k.path, k.failed)
}

// Close completes the snapshot. When it returns nil the snapshot survives a crash
// of the machine, and older ones may be gone; otherwise nothing of it is left. To
// call it again changes nothing and returns the same.
func (k *snapshotSink) Close() error {
	if !k.closed {
		k.closed = true
		k.result = k.complete()
	}
	return k.result
}

func (k *snapshotSink) complete() error {
	if len(k.buf) > snapshotChunkHeader {
		if err := k.send(); err != nil {
			return err
		}
	}
	close(k.full)
	<-k.done
	if k.failed != nil {
		return k.trouble()
	}
	disk := k.s.o.disk
	err := disk.place(k.tmp, k.path)
	if err == nil {
		err = disk.syncFolder(k.s.dir)
	}
	if err != nil {
		for _, path := range []string{k.tmp, k.path} {
			if e := os.Remove(path); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
		return fmt.Errorf("name the snapshot %s: %w", k.path, err)
	}
	k.s.reap()
	return nil
}

// Cancel gives the snapshot up and leaves nothing of it. After Close it does
// nothing.
func (k *snapshotSink) Cancel() error {
	if !k.closed {
		k.closed = true
		k.result = fmt.Errorf("the snapshot %s: %w", k.path, errCancelled)
		close(k.stop)
		<-k.done
	}
	return nil
}

// run is the goroutine that writes.
func (k *snapshotSink) run() {
	defer close(k.done)
	background()
	if err := k.write(); err != nil {
		k.failed = err
		k.discard()
	}
}

// write writes all chunks, then the head.
func (k *snapshotSink) write() error {
	var batch [][]byte
	var index uint64 // of the batch's first
	size := 0
	for more := true; more; {
		var b []byte
		select {
		case <-k.stop:
			return errCancelled
		case b, more = <-k.full:
		}
		if more {
			batch, size = append(batch, b), size+len(b)
		}
		if len(batch) == 0 || more && size < snapshotBatch {
			continue
		}
		begin := time.Now()
		err := k.transact(func(bucket *bolt.Bucket) error {
			for i, b := range batch {
				if err := bucket.Put(chunkKey(index+uint64(i)), b); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if k.since += size; k.since >= snapshotSync {
			if err := k.s.o.disk.sync(k.file); err != nil {
				return err
			}
			k.since = 0
		}
		k.litter.add(int64(size))
		index += uint64(len(batch))
		for _, b := range batch {
			k.free <- b
		}
		batch, size = batch[:0], 0
		pause(time.Since(begin))
	}
	// The channel was closed after the head had got its last figure.
	head := k.head.append(nil)
	err := k.transact(func(bucket *bolt.Bucket) error { return bucket.Put([]byte(snapshotMeta), head) })
	if err != nil {
		return err
	}
	if err := k.s.o.disk.sync(k.file); err != nil {
		return err
	}
	k.litter.giveBack()
	return k.shut()
}

func (k *snapshotSink) open() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer trap(&err)
	k.db, err = bolt.Open(k.tmp, 0o600, &bolt.Options{
		Timeout: openTimeout, PageSize: pageSize, FreelistType: bolt.FreelistMapType, NoStatistics: true,
		// Nobody looks at the file before it is complete and synced.
		NoSync: true, NoGrowSync: true,
		OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
			f, err := os.OpenFile(name, flag|os.O_EXCL, perm)
			k.file = f
			return f, err
		},
	})
	if err != nil {
		k.db = nil
	}
	return err
}

func (k *snapshotSink) transact(do func(*bolt.Bucket) error) error {
	return k.s.o.commit(func() (err error) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer trap(&err)
		return k.db.Update(func(tx *bolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte(snapshotBucket))
			if err != nil {
				return err
			}
			bucket.FillPercent = 1 // keys only ever come at the end
			return do(bucket)
		})
	})
}

func (k *snapshotSink) shut() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer trap(&err)
	db := k.db
	k.db = nil
	return db.Close()
}

// discard leaves nothing of a snapshot that cannot be completed.
func (k *snapshotSink) discard() {
	if k.db != nil {
		abandon(k.db.Close, k.file)
		k.db = nil
	} else if k.file != nil {
		letGo(k.file) // already closed, unless bbolt panicked
	}
	_ = os.Remove(k.tmp) // the next start tries it again
}
