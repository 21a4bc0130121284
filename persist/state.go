// Package persist keeps the state of a single node in one file.
//
// The engine remembers which keys changed. Each interval a Flusher takes one
// consistent cut of them and writes it to a bbolt file, as a few large chunks
// rather than a key at a time: a key that was decided on a million times is
// written once, and ten million keys are some thousands of sequential writes.
// A restart loads the last dump of everything (the base) and the cuts since
// (the deltas). When the deltas outgrow the base, a new base is written while
// flushing goes on. docs/persist.md tells the whole story.
//
// Loss: a crash loses at most the interval and the time one flush takes. A
// clean Close loses nothing. A file that is not exactly as it was written is
// refused with a sentence, and not touched.
//
// Use, in this order:
//
//	st, err := persist.Open(dir, persist.Options{…})
//	info, err := st.Load(keyspace)
//	fl, err := st.Start()
//	…
//	err = fl.Close(ctx)
//
// A State belongs to one goroutine, and Start hands it to the Flusher's. The
// methods of a Flusher may be called from any. Backup and Inspect are for
// files that no server uses.
//
// For a node of a cluster there are a Log and Snapshots instead, which Raft uses,
// and LockDir for the folder they are in. They know nothing of what is in them.
package persist

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/stint-dev/stint/persist/internal/boltfile"
)

// FileName is the name of the state file within its folder.
const FileName = "state.db"

// newSuffix marks a file that is not complete yet. One found at start was left
// by a crash and is removed.
const newSuffix = ".new"

// pageSize of new files, in bytes, the same on every machine. bbolt would take
// the system's, which is 16 or 64 KiB on some.
const pageSize = 4096

// openTimeout bounds the wait for bbolt's own lock on the file, which someone
// could hold who does not know the folder's.
const openTimeout = time.Second

// Options of a State.
type Options struct {
	// Interval between two flushes. 0 means a second.
	Interval time.Duration
	// Logger is told of failures, recoveries and compactions. nil: nobody is.
	Logger *slog.Logger
	// Version of the program, which is noted in the file. Up to 255 bytes.
	Version string

	// For tests.
	now     func() time.Time         // wall clock
	tick    <-chan time.Time         // instead of a ticker
	compact uint64                   // instead of compactFrom, bytes
	batch   int                      // instead of batchBytes
	chunk   int                      // instead of chunkBytes
	commit  func(func() error) error // around every transaction
	disk    *durable                 // instead of onDisk
	during  func()                   // within every transaction, before it does anything
}

func (o Options) defaults() Options {
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.compact == 0 {
		o.compact = compactFrom
	}
	if o.batch == 0 {
		o.batch = batchBytes
	}
	if o.chunk == 0 {
		o.chunk = chunkBytes
	}
	if o.disk == nil {
		o.disk = &onDisk
	}
	if o.commit == nil {
		o.commit = func(f func() error) error { return f() }
	}
	return o
}

// State is a state folder in the hands of this process.
type State struct {
	dir  string
	path string
	o    Options
	lock *folderLock

	hdr     *header // as the next transaction writes it
	created bool
	ks      keyspace // that was loaded; nil before

	db   *bolt.DB // nil: not open for writing
	file *os.File // under db

	// What is at the path must be the file that was opened or created, as it
	// was last written. See check.
	pin   *os.File // the file, open to read: its identity; nil within create
	known []byte   // its header
	tried []byte   // the header of a write that failed and may be there
	tx    uint64   // its last transaction; 0: not written since it was opened
}

