package persist

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// LogFileName is the name of Raft's log in the folder of a cluster's node.
const LogFileName = "raft.db"

// LogOptions of a Log.
type LogOptions struct {
	// NoSync does not wait for the disk: only to see that tests notice it.
	NoSync bool
	// Logger is told of a write that fails before the file is looked at again,
	// which a broken disk may answer by ending the process. nil: nobody is.
	Logger *slog.Logger

	commit func(func() error) error // for tests: around every transaction
}

// Log is Raft's log and its votes, in one bbolt file: a raft.LogStore and a
// raft.StableStore. What it stores is on disk when it returns, unless it returns
// an error; after one, it is not known what is, and every later write fails with
// the same error: the node must end. The error of a full disk wraps
// syscall.ENOSPC. Methods may be called from any goroutine.
//
// bbolt's pages carry no checksum. Here each entry does, with its index, term and
// type, and so does each value of the StableStore; the error of a damaged one
// wraps ErrDamaged.
type Log struct {
	path  string
	store *raftboltdb.BoltStore
	file  *os.File // under it

	commit func(func() error) error // around every transaction

	mu      sync.Mutex // guards what follows
	entries []logEntry // those in the file, in order
	bytes   int64      // of them
	failed  error      // of the first write that failed, or broken
	broken  error      // of a panic of bbolt
}

var (
	_ raft.LogStore    = (*Log)(nil)
	_ raft.StableStore = (*Log)(nil)
)

// logEntry is what memory knows of an entry.
type logEntry struct {
	index uint64
	size  uint32 // bytes in the file, about
}

// entryOverhead is about what an entry takes in the file besides its data, in
// bytes: the names of its fields, numbers, checksum.
const entryOverhead = 90

// Bounds of what one transaction deletes: while it runs, entries wait.
const (
	deleteEntries = 256
	deleteBytes   = 1 << 20
)

// Bytes is the size of all entries, about.
func (l *Log) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// bounds are the indexes of the first and the last entry; 0, 0: there are none.
func (l *Log) bounds() (first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.entries); n > 0 {
		first, last = l.entries[0].index, l.entries[n-1].index
	}
	return first, last
}

// holds says whether all entries from one index to another are there; of none,
// if to is below from, they are.
func (l *Log) holds(from, to uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to < from {
		return true
	}
	a, b := l.at(from), l.at(to)
	return b < len(l.entries) && l.entries[a].index == from && l.entries[b].index == to && uint64(b-a) == to-from
}

// at is where the first entry of at least index is. The lock is held.
func (l *Log) at(index uint64) int {
	i, _ := slices.BinarySearchFunc(l.entries, index, func(e logEntry, index uint64) int {
		if e.index < index {
			return -1
		}
		if e.index > index {
			return 1
		}
		return 0
	})
	return i
}

// FirstIndex is that of the first entry; 0: there is none.
func (l *Log) FirstIndex() (uint64, error) {
	first, _ := l.bounds()
	return first, nil
}

// LastIndex is that of the last entry; 0: there is none.
func (l *Log) LastIndex() (uint64, error) {
	_, last := l.bounds()
	return last, nil
}

// IsMonotonic is false: entries may be stored that do not follow the last, as
// after a snapshot of another node.
func (l *Log) IsMonotonic() bool { return false }

// GetLog reads an entry into e, or returns raft.ErrLogNotFound.
func (l *Log) GetLog(index uint64, e *raft.Log) error {
	err := l.entry(index, e)
	if err == nil || err == raft.ErrLogNotFound { // which raft compares
		return err
	}
	return fmt.Errorf("read entry %d of the log %s: %w", index, l.path, err)
}

// entry reads an entry and checks it.
func (l *Log) entry(index uint64, e *raft.Log) error {
	if err := l.look(func() error { return l.store.GetLog(index, e) }); err != nil {
		return err
	}
	return unseal(index, e)
}

