package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// impatience is how long after the first signal an interrupt counts as a wish
// of its own. Supervisors and shells often deliver one wish twice, to the
// process and to its group, some milliseconds apart.
const impatience = time.Second

// stopSignals are those that end the server in order.
var stopSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM}

// watch turns signals into an ordered stop.
//
// The first SIGINT or SIGTERM asks for it. Repeated ones change nothing, as
// what they would cut short is the last flush: all that was decided since the
// one before. Only a SIGINT, at least impatience after the first signal, is
// heard: it ends the wait for clients at once, and with a flush that fails
// also the process. A flush that does not fail runs on; stopFlush bounds it.
type watch struct {
	asked  context.Context // ends with the first signal
	hurry  context.Context // ends when clients are not to be waited for
	ask    context.CancelFunc
	rush   context.CancelFunc
	log    *slog.Logger
	signal chan os.Signal
	exit   func(reason string) // ends the process

	// failing tells whether the last flush has failed; nil: nothing is flushed.
	failing atomic.Pointer[func() bool]

	done  chan struct{} // closed by stop
	ended chan struct{} // the goroutine has ended
}

func newWatch(log *slog.Logger, exit func(reason string)) *watch {
	w := &watch{
		log: log, exit: exit, signal: make(chan os.Signal, 8),
		done: make(chan struct{}), ended: make(chan struct{}),
	}
	w.asked, w.ask = context.WithCancel(context.Background())
	w.hurry, w.rush = context.WithCancel(context.Background())
	return w
}

// signals begins to listen for signals. From then on the server ends in order
// or, when that takes longer than stopLimit, by itself.
func (p *process) signals(log *slog.Logger) *watch {
	w := newWatch(log, func(reason string) {
		os.Exit(p.fail(exitFailure, fmt.Errorf("ended at once because %s: what was decided since the last flush is lost", reason)))
	})
	signal.Notify(w.signal, stopSignals...)
	go w.run()
	return w
}

// stop ends listening. What was to be done is done: a signal on its way is
// ignored, since with its default effect it would make a failure of a stop
// that was clean.
func (w *watch) stop() {
	signal.Ignore(stopSignals...)
	w.end()
}

// end ends the goroutine and waits for it.
func (w *watch) end() {
	close(w.done)
	<-w.ended
	w.ask()
	w.rush()
}

func (w *watch) run() {
	defer close(w.ended)
	select {
	case s := <-w.signal:
		w.log.Info("stopping", "signal", s.String())
		w.ask()
	case <-w.done:
		return
	}
	begun := time.Now()
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	for {
		select {
		case s := <-w.signal:
			w.again(s, time.Since(begun))
		case <-limit.C:
			w.exit("the stop took too long")
		case <-w.done:
			return
		}
	}
}

// again is told of a repeated signal and the time since the first.
func (w *watch) again(s os.Signal, since time.Duration) {
	failing := w.failing.Load()
	switch {
	case s != os.Interrupt || since < impatience:
		w.log.Info("stopping already: a repeated signal is ignored", "signal", s.String())
	case failing != nil && (*failing)():
		w.exit("of a second interrupt while the state could not be written")
	default:
		w.log.Info("stopping at once: clients are not waited for, the last flush is", "signal", s.String())
		w.rush()
	}
}
