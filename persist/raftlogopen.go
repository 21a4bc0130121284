package persist

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/stint-dev/stint/persist/internal/boltfile"
)

// logFormat is the version of the log's file that this program writes, and the
// newest that it reads. It is a number under logFormatKey.
const logFormat = 1

var logFormatKey = []byte("stint/format")

// The buckets that raft-boltdb makes.
const (
	logBucket  = "logs"
	confBucket = "conf"
)

// OpenLog opens the log at path, which is made if there is none. All of one that
// is there is read and checked first: it is as long as what was written since the
// last snapshots. The caller holds the lock of the node's folder.
//
// Errors are sentences that wrap ErrLocked, ErrForeign, ErrDamaged or ErrFormat,
// or are the system's.
func OpenLog(path string, o LogOptions) (*Log, error) {
	if o.commit == nil {
		o.commit = func(f func() error) error { return f() }
	}
	if err := os.Remove(path + newSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove an incomplete log: %w", err)
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := createLog(path, o); err != nil {
			return nil, fmt.Errorf("create the log %s: %w", path, err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("look at the log: %w", err)
	}
	l := &Log{path: path, commit: o.commit}
	keys, err := l.examine()
	if err != nil {
		return nil, refuseLog(path, err)
	}
	// To open it to write is to write to it, so that comes last.
	if err := l.open(true, 0, o); err != nil {
		return nil, refuseLog(path, err)
	}
	err = l.verify(keys)
	if shut := l.Close(); err == nil {
		err = shut
	}
	if err != nil {
		return nil, refuseLog(path, err)
	}
	if err := l.open(false, 0, o); err != nil {
		return nil, refuseLog(path, err)
	}
	return l, nil
}

// createLog makes an empty log. It gets its name when it is complete and on disk:
// so one that is empty, or not there, was lost, and with it the votes of the node.
func createLog(path string, o LogOptions) error {
	n := &Log{path: path + newSuffix, commit: o.commit}
	if err := n.open(false, os.O_CREATE|os.O_EXCL, o); err != nil {
		return err
	}
	defer os.Remove(n.path)
	if err := errors.Join(n.SetUint64(logFormatKey, logFormat), n.Close()); err != nil {
		return err
	}
	if err := onDisk.place(n.path, path); err != nil {
		return err
	}
	return onDisk.syncFolder(filepath.Dir(path))
}

func (l *Log) open(readOnly bool, flags int, o LogOptions) error {
	var lg bolt.Logger
	if o.Logger != nil {
		lg = boltLogger{log: o.Logger, path: l.path}
	}
	err := l.look(func() (err error) {
		l.store, err = raftboltdb.New(raftboltdb.Options{
			Path: l.path,
			BoltOptions: &bolt.Options{
				Timeout: openTimeout, PageSize: pageSize, FreelistType: bolt.FreelistMapType, NoStatistics: true,
				// The list of free pages is not written with each entry: after a
				// snapshot most of the file is free, and the list is larger than
				// an entry. It is found when the file is opened, and when a write
				// fails; see boltLogger.
				NoFreelistSync: true,
				ReadOnly:       readOnly,
				Logger:         lg,
				OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
					// bbolt would create a file that vanished.
					f, err := os.OpenFile(name, flag&^os.O_CREATE|flags, perm)
					l.file = f
					return f, err
				},
			},
			NoSync:                  o.NoSync,
			MsgpackUseNewTimeFormat: true,
		})
		return err
	})
	if err != nil && l.file != nil {
		letGo(l.file) // already closed, unless bbolt panicked
	}
	return err
}

// examine checks the structure of the file, notes its entries, and returns the
// keys of the StableStore. It only reads, and not by a map.
func (l *Log) examine() (keys [][]byte, err error) {
	f, err := openRegular(l.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, damaged("it is empty")
	}
	b, err := boltfile.Open(f, info.Size())
	if err != nil {
		return nil, err
	}
	err = b.Scan(func(bucket, key []byte, v boltfile.Value) error {
		switch string(bucket) {
		case logBucket:
			index, err := parseChunkKey(key)
			if err != nil {
				return damaged("an entry has a key of %d bytes", len(key))
			}
			l.entries = append(l.entries, logEntry{index, uint32(v.Size)})
			l.bytes += int64(v.Size)
		case confBucket:
			keys = append(keys, append([]byte(nil), key...))
		default:
			return foreign("it holds a bucket %q", bucket)
		}
		return nil
	})
	return keys, err
}

// verify reads all that is in the file.
func (l *Log) verify(keys [][]byte) error {
	b, err := l.value(logFormatKey)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return foreign("it is the log of another program")
	}
	if err != nil {
		return err
	}
	if len(b) != 8 {
		return damaged("its format is no number")
	}
	if format := binary.BigEndian.Uint64(b); format == 0 || format > logFormat {
		return fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf("is of format %d, and this program reads up to format %d", format, logFormat))
	}
	for _, key := range keys {
		if _, err := l.value(key); err != nil {
			return damaged("the value %q: %w", key, unsaid(err))
		}
	}
	var e raft.Log
	for _, have := range l.entries {
		if err := l.entry(have.index, &e); err != nil {
			return damaged("entry %d: %w", have.index, unsaid(err))
		}
	}
	return nil
}