// StoreLog stores one entry.
func (l *Log) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs stores entries, all or none.
func (l *Log) StoreLogs(es []*raft.Log) error {
	copies := make([]raft.Log, len(es)) // raft is sending the entries meanwhile
	sealed := make([]*raft.Log, len(es))
	for i, e := range es {
		copies[i] = *e
		sealed[i] = seal(&copies[i])
	}
	if err := l.change(func() error { return l.store.StoreLogs(sealed) }); err != nil {
		return fmt.Errorf("write to the log %s: %w", l.path, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range es {
		l.note(logEntry{e.Index, uint32(len(e.Data) + len(e.Extensions) + entryOverhead)})
	}
	return nil
}

// note notes an entry that is in the file. The lock is held.
func (l *Log) note(e logEntry) {
	i := l.at(e.index)
	if i < len(l.entries) && l.entries[i].index == e.index {
		l.bytes -= int64(l.entries[i].size)
		l.entries[i] = e
	} else {
		l.entries = slices.Insert(l.entries, i, e)
	}
	l.bytes += int64(e.size)
}

// DeleteRange deletes the entries from lo to hi, a few at a time, so that entries
// that are to be stored do not wait long. If the machine stops in between, those
// that are left have no gap: what Raft no longer needs goes from the low end, and
// the end of the log, which another leader has decided differently, from the high
// one.
func (l *Log) DeleteRange(lo, hi uint64) error {
	_, last := l.bounds()
	for fromTop := hi >= last; ; {
		from, to, some := l.step(lo, hi, fromTop)
		if !some {
			return nil
		}
		if err := l.change(func() error { return l.store.DeleteRange(from, to) }); err != nil {
			return fmt.Errorf("delete entries %d to %d of the log %s: %w", from, to, l.path, err)
		}
		l.forget(from, to)
	}
}

// step is what of the entries from lo to hi one transaction deletes.
func (l *Log) step(lo, hi uint64, fromTop bool) (from, to uint64, some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, b := l.at(lo), l.at(hi)
	if b < len(l.entries) && l.entries[b].index == hi {
		b++
	}
	if a >= b {
		return 0, 0, false
	}
	size, n := 0, 0
	for n < b-a && n < deleteEntries && size < deleteBytes {
		i := a + n
		if fromTop {
			i = b - 1 - n
		}
		size += int(l.entries[i].size)
		n++
	}
	if fromTop {
		return l.entries[b-n].index, l.entries[b-1].index, true
	}
	return l.entries[a].index, l.entries[a+n-1].index, true
}

// forget forgets the entries from an index to another, which are there.
func (l *Log) forget(from, to uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, b := l.at(from), l.at(to)+1
	for _, e := range l.entries[a:b] {
		l.bytes -= int64(e.size)
	}
	if a == 0 {
		l.entries = l.entries[b:] // append drops what is before, in its time
	} else {
		l.entries = slices.Delete(l.entries, a, b)
	}
}

// Set stores a value under a key.
func (l *Log) Set(key, value []byte) error {
	sum := crc32.Update(checksum(key), castagnoli, value)
	sealed := order.AppendUint32(slices.Clone(value), sum)
	if err := l.change(func() error { return l.store.Set(key, sealed) }); err != nil {
		return fmt.Errorf("write %q to the log %s: %w", key, l.path, err)
	}
	return nil
}

// Get is the value under a key. Without one the error's text is "not found", as
// raft wants it.
func (l *Log) Get(key []byte) ([]byte, error) {
	value, err := l.value(key)
	if err == nil || errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return value, err
	}
	return nil, fmt.Errorf("read %q of the log %s: %w", key, l.path, err)
}

// value reads a value and checks it.
func (l *Log) value(key []byte) (b []byte, err error) {
	err = l.look(func() (err error) {
		b, err = l.store.Get(key)
		return err
	})
	if err != nil {
		return nil, err
	}
	n := len(b) - 4
	if n < 0 || crc32.Update(checksum(key), castagnoli, b[:n]) != order.Uint32(b[n:]) {
		return nil, damaged("its checksum is wrong")
	}
	return b[:n], nil
}

// SetUint64 stores a number under a key.
func (l *Log) SetUint64(key []byte, value uint64) error {
	return l.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 is the number under a key. Errors are as Get's.
func (l *Log) GetUint64(key []byte) (uint64, error) {
	b, err := l.Get(key)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("read %q of the log %s: it is no number", key, l.path)
	}
	return binary.BigEndian.Uint64(b), nil
}

// Close closes the file. Nothing may be called any more.
func (l *Log) Close() (err error) {
	l.mu.Lock()
	failed := l.failed
	l.mu.Unlock()
	if failed != nil {
		abandon(l.store.Close, l.file)
		return nil // it was told with the write
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer trap(&err)
	return l.store.Close()
}

// look calls f, which uses bbolt. The disk may fail under its memory map: an
// error, not the end. After that nothing is read any more, either: what broke down
// may hold a lock of bbolt's for ever.
func (l *Log) look(f func() error) (err error) {
	l.mu.Lock()
	broken := l.broken
	l.mu.Unlock()
	if broken != nil {
		return broken
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("bbolt broke down: %v", p)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.broken = err
			if l.failed == nil {
				l.failed = err
			}
		}
	}()
	return f()
}

// change writes, unless a write has failed before: after that bbolt may hold a
// lock for ever, and the system may have dropped what it could not write and say
// the next time that all is well.
func (l *Log) change(f func() error) error {
	l.mu.Lock()
	err := l.failed
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if err = fullDisk(l.commit(func() error { return l.look(f) })); err != nil {
		l.mu.Lock()
		if l.failed == nil {
			l.failed = err
		}
		l.mu.Unlock()
	}
	return err
}

// fullDisk makes the error of a full disk one that wraps syscall.ENOSPC. bbolt
// keeps only the text of some.
func fullDisk(err error) error {
	if err == nil || errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		return err
	}
	return noSpace{err}
}

type noSpace struct{ error }

func (e noSpace) Unwrap() []error { return []error{e.error, syscall.ENOSPC} }

// An entry's checksum is the last four bytes of its Extensions, which raft leaves
// to who is in between. It does not cover AppendedAt: a time does not come back
// exactly as it was, and nothing depends on it.

// entrySum is the checksum of an entry without one.
func entrySum(e *raft.Log) uint32 {
	var b [25]byte
	order.PutUint64(b[:], e.Index)
	order.PutUint64(b[8:], e.Term)
	b[16] = byte(e.Type)
	order.PutUint64(b[17:], uint64(len(e.Data)))
	sum := crc32.Update(checksum(b[:]), castagnoli, e.Data)
	return crc32.Update(sum, castagnoli, e.Extensions)
}

// seal adds the checksum.
func seal(e *raft.Log) *raft.Log {
	e.Extensions = order.AppendUint32(slices.Clone(e.Extensions), entrySum(e))
	return e
}

// unseal checks an entry that was read and takes the checksum away.
func unseal(index uint64, e *raft.Log) error {
	n := len(e.Extensions) - 4
	if n < 0 {
		return damaged("it has no checksum")
	}
	sum := order.Uint32(e.Extensions[n:])
	if e.Extensions = e.Extensions[:n]; n == 0 {
		e.Extensions = nil
	}
	if e.Index != index || entrySum(e) != sum {
		return damaged("its checksum is wrong")
	}
	return nil
}
