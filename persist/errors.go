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

// fileError is a refusal of a file or folder: what is so, and what to do.
type fileError struct {
	fact   string
	advice string // to who starts a server
	tool   string // to who looks at a file with Backup or Inspect; "": the same
	kind   error  // a sentinel
	cause  error
}

func (e *fileError) Error() string   { return e.fact + ": " + e.advice }
func (e *fileError) Unwrap() []error { return []error{e.kind, e.cause} }

// forTool gives an error of Backup or Inspect the advice for its caller, who
// has no server to start and cannot choose another folder.
func forTool(err error) error {
	if e, ok := err.(*fileError); ok && e.tool != "" {
		other := *e
		other.advice = e.tool
		return &other
	}
	return err
}

// locked is the refusal of a folder that who uses: a sentence's subject.
func locked(dir, who string, err error) error {
	return &fileError{
		fact:   fmt.Sprintf("the state folder %s is in use by %s", dir, who),
		advice: "stop that one, or choose another folder with --dir",
		tool:   "the state of a running server is changing; stop it first",
		kind:   ErrLocked, cause: err,
	}
}

// refuse words an error of reading path as a sentence with advice.
func refuse(path string, err error) error {
	var done *fileError
	switch {
	case err == nil || errors.As(err, &done):
		return err
	case errors.Is(err, ErrFormat):
		return &fileError{
			fact:   fmt.Sprintf("the state file %s %s", path, reason(err)),
			advice: "use that version, or move the file away to begin with no state",
			tool:   "use that version",
			kind:   ErrFormat, cause: err,
		}
	case errors.Is(err, ErrForeign):
		return &fileError{
			fact:   fmt.Sprintf("%s is not a state file of stint: %s; it was not touched", path, reason(err)),
			advice: "choose another folder with --dir, or move the file away",
			tool:   "name the " + FileName + " of a server's folder, the folder, or a backup",
			kind:   ErrForeign, cause: err,
		}
	case errors.Is(err, ErrDamaged):
		return &fileError{
			fact:   fmt.Sprintf("the state file %s is damaged: %s; it was not touched", path, reason(err)),
			advice: "restore a backup, or move the file away to begin with no state",
			kind:   ErrDamaged, cause: err,
		}
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