// Open locks the folder, creates it and its state file if there are none, and
// checks the file's structure. What the chunks hold is checked by Load; until
// Start, an existing file is only read.
//
// Errors wrap ErrLocked, ErrForeign, ErrDamaged or ErrFormat, or are the
// system's.
func Open(dir string, o Options) (_ *State, err error) {
	st := &State{dir: dir, path: filepath.Join(dir, FileName), o: o.defaults()}
	if err := makeFolder(dir, st.o.disk); err != nil {
		return nil, err
	}
	if st.lock, err = lockFolder(dir, true); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = st.Close()
		}
	}()
	if err := removeUnfinished(st.path); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(st.path); errors.Is(err, fs.ErrNotExist) {
		if err := st.create(); err != nil {
			return nil, fmt.Errorf("create the state file: %w", err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("look at the state file: %w", err)
	}
	r, err := openReader(st.path, true)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if st.pin == nil {
		if st.pin, err = openRegular(st.path); err != nil {
			return nil, refuse(st.path, err)
		}
		st.known = r.hdr.append(nil)
	}
	if err := st.recognize(r); err != nil {
		return nil, err
	}
	st.hdr = r.hdr
	st.hdr.writtenBy = st.o.Version
	return st, nil
}

// open opens a file with bbolt, to write. After an error or a panic of bbolt
// nothing is open, and nothing locked.
func (st *State) open(path string, flags int) (err error) {
	defer func() {
		if err != nil {
			st.db = nil
			if st.file != nil {
				letGo(st.file) // already closed, unless bbolt panicked
				st.file = nil
			}
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer trap(&err) // before the above
	st.db, err = bolt.Open(path, 0o600, &bolt.Options{
		Timeout:  openTimeout,
		PageSize: pageSize,
		// This is for opening only: with it, bbolt writes no transaction of its
		// own, which would have no header of ours, to a file without a list of
		// free pages. See below.
		NoFreelistSync: true,
		FreelistType:   bolt.FreelistMapType,
		NoStatistics:   true,
		OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
			// bbolt would create a file that vanished.
			f, err := os.OpenFile(name, flag&^os.O_CREATE|flags, perm)
			if err == nil && st.pin != nil && !sameFile(f, st.pin) {
				f.Close()
				return nil, replaced(st.path)
			}
			st.file = f
			return f, err
		},
	})
	if err != nil {
		return err
	}
	// Every transaction writes the list of free pages. Without it a rollback,
	// and so every write that fails, would walk all pages to find them, in a
	// goroutine of bbolt's own, where a damaged page or a fault under the map
	// ends the process: no trap is there. With it, a rollback reads one run of
	// pages in the goroutine that wrote.
	st.db.NoFreelistSync = false
	return nil
}

// shut closes what open opened.
func (st *State) shut() (err error) {
	if st.db == nil {
		return nil
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer trap(&err)
	db := st.db
	st.db = nil
	return db.Close()
}

// forget takes what bbolt has read of the file out of the resident set. It
// deletes a base by looking at every page of it, and ten million buckets are
// some 360 MB.
func (st *State) forget() {
	if st.db == nil {
		return
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var err error // nothing is owed if it fails: a figure is larger, that is all
	defer trap(&err)
	err = st.db.View(func(tx *bolt.Tx) error {
		// What the database uses is mapped, and stays so during a transaction.
		// The file itself may be longer than the map.
		return unmap(st.db, tx.Size())
	})
}

// Close gives the folder back without writing anything. It is for a State that
// was not started; after Start, close the Flusher.
func (st *State) Close() error {
	err := st.shut()
	if st.pin != nil {
		st.pin.Close()
		st.pin = nil
	}
	return errors.Join(err, st.lock.release())
}

// Latest is the latest time of any decision (unix ns) that the file knows; 0
// for a new file.
func (st *State) Latest() int64 { return st.hdr.latest }

// change is what a transaction does besides writing the header.
type change struct {
	place  chunkPlace // of the first chunk
	chunks [][]byte   // sealed
	drop   bool       // delete all that the header does not refer to
}

// write runs one transaction that makes next the header. When it returns nil
// the change is on disk. When it does not, the change may still be there; it
// can be repeated as it is.
func (st *State) write(next *header, c change) error {
	err := st.o.commit(func() error { return st.transact(next, c) })
	if err != nil {
		// Whatever bbolt now believes about the file, it forgets.
		st.abandon()
	}
	return err
}

func (st *State) transact(next *header, c change) (err error) {
	// The disk may fail under bbolt's memory map: an error, not the end.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer trap(&err)
	if st.pin != nil {
		if err := st.check(); err != nil {
			return err
		}
	}
	err = st.db.Update(func(tx *bolt.Tx) error {
		if st.o.during != nil {
			st.o.during()
		}
		if c.drop {
			if err := drop(tx, next); err != nil {
				return err
			}
		}
		if len(c.chunks) > 0 {
			b, err := tx.CreateBucketIfNotExists([]byte(c.place.bucket()))
			if err != nil {
				return err
			}
			b.FillPercent = 1 // keys only ever come at the end
			for i, chunk := range c.chunks {
				if err := b.Put(chunkKey(c.place.index+uint64(i)), chunk); err != nil {
					return err
				}
			}
		}
		b, err := tx.CreateBucketIfNotExists([]byte(headerBucket))
		if err != nil {
			return err
		}
		next.tx = uint64(tx.ID())
		st.tried = next.append(nil)
		if err := b.Put([]byte(headerKey), st.tried); err != nil {
			return err
		}
		return st.listed()
	})
	if err == nil {
		st.known, st.tried, st.tx = st.tried, nil, next.tx
	}
	return err
}

// listed checks what a commit will believe unseen: the head of the list of free
// pages. bbolt frees as many pages as that says, and four thousand million of
// them, of a page that was overwritten, would take all memory.
func (st *State) listed() error {
	info, err := st.file.Stat()
	if err != nil {
		return err
	}
	_, err = boltfile.Open(st.file, info.Size())
	return err
}

// drop deletes what the header does not refer to. Its work is the number of
// chunks, not their bytes, so one transaction is short enough.
func drop(tx *bolt.Tx, h *header) error {
	var names []string
	err := tx.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if !h.refers(string(name)) {
			names = append(names, string(name))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := tx.DeleteBucket([]byte(name)); err != nil {
			return err
		}
	}
	e := h.era()
	b := tx.Bucket([]byte(deltaBucket(e.id)))
	if b == nil {
		return nil
	}
	var keys [][]byte
	c := b.Cursor()
	for k, _ := c.Seek(chunkKey(e.chunks)); k != nil; k, _ = c.Next() {
		keys = append(keys, append([]byte(nil), k...))
	}
	for _, k := range keys {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// abandon lets go of the database after a failure.
func (st *State) abandon() {
	db, file := st.db, st.file
	st.db, st.file, st.tx = nil, nil, 0
	if db != nil {
		abandon(db.Close, file)
	}
}

// abandon closes a database that may have broken down, and in any case its file,
// with its lock. bbolt's Close would wait for a transaction that broke down in a
// panic for ever, so it is tried from the side.
func abandon(shut func() error, file *os.File) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		var err error
		defer trap(&err)
		debug.SetPanicOnFault(true)
		_ = shut()
	}()
	t := time.NewTimer(openTimeout)
	defer t.Stop()
	select {
	case <-closed:
	case <-t.C:
		letGo(file)
	}
}

// trap turns a panic of bbolt into an error.
func trap(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("bbolt broke down: %v", p)
	}
}
