package persist

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// logEvery is the least time between two log lines about flushes that fail;
// the first failure is logged at once.
const logEvery = 10 * time.Second

// retryClose is the pause between attempts of the last flush.
const retryClose = 50 * time.Millisecond

// mostRest bounds the rest after a part of a dump: a disk that is slow is not
// made slower.
const mostRest = 20 * time.Millisecond

// mostPause bounds the rest after a chunk, which takes a fraction of a
// millisecond unless something else has the processor.
const mostPause = 2 * time.Millisecond

// Info is the state of saving.
type Info struct {
	Interval     time.Duration // between two flushes
	Saving       bool          // a flush is running
	Compacting   bool          // a new base is being written
	LastSave     time.Time     // wall clock when all before was known to be on disk; at first, of the file that was loaded
	LastDuration time.Duration // of the last flush that wrote something
	LastKeys     int64         // changes it wrote
	LastBytes    int64         // bytes it wrote
	Flushes      int64         // that wrote something
	Failures     int64         // flushes, and parts of a new base, that failed
	Failing      int64         // failures since all was well; 0: it is. A new base that fails is one until a part of it is written
	LastError    string        // of the last failure
	Compactions  int64         // bases written
	Changed      int64         // changes that are not on disk, about
	BaseBytes    int64         // chunks of the base
	DeltaBytes   int64         // chunks to be replayed on top of it
	FileBytes    int64         // size of the state file
}

// Flusher writes changes to the state file, each interval and when asked to.
// One goroutine does all of it, begun by Start and ended by Close.
type Flusher struct {
	st  *State
	ks  keyspace
	job *drain // the goroutine's own, but for what it has taken

	wake chan struct{}   // there are waiters; holds one
	stop chan struct{}   // Close was called
	done chan struct{}   // the goroutine has ended
	ctx  context.Context // of Close; written before stop is closed

	mu      sync.Mutex
	waiters []chan error // of Save; answered by one flush
	queued  bool         // BackgroundSave wants a flush
	closed  bool
	info    Info
	err     error // of the last flush, for Close

	// The goroutine's own:
	logged time.Time // of the last line about a failure
	told   bool      // the trouble of now was logged
	failed time.Time // when it began; zero: all is well
	paused bool      // the last write failed: no dump goes on
	stuck  bool      // the last part of a dump failed, which no flush can mend
}

// Start opens the file to write, removes what an interrupted write has left in
// it, and begins to flush. The State belongs to the Flusher from here on, if
// there was no error; otherwise it is still to be closed.
func (st *State) Start() (*Flusher, error) {
	if st.ks == nil {
		return nil, errors.New("persist: Start before a successful Load")
	}
	// A disk that cannot be written to is better found now than with the first
	// decisions.
	if err := st.write(st.hdr, change{drop: true}); err != nil {
		return nil, fmt.Errorf("write to the state file: %w", refuse(st.path, err))
	}
	f := &Flusher{
		st: st, ks: st.ks,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		info: Info{Interval: st.o.Interval, LastSave: time.Unix(0, st.hdr.saved)},
	}
	f.job = newDrain(st, f.ks)
	f.figures(f.job.stats)
	go f.run()
	return f, nil
}

func (f *Flusher) run() {
	defer close(f.done)
	defer f.end()
	background()
	tick := f.st.o.tick
	if tick == nil {
		t := time.NewTicker(f.st.o.Interval)
		defer t.Stop()
		tick = t.C
	}
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		// Between flushes a dump goes on, a transaction at a time: of what is
		// ready, select takes any, so a flush waits for one or two. After each
		// it rests for as long as that took: nobody waits for a dump, and on a
		// machine that is busy it is not to take a processor from the decisions.
		// After a failure the dump waits for a flush to succeed: nothing here
		// runs without a pause when the disk is in trouble.
		var dumping <-chan time.Time
		if f.job.dumping() && !f.paused {
			dumping = rest.C
		}
		select {
		case <-f.stop:
			f.last()
			return
		case <-tick:
			f.job.pace = pause
			f.flush()
			f.job.pace = nil
		case <-f.wake:
			f.flush()
		case <-dumping:
			begin := time.Now()
			f.job.pace = pause
			f.dumpStep()
			f.job.pace = nil
			rest.Reset(min(time.Since(begin), mostRest))
		}
	}
}

// pause rests for as long as was worked, at most mostPause. Decisions that want
// the same processor then wait for a part of a millisecond, and not for the end
// of a time slice. Nobody waits for what is written meanwhile.
func pause(worked time.Duration) { time.Sleep(min(worked, mostPause)) }

// dumpStep writes a part of a new base.
func (f *Flusher) dumpStep() {
	if err := f.job.dumpStep(); err != nil {
		f.stuck = true
		f.failure(fmt.Errorf("write a new base: %w", err))
	} else if f.stuck {
		f.stuck = false
		f.recovered()
	}
	f.figures(f.job.stats)
}

// flush writes all changes up to now and answers who waits for it.
func (f *Flusher) flush() error {
	f.mu.Lock()
	waiters := f.waiters
	f.waiters, f.queued = nil, false
	f.info.Saving = true
	f.mu.Unlock()

	err := f.job.flush()
	if err != nil {
		f.failure(err)
	} else {
		f.success()
	}
	f.figures(f.job.stats)
	for _, w := range waiters {
		w <- err
	}
	f.job.settle()
	return err
}

