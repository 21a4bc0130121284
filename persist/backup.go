package persist

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// BackupInfo says what a backup holds.
type BackupInfo struct {
	Source  string    // the file that was copied
	Bytes   int64     // of the copy
	Changes int64     // records in it: keys, counted as often as they were written
	Saved   time.Time // wall clock of the last flush in it
	Latest  int64     // latest time of any decision in it, unix ns
}

// Backup copies the state file of a folder that no server uses to dest, and
// verifies the copy as a restart would: every checksum and every record. The
// source may be a folder or a state file. The copy appears under its name
// complete and on disk, or not at all, and replaces nothing.
//
// Errors wrap ErrLocked, ErrForeign, ErrDamaged, ErrFormat or fs.ErrExist, or
// are the system's.
func Backup(source, dest string) (BackupInfo, error) {
	info, err := backup(source, dest, onDisk)
	return info, forTool(err)
}

func backup(source, dest string, disk durable) (info BackupInfo, err error) {
	path, err := stateFile(source)
	if err != nil {
		return info, err
	}
	if _, err := os.Lstat(dest); err == nil {
		return info, fmt.Errorf("the backup %s is there already and is not replaced: %w", dest, fs.ErrExist)
	}
	lock, err := lockFolder(filepath.Dir(path), false)
	if err != nil {
		return info, err
	}
	defer lock.release()
	r, err := openReader(path, true)
	if err != nil {
		return info, err
	}
	defer r.Close()

	out, err := os.CreateTemp(filepath.Dir(dest), filepath.Base(dest)+".*"+newSuffix) // of mode 0600
	if err != nil {
		return info, fmt.Errorf("create the backup: %w", err)
	}
	defer os.Remove(out.Name())
	_, err = io.Copy(out, io.NewSectionReader(r.file, 0, r.bolt.Used()))
	if err == nil {
		err = disk.sync(out)
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return info, fmt.Errorf("write the backup: %w", err)
	}

	c, err := openReader(out.Name(), false)
	if err != nil {
		return info, r.blame(err)
	}
	defer c.Close()
	changes, err := c.verify()
	if err != nil {
		return info, r.blame(err)
	}
	info = BackupInfo{Source: path, Bytes: c.size, Changes: changes, Saved: time.Unix(0, c.hdr.saved), Latest: c.hdr.latest}
	if err := disk.place(out.Name(), dest); err != nil {
		return info, fmt.Errorf("name the backup: %w", err)
	}
	return info, disk.syncFolder(filepath.Dir(dest))
}

// blame finds out whether a copy is bad because its source is, and words the
// error so.
func (r *reader) blame(err error) error {
	if _, bad := r.verify(); bad != nil {
		return bad
	}
	return fmt.Errorf("the copy does not read as it was written, though its source does: %w", err)
}

// place gives a file its name, unless that is taken. A link does both at once;
// where the file system has none, the name is looked for first.
func place(tmp, dest string) error {
	err := os.Link(tmp, dest)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, err := os.Lstat(dest); err == nil {
		return fs.ErrExist
	}
	return os.Rename(tmp, dest)
}

// stateFile is the state file meant by a path: itself, or the one in a folder.
func stateFile(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", missing{"there is no file or folder " + path}
	case err != nil:
		return "", fmt.Errorf("look for the state: %w", err)
	case !info.IsDir():
		return path, nil
	}
	file := filepath.Join(path, FileName)
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return "", missing{fmt.Sprintf("the folder %s holds no %s: no server has kept its state there", path, FileName)}
	}
	return file, nil
}

// missing is an fs.ErrNotExist in a sentence.
type missing struct{ sentence string }

func (e missing) Error() string { return e.sentence }
func (e missing) Unwrap() error { return fs.ErrNotExist }
