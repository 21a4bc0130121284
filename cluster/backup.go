package cluster

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stint-dev/stint/engine"
)

// ImportFile is the name, in the folder of a node that founds a cluster, of a
// state that the cluster begins with: a backup, or what WriteImport made of a
// single node's state.
const ImportFile = "import.stint"

// Backup is the state as it is now, as a stream that CheckBackup checks and a new
// cluster can begin with: all that was answered before Backup was called, on
// whichever node, is in it. It takes a snapshot; the reader must be closed.
func (g *Group) Backup() (io.ReadCloser, error) {
	if !g.isReady() {
		return nil, errNotReady
	}
	if err := g.catchUp(); err != nil {
		return nil, err
	}
	if err := g.Snapshot(); err != nil {
		return nil, err
	}
	list, err := g.cfg.Snapshots.List()
	if err != nil {
		return nil, fmt.Errorf("look for the snapshot: %w", err)
	}
	if len(list) == 0 {
		return nil, errors.New("there is nothing to back up yet")
	}
	_, r, err := g.cfg.Snapshots.Open(list[0].ID)
	if err != nil {
		return nil, fmt.Errorf("open the snapshot: %w", err)
	}
	return r, nil
}

// settled is, on the leader, the index of the last entry that the state has, after
// all that was answered. Raft's own AppliedIndex is of what it has handed over.
func (g *Group) settled() (uint64, error) {
	if g.term.Load() == 0 {
		return 0, errNoLeader
	}
	if err := g.await(g.raft.Barrier(adminTimeout)); err != nil {
		return 0, outcome(err)
	}
	return g.fsm.index.Load(), nil
}

// catchUp waits until this node has applied all that was answered before the call.
func (g *Group) catchUp() error {
	if g.term.Load() != 0 {
		_, err := g.settled()
		return err
	}
	ctx, cancel := context.WithTimeout(g.ctx, adminTimeout)
	defer cancel()
	g.mu.Lock()
	r := g.route
	g.mu.Unlock()
	if r.peer == "" {
		return errNoLeader
	}
	b, err := g.calls.Call(ctx, r.addr, string(r.peer), callIndex, nil)
	if err != nil || len(b) != 8 {
		return &adminError{Text: "the leader does not say how far the log goes", NoLead: true}
	}
	ticker := time.NewTicker(leadPause)
	defer ticker.Stop()
	for want := binary.BigEndian.Uint64(b); g.fsm.index.Load() < want; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return &adminError{Text: "this node does not catch up with the leader: try another one"}
		}
	}
	return nil
}

// BackupInfo says what a backup holds.
type BackupInfo struct {
	Cluster string
	Latest  int64  // latest time of any decision in it, unix ns
	Index   uint64 // of the last entry in it
	Keys    int
	Bytes   int64 // of keys and their state
}

// CheckBackup reads a backup to its end and checks every byte.
func CheckBackup(r io.Reader) (BackupInfo, error) {
	s, err := openStream(bufio.NewReaderSize(r, 1<<20))
	if err != nil {
		return BackupInfo{}, err
	}
	err = s.each(func(b []byte) error { return engine.VisitChunk(b, func(*engine.Change) error { return nil }) })
	return BackupInfo{s.head.Meta.Settings.ClusterID, s.head.Latest, s.head.Index, s.tail.Keys, s.tail.Bytes}, err
}

// WriteImport writes a state to w, as a stream that a new cluster can begin with:
// changes gives chunks as package engine encodes them, in order, the last change
// of a key being the one that counts, and latest is the latest time of any
// decision in them, unix ns.
func WriteImport(w io.Writer, latest int64, changes func(write func([]byte) error) error) error {
	s, err := newStreamWriter(w, streamHead{Latest: latest, Meta: meta{}, Encoding: engine.EncodingVersion})
	if err != nil {
		return err
	}
	if err := changes(s.chunk); err != nil {
		return err
	}
	return s.end(0)
}

// hasImport says whether this node brings a state along.
func (g *Group) hasImport() bool {
	if g.cfg.Dir == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(g.cfg.Dir, ImportFile))
	return err == nil
}

// importState has the cluster begin with the state of the import file, if there
// is one: Raft replaces the state of all nodes by it. The file is put aside when
// that is done.
func (g *Group) importState(p *proposer) error {
	if !g.hasImport() {
		return nil
	}
	path := filepath.Join(g.cfg.Dir, ImportFile)
	begun := time.Now()
	in, err := os.Open(path)
	if err != nil {
		return g.badImport(path, err)
	}
	defer in.Close()
	// The head must be this cluster's, and its length is told to Raft before.
	tmp, err := os.CreateTemp(g.cfg.Dir, ImportFile+".*.new")
	if err != nil {
		return g.badImport(path, err)
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	s, err := openStream(bufio.NewReaderSize(in, 1<<20))
	if err != nil {
		return g.badImport(path, err)
	}
	g.fsm.mu.Lock()
	head := g.fsm.head()
	g.fsm.mu.Unlock()
	head.Latest, head.Encoding = max(s.head.Latest, head.Latest), s.head.Encoding
	out := bufio.NewWriterSize(tmp, 1<<20)
	w, err := newStreamWriter(out, head)
	if err == nil {
		err = s.each(w.chunk)
	}
	if err == nil {
		err = w.end(s.tail.Keys)
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return g.badImport(path, err)
	}
	size, err := tmp.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = tmp.Seek(0, io.SeekStart)
	}
	if err != nil {
		return g.badImport(path, err)
	}
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Size: size}
	if err := g.raft.Restore(meta, bufio.NewReaderSize(tmp, 1<<20), time.Minute); err != nil {
		return fmt.Errorf("begin with the state of %s: %w", path, err)
	}
	p.logged = g.fsm.ks.Latest()
	if err := os.Rename(path, path+".done"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return g.badImport(path, err)
	}
	g.log.Info("the cluster begins with the state of a file", "file", path, "bytes", size, "took", time.Since(begun).Round(time.Millisecond))
	return nil
}

// badImport ends the node: a cluster that was to begin with a state must not
// begin without it.
func (g *Group) badImport(path string, err error) error {
	err = fmt.Errorf("the state %s cannot be used: %w", path, err)
	g.fatal(err)
	return err
}

// BackupMagic is what a backup begins with.
const BackupMagic = streamMagic
