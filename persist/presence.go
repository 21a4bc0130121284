package persist

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/stint-dev/stint/persist/internal/boltfile"
)

// A file that is removed, or that another takes the place of, can still be
// written to by who has it open: every write succeeds, and a restart finds
// nothing of it. So the file is looked at before each transaction, and once
// more before a flush says that it has succeeded.

// ErrReplaced is the error of a flush, wrapped in a sentence, when something
// else than the file that was written to is under its name. That is not
// touched; once it is moved away, the next flush writes the whole state.
var ErrReplaced = errors.New("replaced by another file")

// errGone: nothing is under the file's name. The next flush makes a new file
// of all that is in memory.
var errGone = errors.New("the state file was removed while in use")

func replaced(path string) error {
	return &fileError{
		fact:   fmt.Sprintf("what is at %s is not the state file that this server has written: it was replaced or changed while in use, and is left as it is", path),
		advice: "move it away, and the server writes all that it has in memory to a new file",
		kind:   ErrReplaced, cause: fs.ErrExist,
	}
}

// check finds out whether the file at the path is the one in hand, with the
// last transaction in it, and opens it to write if it is not open. The cost is
// that of a few system calls, unless it must be opened.
//
// Errors wrap errGone or ErrReplaced, or are the system's.
func (st *State) check() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer trap(&err)
	if _, err := os.Lstat(st.path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	there, err := os.Stat(st.path)
	if err != nil {
		// Of a link that leads nowhere too: whoever made it knows where the
		// file should be.
		return fmt.Errorf("look at the state file: %w", err)
	}
	have, err := st.pin.Stat()
	if err != nil {
		return fmt.Errorf("look at the state file: %w", err)
	}
	if !os.SameFile(there, have) {
		return replaced(st.path)
	}
	if st.db == nil {
		return st.reopen()
	}
	if st.tx == 0 {
		return nil // it was read when it was opened
	}
	// The same file may have other content: a backup copied over it.
	f, err := boltfile.Open(st.pin, have.Size())
	if errors.Is(err, boltfile.ErrNotBolt) || errors.Is(err, boltfile.ErrDamaged) || err == nil && f.Transaction() != st.tx {
		return replaced(st.path)
	}
	return err
}

// reopen opens the state file to write, after a check that it is whole and
// still the one that was loaded.
func (st *State) reopen() error {
	r, err := openReader(st.path, false)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := st.recognize(r); err != nil {
		return err
	}
	return st.open(st.path, 0)
}

// recognize is an error unless a reader has the file in hand, as it was written
// last or as a write that failed would have left it.
func (st *State) recognize(r *reader) error {
	found := r.hdr.append(nil)
	if !sameFile(r.file, st.pin) || !bytes.Equal(found, st.known) && !bytes.Equal(found, st.tried) {
		return replaced(st.path)
	}
	st.known, st.tried = found, nil
	return nil
}

func sameFile(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// anew makes the folder, its lock and an empty state file, in the place of the
// one that is gone. Until it returns nil, the State is as it was: whoever moved
// the file may still bring it back.
func (st *State) anew() error {
	if err := makeFolder(st.dir, st.o.disk); err != nil {
		return err
	}
	if err := st.relock(); err != nil {
		return err
	}
	if err := removeUnfinished(st.path); err != nil {
		return err
	}
	if err := st.create(); err != nil {
		return fmt.Errorf("create the state file: %w", err)
	}
	return nil
}

// relock takes the lock of the folder at the path, if that is not the one that
// is held: the lock file was removed, or the folder was.
func (st *State) relock() error {
	have, err := st.lock.file.Stat()
	if err != nil {
		return fmt.Errorf("look at the lock of the state folder: %w", err)
	}
	if there, err := os.Lstat(filepath.Join(st.dir, lockName)); err == nil && os.SameFile(there, have) {
		return nil
	}
	lock, err := lockFolder(st.dir, true)
	if err != nil {
		return err
	}
	_ = st.lock.release() // of a file that nobody finds any more
	st.lock = lock
	st.o.Logger.Warn("the lock file was removed or replaced while in use: it was made anew", "dir", st.dir)
	return nil
}

// create writes an empty state file and takes it in hand. It gets its name when
// it is complete and on disk, so that under the name there is a whole file or
// none, and it takes the place of nothing.
func (st *State) create() error {
	now := st.o.now().UnixNano()
	n := State{path: st.path + newSuffix, o: st.o, hdr: &header{
		format: FormatVersion, created: now, saved: now, eras: []group{{id: 1}},
		createdBy: st.o.Version, writtenBy: st.o.Version,
	}}
	if err := n.open(n.path, os.O_CREATE|os.O_EXCL); err != nil {
		return err
	}
	defer os.Remove(n.path)
	err := n.write(n.hdr, change{})
	if err := errors.Join(err, n.shut()); err != nil {
		return err
	}
	made, err := os.Lstat(n.path)
	if err != nil {
		return err
	}
	if err := st.o.disk.place(n.path, st.path); err != nil {
		return err
	}
	pin, err := st.placed(made)
	if err != nil {
		// Nothing was written to it, and left there it would be someone's.
		if info, e := os.Lstat(st.path); e == nil && os.SameFile(info, made) {
			err = errors.Join(err, os.Remove(st.path))
		}
		return err
	}
	st.abandon()
	if st.pin != nil {
		st.pin.Close()
	}
	st.pin, st.hdr, st.known, st.tried, st.created = pin, n.hdr, n.known, nil, true
	return nil
}

// placed makes the new name durable and opens the file, which must be the one
// that was made.
func (st *State) placed(made fs.FileInfo) (*os.File, error) {
	if err := st.o.disk.syncFolder(st.dir); err != nil {
		return nil, err
	}
	pin, err := openRegular(st.path)
	if err != nil {
		return nil, err
	}
	if info, err := pin.Stat(); err != nil || !os.SameFile(made, info) {
		pin.Close()
		return nil, replaced(st.path)
	}
	return pin, nil
}

// removeUnfinished removes what an interrupted create has left.
func removeUnfinished(path string) error {
	if err := os.Remove(path + newSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove an incomplete state file: %w", err)
	}
	return nil
}

// makeFolder makes the state folder, if there is none, and the folders above
// it.
func makeFolder(dir string, disk *durable) error {
	var above []string // in which a name is new
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			break
		}
		above = append(above, filepath.Dir(at))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the state folder: %w", err)
	}
	for _, at := range above {
		// Without this a crash of the machine may lose the folder; but one in
		// which names may be made need not be one that may be read.
		if err := disk.syncFolder(at); err != nil && !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("create the state folder: %w", err)
		}
	}
	return nil
}

// openRegular opens a file to read. To open a pipe would wait for a writer, and
// to open a device may do anything, so what is not a regular file, or a link to
// one, is looked at and not opened: ErrForeign.
func openRegular(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, foreign("it is no regular file")
	}
	return os.Open(path)
}
