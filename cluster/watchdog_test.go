package cluster

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stint-dev/stint/engine/store"
)

// hungLog is a log whose disk hangs from when it is told to.
type hungLog struct {
	*memLog
	hang atomic.Pointer[chan struct{}]
	fail atomic.Pointer[error]
}

func (l *hungLog) StoreLogs(ls []*raft.Log) error {
	if gate := l.hang.Load(); gate != nil {
		<-*gate
	}
	if err := l.fail.Load(); err != nil {
		return *err
	}
	return l.memLog.StoreLogs(ls)
}

func (l *hungLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// TestALeaderWhoseDiskHangsIsReplaced fails when its heartbeats keep the others
// loyal, and when it is heard no more after the disk is back.
func TestALeaderWhoseDiskHangsIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := make([]*hungLog, 3)
		s := newSim(t, 3, 0, func(i int, c *Config) {
			if logs[i] == nil {
				logs[i] = &hungLog{memLog: c.Log.(*memLog)}
			}
			c.Log = logs[i]
		})
		defer s.stop()
		time.Sleep(5 * time.Second)
		leads := func() (leaders []int) {
			for i, n := range s.nodes {
				if n.term.Load() != 0 {
					leaders = append(leaders, i)
				}
			}
			return leaders
		}
		first := leads()
		if len(first) != 1 {
			t.Fatalf("%d nodes lead", len(first))
		}
		old := first[0]
		gate := make(chan struct{})
		logs[old].hang.Store(&gate)
		go do(s.nodes[old].Group, "take k 1") // hangs
		time.Sleep(8 * time.Second)
		if !s.nodes[old].trans.muted.Load() {
			t.Error("a node whose disk hangs still sends")
		}
		other := s.nodes[(old+1)%3]
		if got, o := do(other.Group, "take k 1"); o != store.Decided {
			t.Errorf("the others do not decide while the leader's disk hangs: %s", got)
		}
		logs[old].hang.Store(nil)
		close(gate)
		time.Sleep(20 * time.Second)
		if s.nodes[old].trans.muted.Load() {
			t.Error("the node is silent though its disk answers again")
		}
		if got, o := do(s.nodes[old].Group, "take k 1"); o != store.Decided {
			t.Errorf("the node does not serve again: %s", got)
		}
	})
}

// TestADiskThatHangsForLongEndsTheNode, as one that is full does, with a sentence.
func TestADiskThatHangsForLongEndsTheNode(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"hangs": {nil, "the disk hangs"},
		"full":  {fmt.Errorf("write: %w", syscall.ENOSPC), "is full: make room"},
		"fails": {errors.New("input/output error"), "write the log: input/output error"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var said atomic.Pointer[error]
			l := &hungLog{memLog: newMemLog()}
			n := newNode(t, "solo", func(conf *Config) {
				conf.Log = l
				conf.Fatal = func(err error) { said.CompareAndSwap(nil, &err) }
			})
			n.start()
			if got, o := do(n.Group, "take k 1"); o != store.Decided {
				t.Fatal(got)
			}
			gate := make(chan struct{})
			if c.err != nil {
				l.fail.Store(&c.err)
			} else {
				l.hang.Store(&gate)
			}
			if _, o := do(n.Group, "take k 1"); o != store.Unknown {
				t.Errorf("%s: the outcome is %v", name, o)
			}
			time.Sleep(exitAfter + 5*time.Second)
			if err := said.Load(); err == nil || !strings.Contains((*err).Error(), c.want) {
				t.Errorf("%s: the node ends with %v, want %q", name, err, c.want)
			}
			close(gate)
			n.stop()
			time.Sleep(time.Minute)
		})
	}
}
