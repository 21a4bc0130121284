package persist

import (
	"errors"
	"fmt"
)

// Errors of Open, Load, Backup and Inspect. Each comes wrapped in a sentence
// that names the path and says what to do; the file concerned was not changed.
var (
	// ErrLocked: another process uses the folder or the file.
	ErrLocked = errors.New("in use by another process")
	// ErrForeign: the file is not a state file.
	ErrForeign = errors.New("not a state file of stint")
	// ErrDamaged: the file is a state file, but not as it was written.
	ErrDamaged = errors.New("damaged")
	// ErrFormat: the file was written by a newer program.
	ErrFormat = errors.New("of a newer format")
)

// ErrClosed is the error of Save and BackgroundSave after Close.
var ErrClosed = errors.New("the state file is closed")

// damaged is what readers inside the package return; refuse adds the path.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}

// fileError is a refusal of a file or folder.
type fileError struct {
	sentence string
	kind     error // a sentinel
	cause    error
}

func (e *fileError) Error() string   { return e.sentence }
func (e *fileError) Unwrap() []error { return []error{e.kind, e.cause} }

// refuse words an error of reading path as a sentence with advice.
func refuse(path string, err error) error {
	var done *fileError
	switch {
	case err == nil || errors.As(err, &done):
		return err
	case errors.Is(err, ErrFormat):
		return &fileError{fmt.Sprintf("the state file %s %s; use that version, or move the file away to begin with no state", path, reason(err)), ErrFormat, err}
	case errors.Is(err, ErrForeign):
		return &fileError{fmt.Sprintf("%s is not a state file of stint: %s; it was not touched: choose another folder or move the file away", path, reason(err)), ErrForeign, err}
	case errors.Is(err, ErrDamaged):
		return &fileError{fmt.Sprintf("the state file %s is damaged: %s; it was not touched: restore a backup, or move the file away to begin with no state", path, reason(err)), ErrDamaged, err}
	}
	return fmt.Errorf("state file %s: %w", path, err)
}

// reason is an error without the sentinel in front, which the sentence has
// already said.
func reason(err error) string {
	if w, ok := err.(interface{ Unwrap() []error }); ok {
		if in := w.Unwrap(); len(in) == 2 {
			return in[1].Error()
		}
	}
	return err.Error()
}
