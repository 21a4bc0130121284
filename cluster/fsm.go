package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stint-dev/stint/engine"
)

// fsm is the replicated state: the keyspace, and meta. Raft calls it from one
// goroutine; the proposer runs batches and others read under mu.
type fsm struct {
	ks    *engine.Keyspace
	wall  func() time.Time
	fatal func(error) // the node must not go on
	bug   seeded
	level int // newest format level it reads

	rename string // the cluster's id from now on, in snapshots; empty: as it is

	// mu is the apply lock: whoever changes the state holds it, and so does the
	// proposer while it runs a batch, so that it sees entries as a whole.
	mu     sync.Mutex
	fence  fence
	meta   meta
	config raft.Configuration // the last that was committed
	pulse  pulse

	index   atomic.Uint64 // of the last entry applied or restored
	taken   atomic.Uint64 // entries taken since the start
	fenced  atomic.Uint64 // entries that the fence refused
	copied  atomic.Uint64 // snapshots that were restored
	changed func()        // called when meta or config has changed; not under mu
}

var (
	_ raft.FSM                = (*fsm)(nil)
	_ raft.ConfigurationStore = (*fsm)(nil)
)

// pulse ties the latest time of the log to this node's own clocks.
type pulse struct {
	latest int64     // unix ns: latest time of an entry that was applied
	at     time.Time // when it was, by the monotonic clock
	agreed bool      // the wall clock here said about the same then
}

// pulseTolerance is how far the wall clock and the time of an entry may be apart
// for the entry to count as applied just after it was decided.
const pulseTolerance = 5 * time.Second

func (f *fsm) beat(latest int64) {
	now := f.wall()
	d := time.Duration(now.UnixNano() - latest)
	f.pulse = pulse{latest: latest, at: now, agreed: d > -pulseTolerance && d < pulseTolerance}
}

// expected is the time it is now by the log and the monotonic clock, unix ns:
// never later than it is, and about right if the last entry was applied fresh.
func (p pulse) expected(now time.Time) int64 {
	if p.at.IsZero() {
		return p.latest
	}
	return p.latest + int64(max(now.Sub(p.at), 0))
}

// refused is what Apply answers for an entry that changed nothing.
type refusedEntry struct{}

// Apply takes one entry of the log. It answers nil, or refusedEntry if the
// entry changed nothing.
func (f *fsm) Apply(log *raft.Log) any {
	defer f.index.Store(log.Index)
	e, err := parseEntry(log.Data)
	if err != nil {
		f.fatal(fmt.Errorf("entry %d: %w", log.Index, err))
		return refusedEntry{}
	}
	f.mu.Lock()
	notify := false
	defer func() {
		f.mu.Unlock()
		if notify {
			f.changed()
		}
	}()
	if !f.fence.takes(&e, log.Term) && f.bug != bugNoFence {
		f.fenced.Add(1)
		return refusedEntry{}
	}
	f.fence = fence{e.term, e.n}
	f.taken.Add(1)
	if notify, err = f.take(&e); err != nil {
		f.fatal(fmt.Errorf("entry %d: %w", log.Index, err))
	}
	return nil
}

// take does what an entry says. notify tells that meta is another.
func (f *fsm) take(e *entry) (notify bool, err error) {
	switch e.kind {
	case entryEffects:
		if err := f.ks.Apply(e.time, e.payload); err != nil {
			return false, err
		}
		f.beat(f.ks.Latest())
		return false, nil
	case entryReset:
		f.ks.Reset()
		f.beat(0)
		return false, nil
	case entryMember:
		var m Member
		if err := json.Unmarshal(e.payload, &m); err != nil {
			return false, fmt.Errorf("%w: a member: %w", errEntry, err)
		}
		f.meta.Members[m.ID] = m
	case entryForget:
		delete(f.meta.Members, string(e.payload))
	case entrySetting:
		var s Settings
		if err := json.Unmarshal(e.payload, &s); err != nil {
			return false, fmt.Errorf("%w: the settings: %w", errEntry, err)
		}
		if s.Level > f.level {
			return false, errLevel(s.Level, f.level)
		}
		f.meta.Settings = s
	default:
		return false, fmt.Errorf("%w: kind %d is unknown: a newer version of stint is needed", errEntry, e.kind)
	}
	f.ks.Advance(e.time)
	f.beat(f.ks.Latest())
	return true, nil
}

// errLevel: the cluster writes what this program cannot read.
func errLevel(level, known int) error {
	return fmt.Errorf("the cluster writes at format level %d, and this program reads up to level %d: a newer version of stint is needed", level, known)
}

// StoreConfiguration is told of each committed change of the membership.
// Without this method Raft could not take a snapshot after one with no writes.
func (f *fsm) StoreConfiguration(index uint64, c raft.Configuration) {
	f.mu.Lock()
	f.config = c.Clone()
	f.mu.Unlock()
	f.index.Store(index)
	f.changed()
}

// Snapshot freezes the state. Raft calls it between two entries, so that it is
// the state after exactly the index that Raft notes with it.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	frozen, err := f.ks.Freeze()
	if err != nil {
		return nil, fmt.Errorf("freeze the state: %w", err)
	}
	return &frozenState{frozen: frozen, head: f.head()}, nil
}

// head is the head of a stream of the state as it is. mu is held.
func (f *fsm) head() streamHead {
	h := streamHead{Latest: f.ks.Latest(), Fence: f.fence, Meta: f.meta.clone(), Index: f.index.Load(), Encoding: engine.EncodingVersion}
	if f.rename != "" {
		h.Meta.Settings.ClusterID = f.rename
	}
	for _, s := range f.config.Servers {
		h.Servers = append(h.Servers, streamServer{string(s.ID), string(s.Address), s.Suffrage == raft.Voter})
	}
	return h
}

// frozenState is a snapshot that is being taken.
type frozenState struct {
	frozen *engine.Frozen
	head   streamHead
}

// Persist writes the stream.
func (s *frozenState) Persist(sink raft.SnapshotSink) error {
	err := writeStream(sink, s.head, s.frozen)
	if err == nil {
		err = sink.Close()
	} else {
		err = errors.Join(err, sink.Cancel())
	}
	if err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	return nil
}

// Release gives the frozen state up.
func (s *frozenState) Release() { s.frozen.Close() }

// Restore replaces the state by that of a snapshot. Nothing can be decided
// until it is done. A state that is only half there must not be used: an error
// ends the node.
func (f *fsm) Restore(r io.ReadCloser) error {
	f.mu.Lock()
	err := f.restore(r)
	f.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("restore a snapshot: %w", err)
		f.fatal(err)
		return err
	}
	f.changed()
	return nil
}

func (f *fsm) restore(r io.Reader) error {
	s, err := openStream(r)
	if err != nil {
		return err
	}
	if s.head.Meta.Settings.Level > f.level {
		return errLevel(s.head.Meta.Settings.Level, f.level)
	}
	f.ks.Reset()
	f.ks.Advance(s.head.Latest)
	if err := s.each(f.ks.Load); err != nil {
		return err
	}
	f.fence, f.meta = s.head.Fence, s.head.Meta.clone()
	f.config = s.head.configuration()
	f.index.Store(s.head.Index)
	f.copied.Add(1)
	f.beat(s.head.Latest)
	return nil
}

// view is a copy of what is not the keyspace's.
func (f *fsm) view() (meta, raft.Configuration, fence, pulse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.meta.clone(), f.config.Clone(), f.fence, f.pulse
}
