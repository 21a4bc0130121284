package cluster

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// watchedLog watches the disk under Raft's log. A write that hangs causes no
// election by itself: the leader's heartbeats go on, though it can decide
// nothing. So after hangAfter nothing is sent to the others any more, who then
// elect another leader; after exitAfter the process ends. A write that fails ends
// it at once: what is on disk then is not known.
type watchedLog struct {
	LogStore
	g     *Group
	begun atomic.Int64 // when the write at hand began, ns since base; 0: there is none
	base  time.Time
	slow  atomic.Int64 // longest write, ns
}

func newWatchedLog(l LogStore, g *Group) *watchedLog {
	return &watchedLog{LogStore: l, g: g, base: time.Now()}
}

// exitAfter is for how long a write may hang before the process ends.
const exitAfter = 20 * time.Second

func (w *watchedLog) hangAfter() time.Duration {
	return max(w.g.cfg.ElectionTimeout, 200*time.Millisecond)
}

func (w *watchedLog) write(what string, f func() error) error {
	begun := time.Now()
	w.begun.Store(int64(begun.Sub(w.base)) + 1)
	err := f()
	w.begun.Store(0)
	if took := int64(time.Since(begun)); took > w.slow.Load() {
		w.slow.Store(took)
	}
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	why := fmt.Errorf("%s: %w", what, err)
	if errors.Is(err, syscall.ENOSPC) {
		why = fmt.Errorf("the disk of %s is full: make room and start the node again: nothing that was answered is lost: %w", w.g.cfg.Dir, why)
	}
	w.g.fatal(why)
	return err
}

func (w *watchedLog) StoreLog(l *raft.Log) error { return w.StoreLogs([]*raft.Log{l}) }

func (w *watchedLog) StoreLogs(ls []*raft.Log) error {
	return w.write("write the log", func() error { return w.LogStore.StoreLogs(ls) })
}

func (w *watchedLog) Set(key, val []byte) error {
	return w.write("write a vote", func() error { return w.LogStore.Set(key, val) })
}

func (w *watchedLog) SetUint64(key []byte, val uint64) error {
	return w.write("write the term", func() error { return w.LogStore.SetUint64(key, val) })
}

func (w *watchedLog) DeleteRange(lo, hi uint64) error {
	return w.write("shorten the log", func() error { return w.LogStore.DeleteRange(lo, hi) })
}

// hanging is for how long the write at hand has taken.
func (w *watchedLog) hanging() time.Duration {
	begun := w.begun.Load()
	if begun == 0 {
		return 0
	}
	return time.Since(w.base) - time.Duration(begun-1)
}

// watch is the goroutine that looks.
func (w *watchedLog) watch() {
	ticker := time.NewTicker(w.hangAfter() / 8)
	defer ticker.Stop()
	muted := false
	for {
		select {
		case <-w.g.ctx.Done():
			return
		case <-ticker.C:
		}
		h := w.hanging()
		switch {
		case h > exitAfter:
			w.g.fatal(fmt.Errorf("a write to the log in %s has not ended for %v: the disk hangs; the node ends so that nothing waits for it", w.g.cfg.Dir, h.Round(time.Second)))
			return
		case h > w.hangAfter() && !muted:
			muted = true
			w.g.trans.muted.Store(true)
			w.g.log.Error("the disk hangs: nothing is sent to the other nodes, so that they elect another leader", "dir", w.g.cfg.Dir, "for", h.Round(time.Millisecond))
		case h <= w.hangAfter() && muted:
			muted = false
			w.g.trans.muted.Store(false)
			w.g.log.Warn("the disk answers again", "dir", w.g.cfg.Dir)
		}
	}
}
