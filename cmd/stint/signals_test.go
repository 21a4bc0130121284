package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// watched runs a watch within a bubble of synctest, without real signals.
func watched(t *testing.T, f func(w *watch, exits chan string, log *bytes.Buffer)) {
	synctest.Test(t, func(*testing.T) {
		exits := make(chan string, 8)
		var log bytes.Buffer
		w := newWatch(slog.New(slog.NewTextHandler(&log, nil)), func(reason string) { exits <- reason })
		go w.run()
		f(w, exits, &log)
		w.end()
	})
}

// after lets time go by and everything that waits run.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestARepeatedTerminateChangesNothing(t *testing.T) {
	watched(t, func(w *watch, exits chan string, log *bytes.Buffer) {
		failing := func() bool { return true }
		w.failing.Store(&failing)
		w.signal <- syscall.SIGTERM
		after(0)
		if w.asked.Err() == nil {
			t.Error("the first signal does not stop the server")
		}
		for _, pause := range []time.Duration{0, time.Millisecond, time.Second, 5 * time.Second} {
			after(pause)
			w.signal <- syscall.SIGTERM
			after(0)
		}
		if w.hurry.Err() != nil || len(exits) != 0 {
			t.Errorf("hurry %v, %d exits", w.hurry.Err(), len(exits))
		}
		if n := strings.Count(log.String(), "repeated signal is ignored"); n != 4 {
			t.Errorf("%d of 4 repeated signals are noted:\n%s", n, log)
		}
	})
}

func TestASecondInterruptEndsTheWaitForClients(t *testing.T) {
	for _, x := range []struct {
		pause time.Duration
		hurry bool
	}{{0, false}, {impatience - 1, false}, {impatience, true}, {5 * time.Second, true}} {
		watched(t, func(w *watch, exits chan string, log *bytes.Buffer) {
			failing := func() bool { return false }
			w.failing.Store(&failing)
			w.signal <- os.Interrupt
			after(x.pause)
			w.signal <- os.Interrupt
			after(0)
			if hurry := w.hurry.Err() != nil; hurry != x.hurry || len(exits) != 0 {
				t.Errorf("after %v: hurry %v, want %v; %d exits\n%s", x.pause, hurry, x.hurry, len(exits), log)
			}
		})
	}
}

func TestASecondInterruptEndsAFlushThatFails(t *testing.T) {
	watched(t, func(w *watch, exits chan string, _ *bytes.Buffer) {
		failing := func() bool { return true }
		w.failing.Store(&failing)
		w.signal <- syscall.SIGTERM
		after(impatience)
		w.signal <- os.Interrupt
		after(0)
		if len(exits) != 1 || !strings.Contains(<-exits, "second interrupt") {
			t.Error("the process was not ended because of the second interrupt")
		}
	})
}

func TestAStopThatTakesTooLongIsEnded(t *testing.T) {
	watched(t, func(w *watch, exits chan string, _ *bytes.Buffer) {
		after(time.Hour) // nobody has asked yet
		w.signal <- syscall.SIGTERM
		after(stopLimit - 1)
		if len(exits) != 0 {
			t.Errorf("too early: %q", <-exits)
		}
		after(1)
		if len(exits) != 1 || !strings.Contains(<-exits, "too long") {
			t.Error("the process was not ended because of the time")
		}
	})
}

func TestAnAddressInUseIsExplained(t *testing.T) {
	tcp := func(cause error) error {
		return fmt.Errorf("open the listener: %w", &net.OpError{
			Op: "listen", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6390}, Err: os.NewSyscallError("bind", cause),
		})
	}
	for _, x := range []struct {
		err  error
		want []string
	}{
		{tcp(syscall.EADDRINUSE), []string{"cannot listen on 127.0.0.1:6390: address already in use: stop the program that listens there", "6390", "choose another address with --addr"}},
		{tcp(syscall.EACCES), []string{"choose a port of 1024 or above"}},
		{tcp(syscall.EADDRNOTAVAIL), []string{"an address of this machine"}},
		{tcp(syscall.ENOBUFS), []string{"cannot listen on 127.0.0.1:6390: no buffer space"}},
		{&net.OpError{Op: "listen", Net: "unix", Addr: &net.UnixAddr{Net: "unix", Name: "/x"}, Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}, []string{"cannot listen on unix:/x", "lsof /x"}},
		{errors.New("another"), []string{"another"}},
	} {
		got := listenError(x.err, "addr")
		for _, want := range x.want {
			if !strings.Contains(got.Error(), want) || strings.Contains(got.Error(), "bind") {
				t.Errorf("%v is worded %q, want %q", x.err, got, want)
			}
		}
	}
	if listenError(nil, "addr") != nil {
		t.Error("no error is one")
	}
}