// failure notes a failure: loudly at first, then now and then.
func (f *Flusher) failure(err error) {
	now := f.st.o.now()
	if f.failed.IsZero() {
		f.failed = now
	}
	f.paused = true
	f.mu.Lock()
	f.info.Failures++
	f.info.Failing++
	f.info.LastError = err.Error()
	failing := f.info.Failing
	f.err = err
	f.mu.Unlock()
	// Trouble that comes and goes each second is one line in ten seconds too.
	if now.Sub(f.logged) >= logEvery {
		f.logged, f.told = now, true
		f.st.o.Logger.Error("the state could not be written: decisions go on, and a crash now loses them",
			"error", err, "file", f.st.path, "failures", failing, "since", f.failed)
	}
}

// success notes a flush that succeeded.
func (f *Flusher) success() {
	now := f.st.o.now()
	f.mu.Lock()
	if !f.job.idle {
		f.info.Flushes++
	}
	f.info.LastSave = now
	f.err = nil
	f.mu.Unlock()
	f.paused = false
	if f.stuck = f.stuck && f.job.dumping(); !f.stuck {
		f.recovered()
	}
}

// recovered notes that nothing fails any more: the last flush succeeded, and
// so did the last part of a dump.
func (f *Flusher) recovered() {
	f.mu.Lock()
	failing := f.info.Failing
	f.info.Failing = 0
	f.mu.Unlock()
	if f.told {
		f.told = false
		f.st.o.Logger.Info("the state is written again", "file", f.st.path, "failures", failing, "after", f.st.o.now().Sub(f.failed))
	}
	f.failed = time.Time{}
}

// figures copies the goroutine's figures to where Info sees them.
func (f *Flusher) figures(s stats) {
	var size int64
	if info, err := os.Stat(f.st.path); err == nil {
		size = info.Size()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.info.Saving = false
	f.info.Compacting = s.dumping
	f.info.LastDuration, f.info.LastKeys, f.info.LastBytes = s.took, s.keys, s.bytes
	f.info.Compactions = s.compactions
	f.info.BaseBytes, f.info.DeltaBytes, f.info.FileBytes = s.base, s.deltas, size
}

// last is the flush of a clean stop. It is tried until it succeeds or Close's
// time is over.
func (f *Flusher) last() {
	for {
		if f.flush() == nil {
			return
		}
		t := time.NewTimer(retryClose)
		select {
		case <-f.ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// end gives the folder back and leaves the outcome to Close.
func (f *Flusher) end() {
	err := f.st.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.err == nil:
	case errors.Is(f.err, errGone) || f.job.whole:
		f.err = fmt.Errorf("the state is lost: the state file %s could not be written anew: %w", f.st.path, f.err)
	default:
		f.err = fmt.Errorf("the changes since %s are lost: the state file %s could not be written: %w", f.info.LastSave.Format(time.RFC3339), f.st.path, f.err)
	}
	f.err = errors.Join(f.err, err)
}

// Save writes everything decided before the call and returns when it is on
// disk, or with the error of the attempt.
func (f *Flusher) Save() error {
	w := make(chan error, 1)
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return ErrClosed
	}
	f.waiters = append(f.waiters, w)
	f.mu.Unlock()
	f.nudge()
	return <-w
}

// BackgroundSave begins what Save does and returns. If one is about to begin,
// that one is it. Its outcome is in Info.
func (f *Flusher) BackgroundSave() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	if !f.queued {
		f.queued = true
		f.nudge()
	}
	return nil
}

func (f *Flusher) nudge() {
	select {
	case f.wake <- struct{}{}:
	default: // one is on its way, and its flush begins after this
	}
}

// LastSave is the wall clock time of the last flush that succeeded, one that
// found nothing to write included: all decided before it is on disk. Before the
// first, it is that of the file that was loaded.
func (f *Flusher) LastSave() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.info.LastSave
}

// Info is the state of saving.
func (f *Flusher) Info() Info {
	f.mu.Lock()
	i := f.info
	f.mu.Unlock() // before the engine takes locks of its own
	// In this order: what a cut takes is counted there before it is missing here.
	i.Changed = f.ks.Changed()
	i.Changed += f.job.taken.Load()
	return i
}

// Close flushes for the last time, closes the file and gives the folder back.
// Decisions must have stopped, or those after the last cut are lost. If the
// file cannot be written, the flush is repeated until ctx ends; the error then
// says what is lost. Later calls return what the first did.
func (f *Flusher) Close(ctx context.Context) error {
	f.mu.Lock()
	first := !f.closed
	if first {
		f.closed = true
		f.ctx = ctx
	}
	f.mu.Unlock()
	if first {
		close(f.stop)
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		// The goroutine ends by itself once a write that hangs returns; but
		// one that is just done is not to be reported as hanging.
		select {
		case <-f.done:
		case <-time.After(retryClose):
			return fmt.Errorf("the last changes may be lost: the state file %s is still being written: %w", f.st.path, ctx.Err())
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