// unsaid is an error without the sentinel in front that is said again around it.
func unsaid(err error) error { return errors.New(reason(err)) }

// refuseLog words an error of opening a log as a sentence with advice.
func refuseLog(path string, err error) error {
	why := err
	switch {
	case errors.Is(err, ErrFormat):
		return &fileError{
			fact:   fmt.Sprintf("the log %s %s", path, reason(err)),
			advice: "use the version of stint that wrote it",
			kind:   ErrFormat, cause: err,
		}
	case errors.Is(err, ErrForeign):
		why = unsaid(err)
	case errors.Is(err, boltfile.ErrNotBolt):
		why = errors.New("its first bytes are those of something else")
	case errors.Is(err, bolterrors.ErrTimeout):
		return &fileError{
			fact:   fmt.Sprintf("the log %s is in use by another process", path),
			advice: "stop that one, or choose another folder with --dir",
			kind:   ErrLocked, cause: err,
		}
	case errors.Is(err, ErrDamaged), errors.Is(err, boltfile.ErrDamaged), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		if errors.Is(err, ErrDamaged) {
			why = unsaid(err)
		}
		return &fileError{
			fact:   fmt.Sprintf("the log %s is damaged: %v; it was not touched", path, why),
			advice: "remove the node from the cluster, move its folder away and let it join again",
			kind:   ErrDamaged, cause: why,
		}
	default:
		return fmt.Errorf("open the log %s: %w", path, err)
	}
	return &fileError{
		fact:   fmt.Sprintf("%s is not the log of a stint: %v; it was not touched", path, why),
		advice: "choose another folder with --dir, or move the file away",
		kind:   ErrForeign, cause: why,
	}
}

// boltLogger tells of a write that failed at once. After one, bbolt looks for the
// free pages in all of the file, in a goroutine of its own, and a disk that is
// broken may end the process there, before the error is returned to anyone.
type boltLogger struct {
	log  *slog.Logger
	path string
}

func (l boltLogger) Error(v ...any) {
	l.log.Error("the log of Raft could not be written", "error", fmt.Sprint(v...), "file", l.path)
}

func (l boltLogger) Errorf(format string, v ...any) { l.Error(fmt.Errorf(format, v...)) }

func (l boltLogger) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l boltLogger) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (l boltLogger) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l boltLogger) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }

func (boltLogger) Debug(...any)            {}
func (boltLogger) Debugf(string, ...any)   {}
func (boltLogger) Info(...any)             {}
func (boltLogger) Infof(string, ...any)    {}
func (boltLogger) Warning(...any)          {}
func (boltLogger) Warningf(string, ...any) {}
