package persist

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
)

// SnapshotDir is the name of the folder of snapshots in that of a cluster's node.
const SnapshotDir = "snapshots"

// SnapshotOptions of Snapshots.
type SnapshotOptions struct {
	Retain int          // how many are kept; 0: 2
	Logger *slog.Logger // is told of snapshots that cannot be used; nil: nobody is

	// For tests.
	commit func(func() error) error // around every transaction
	disk   *durable                 // instead of the system's
}

// Snapshots is a raft.SnapshotStore: a folder with a file for each snapshot. Its
// methods may be called from any goroutine, also while snapshots are written and
// read; a snapshot that is removed while it is read is read to its end.
type Snapshots struct {
	dir string
	o   SnapshotOptions

	mu    sync.Mutex
	told  map[snapshotName]bool // that were logged as damaged
	least uint64                // index of the oldest that may be used; see Check
}

var _ raft.SnapshotStore = (*Snapshots)(nil)

// OpenSnapshots opens the folder of snapshots, which is made if there is none,
// and removes what a crash has left unfinished. The caller holds the lock of the
// node's folder; see LockDir.
func OpenSnapshots(dir string, o SnapshotOptions) (*Snapshots, error) {
	if o.Retain <= 0 {
		o.Retain = 2
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.commit == nil {
		o.commit = func(f func() error) error { return f() }
	}
	if o.disk == nil {
		d := onDisk
		d.place = os.Rename // its name is its own: it cannot take the place of another
		o.disk = &d
	}
	if err := makeFolder(dir, o.disk); err != nil {
		return nil, err
	}
	s := &Snapshots{dir: dir, o: o, told: map[snapshotName]bool{}}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the snapshots: %w", err)
	}
	for _, f := range files {
		if id, ok := strings.CutSuffix(f.Name(), snapshotSuffix+newSuffix); !ok {
			continue
		} else if _, err := parseSnapshotName(id); err != nil {
			continue // someone's
		}
		if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
			return nil, fmt.Errorf("remove an unfinished snapshot: %w", err)
		}
	}
	return s, nil
}

func (s *Snapshots) path(n snapshotName) string {
	return filepath.Join(s.dir, n.String()+snapshotSuffix)
}

// Create begins a snapshot. It exists when its sink was closed without an error;
// until then nobody sees it. One of Close and Cancel must be called: the sink has
// a goroutine.
func (s *Snapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	k, err := newSnapshotSink(s, snapshotHead{
		name:    snapshotName{index: index, term: term, random: rand.Uint64()},
		version: uint32(version), conf: configuration.Clone(), confAt: configurationIndex,
	})
	if err != nil {
		return nil, fmt.Errorf("create a snapshot: %w", err)
	}
	return k, nil
}

// names lists the snapshots in the folder, newest first, whether or not they are
// whole.
func (s *Snapshots) names() ([]snapshotName, error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list the snapshots: %w", err)
	}
	var list []snapshotName
	for _, f := range slices.Backward(files) { // ReadDir sorts
		id, ok := strings.CutSuffix(f.Name(), snapshotSuffix)
		if n, err := parseSnapshotName(id); ok && err == nil {
			list = append(list, n)
		}
	}
	return list, nil
}

// usable gives those of the named snapshots that can be read, newest first, to
// visit, until it returns false. Each that cannot is logged, once.
func (s *Snapshots) usable(names []snapshotName, visit func(h *snapshotHead) (more bool)) {
	for _, n := range names {
		r, err := openSnapshot(s.path(n), n)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			s.mu.Lock()
			told := s.told[n]
			s.told[n] = true
			s.mu.Unlock()
			if !told {
				s.o.Logger.Error("a snapshot cannot be used", "error", err)
			}
			continue
		}
		_ = r.Close() // it was only read
		if !visit(r.head) {
			return
		}
	}
}

// List describes the newest snapshots that can be read, the newest first.
func (s *Snapshots) List() ([]*raft.SnapshotMeta, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	least := s.least
	s.mu.Unlock()
	var list []*raft.SnapshotMeta
	s.usable(names, func(h *snapshotHead) bool {
		if h.name.index >= least {
			list = append(list, h.meta())
		}
		return len(list) < s.o.Retain
	})
	return list, nil
}

// Open opens a snapshot for reading: exactly Size bytes. They are checked as they
// are read; the error of a damaged one wraps ErrDamaged and is a sentence that
// names the file.
func (s *Snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	n, err := parseSnapshotName(id)
	if err != nil {
		return nil, nil, fmt.Errorf("open the snapshot %.80q: %w", id, err)
	}
	r, err := openSnapshot(s.path(n), n)
	if err != nil {
		return nil, nil, err
	}
	return r.head.meta(), r, nil
}

// Check must be called before Raft starts with log. A node that begins with an
// older snapshot than it once had forgets what it has acknowledged, and votes as
// if it had never had it, unless its log holds all from there on. So an older
// snapshot is listed only if it does. If there is none to begin with, the error is
// a sentence that says what to do.
func (s *Snapshots) Check(log *Log) error {
	names, err := s.names()
	if err != nil {
		return err
	}
	first, last := log.bounds()
	const advice = "remove the node from the cluster, move its folder away and let it join again"
	if len(names) == 0 {
		if !log.holds(1, last) {
			return fmt.Errorf("the folder %s holds no snapshot, and the log begins with entry %d or has a gap: %s", s.dir, first, advice)
		}
		return nil
	}
	newest, least, found := names[0].index, names[0].index, false
	s.usable(names, func(h *snapshotHead) bool {
		if !log.holds(h.name.index+1, max(last, newest)) {
			return false // nor does it reach back to those before
		}
		found, least = true, h.name.index
		return true
	})
	if !found {
		return fmt.Errorf("the snapshot %s cannot be used, or the log does not go on from it (it has entries %d to %d), nor does it reach back to an older one: %s", s.path(names[0]), first, last, advice)
	}
	s.mu.Lock()
	s.least = least
	s.mu.Unlock()
	return nil
}

// reap removes all snapshots that are older than the newest usable ones.
func (s *Snapshots) reap() {
	names, err := s.names()
	if err != nil {
		s.o.Logger.Warn("old snapshots could not be removed", "error", err)
		return
	}
	kept, oldest := 0, snapshotName{}
	s.usable(names, func(h *snapshotHead) bool {
		kept, oldest = kept+1, h.name
		return kept < s.o.Retain
	})
	if kept < s.o.Retain {
		return
	}
	for _, n := range names[slices.Index(names, oldest)+1:] {
		if err := os.Remove(s.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.o.Logger.Warn("an old snapshot could not be removed", "error", err)
		}
		s.mu.Lock()
		delete(s.told, n)
		s.mu.Unlock()
	}
}
