package admin

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestCloseWakesWhoWaitsForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newPipeListener()
		l := newLimitListener(inner, 1)
		go func() {
			c := inner.dial()
			defer c.Close()
		}()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error)
		go func() {
			_, err := l.Accept()
			failed <- err
		}()
		synctest.Wait()
		for range 2 {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case err := <-failed:
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("Accept waits for a slot though the listener is closed")
		}
		_ = c.Close()
	})
}

// failing is a listener without a connection to give.
type failing struct {
	*pipeListener
	err error
}

func (f *failing) Accept() (net.Conn, error) { return nil, f.err }

// TestAFailedAcceptTakesNoSlot: net/http tries again when the system is out of
// open files.
func TestAFailedAcceptTakesNoSlot(t *testing.T) {
	l := newLimitListener(&failing{newPipeListener(), errors.New("too many open files")}, 1)
	for range 3 {
		if _, err := l.Accept(); err == nil {
			t.Fatal("a connection out of nothing")
		}
	}
	if n := l.open(); n != 0 {
		t.Errorf("%d slots are taken, no connection is open", n)
	}
}
