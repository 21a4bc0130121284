package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Bounds of the log that is kept behind a snapshot, for nodes that come back.
const (
	trailingLeast = 128
	trailingBytes = 16 << 20
	upkeepEvery   = 200 * time.Millisecond
)

// snapshotState is what is known of snapshots.
type snapshotState struct {
	index   atomic.Uint64 // of the newest
	size    atomic.Int64  // its bytes
	at      atomic.Int64  // when it was taken, unix ns
	taken   atomic.Uint64 // since the start
	failing atomic.Uint64 // failures since the last that succeeded
}

// upkeep is the goroutine that takes snapshots when the log is long enough: as
// long as half of the last snapshot, so that writing one costs no more than a few
// times what the log itself does.
func (g *Group) upkeep() {
	g.seeSnapshots()
	ticker := time.NewTicker(upkeepEvery)
	defer ticker.Stop()
	var rest time.Time // after a failure
	copied := g.fsm.copied.Load()
	for {
		select {
		case <-g.ctx.Done():
			return
		case now := <-ticker.C:
			g.noticeFollowing()
			if n := g.fsm.copied.Load(); n != copied {
				copied = n // the leader has sent one
				g.seeSnapshots()
			}
			if g.cfg.Log.Bytes() < g.snapshotFrom() || now.Before(rest) {
				continue
			}
			if err := g.Snapshot(); err != nil && g.ctx.Err() == nil {
				n := g.snapshot.failing.Add(1)
				rest = now.Add(min(time.Duration(n)*time.Second, time.Minute))
				g.log.Error("a snapshot failed; it is tried again", "error", err, "failures", n)
			}
		}
	}
}

// snapshotFrom is the length of the log at which the next snapshot is taken.
func (g *Group) snapshotFrom() int64 {
	return max(g.cfg.SnapshotBytes, g.snapshot.size.Load()/2) + min(trailingBytes, g.cfg.SnapshotBytes/4)
}

// Snapshot takes a snapshot now and shortens the log.
func (g *Group) Snapshot() error {
	if !g.isReady() {
		return errNotReady
	}
	g.freeze.Lock()
	defer g.freeze.Unlock()
	// The log that is kept is given in entries.
	last, _ := g.cfg.Log.LastIndex()
	first, _ := g.cfg.Log.FirstIndex()
	if n := last - first + 1; last >= first && n > 0 {
		each := max(g.cfg.Log.Bytes()/int64(n), 1)
		rc := g.raft.ReloadableConfig()
		rc.TrailingLogs = uint64(max(min(trailingBytes, g.cfg.SnapshotBytes/4)/each, trailingLeast))
		if err := g.raft.ReloadConfig(rc); err != nil {
			return fmt.Errorf("set how much of the log is kept: %w", err)
		}
	}
	begun := time.Now()
	err := g.raft.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	g.snapshot.failing.Store(0)
	g.snapshot.taken.Add(1)
	g.seeSnapshots()
	g.log.Info("a snapshot was taken", "index", g.snapshot.index.Load(), "bytes", g.snapshot.size.Load(), "took", time.Since(begun).Round(time.Millisecond))
	return nil
}

// seeSnapshots looks which snapshot is the newest.
func (g *Group) seeSnapshots() {
	list, err := g.cfg.Snapshots.List()
	if err != nil || len(list) == 0 {
		return
	}
	if g.snapshot.index.Swap(list[0].Index) != list[0].Index {
		g.snapshot.at.Store(time.Now().UnixNano())
	}
	g.snapshot.size.Store(list[0].Size)
}

// stateHash is the newest hash of the state, with the index it holds for.
type stateHash struct {
	mu    sync.Mutex
	index uint64
	text  string
	next  time.Time // it is not computed again before
}

// hashShare bounds the share of a processor that hashing takes: after it has
// taken some time it rests for so many times that.
const hashShare = 20

// StateHash is a hash of all keys and limits that still count, and the index of
// the entry after which it was taken: two nodes with the same index must have
// the same hash. It is recomputed when something was applied since, but not so
// often that it would take more than a twentieth of a processor.
func (g *Group) StateHash() (hash string, index uint64) {
	h := &g.hash
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.text != "" && (h.index == g.fsm.index.Load() || time.Now().Before(h.next)) || !g.freeze.TryLock() {
		return h.text, h.index
	}
	defer g.freeze.Unlock()
	begun := time.Now()
	g.fsm.mu.Lock()
	index = g.fsm.index.Load()
	frozen, err := g.fsm.ks.Freeze()
	g.fsm.mu.Unlock()
	if err != nil {
		return h.text, h.index
	}
	defer frozen.Close()
	h.text, h.index = strconv.FormatUint(frozen.Hash(), 16), index
	h.next = time.Now().Add(hashShare * time.Since(begun))
	return h.text, h.index
}

// leaderUpkeep runs beside the proposer.
func (g *Group) leaderUpkeep(ctx context.Context) {
	ticker := time.NewTicker(upkeepEvery)
	defer ticker.Stop()
	var p promoter
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			g.tend(ctx, &p)
		}
	}
}
