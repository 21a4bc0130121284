package cluster

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/store"
)

// newFSM makes a state machine by itself.
func newFSM(t testing.TB, bug seeded) *fsm {
	t.Helper()
	ks, err := engine.New(engine.Options{Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	return &fsm{ks: ks, wall: time.Now, bug: bug, level: FormatLevel, meta: meta{Members: map[string]Member{}}, changed: func() {}, fatal: func(err error) { t.Error(err) }}
}

// taking is an entry that takes one unit, as decided on the state of f.
func taking(f *fsm, term, n uint64) []byte {
	o := f.ks.NewOverlay()
	tx := o.Begin(1e18)
	words{}.Execute(tx, batchOf("take k 1").Requests, nil)
	return o.Append(appendEntryHead(nil, entryEffects, term, n, tx.Now()))
}

func used(f *fsm) int64 {
	tx := f.ks.Begin(1e18)
	defer tx.End()
	info, _ := tx.Inspect([]byte("k"))
	return info.Used
}

// fenceHolds says whether entries count only where they were meant to.
func fenceHolds(t *testing.T, bug seeded) bool {
	f := newFSM(t, bug)
	first, stale := taking(f, 2, 1), taking(f, 2, 2)
	f.Apply(&raft.Log{Index: 5, Term: 2, Data: first})
	for _, late := range []raft.Log{
		{Index: 6, Term: 3, Data: stale},           // appended in a later term than decided in
		{Index: 7, Term: 2, Data: taking(f, 2, 3)}, // one is missing before it
		{Index: 8, Term: 2, Data: first},           // once more
		{Index: 9, Term: 4, Data: taking(f, 4, 2)}, // not the first of its term
	} {
		f.ks.Reset()
		if f.Apply(&late); used(f) != 0 {
			return false
		}
	}
	return used(f) == 0 && f.Apply(&raft.Log{Index: 10, Term: 4, Data: taking(f, 4, 1)}) == nil && used(f) == 1
}

func TestEntriesCountOnlyInTheTermTheyWereDecidedIn(t *testing.T) {
	if !fenceHolds(t, noBug) {
		t.Error("an entry counts where it must not, or not where it must")
	}
	if fenceHolds(t, bugNoFence) {
		t.Error("the fault nofence is not noticed")
	}
}

// confirmsAlone says whether a leader that reaches no other voter, but a node
// without a vote, takes itself for confirmed.
func confirmsAlone(t *testing.T, bug seeded) (alone bool) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 4, 1, func(_ int, c *Config) { c.bug = bug })
		defer s.stop()
		time.Sleep(5 * time.Second)
		for i, n := range s.nodes[:3] {
			if n.term.Load() == 0 {
				continue
			}
			for j := range 3 {
				if j != i {
					s.link(i, j, false)
				}
			}
			// Raft itself notices after the lease of half a second.
			alone = n.confirm(t.Context(), n.term.Load(), time.Now())
			return
		}
		t.Error("nobody leads")
	})
	return alone
}

func TestALeaderIsConfirmedByVotersOnly(t *testing.T) {
	if confirmsAlone(t, noBug) {
		t.Error("a leader that no voter can hear is confirmed")
	}
	if !confirmsAlone(t, bugVerifyLeader) {
		t.Error("the fault verifyleader is not noticed")
	}
}

func TestOnlyAnswersToWhatWasSentAfterwardsCount(t *testing.T) {
	a := newAcks()
	begun := time.Now()
	ids := []raft.ServerID{"a", "b", "c"}
	answer := func(id raft.ServerID, sent time.Time, term uint64, success bool) {
		a.note(id, sent, &raft.AppendEntriesRequest{Term: term}, &raft.AppendEntriesResponse{Term: term, Success: success})
	}
	wants := func(want bool, when string) {
		t.Helper()
		if got, _ := a.majority(ids, "a", 7, begun); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	wants(false, "no answers")
	answer("b", begun.Add(-1), 7, true)
	wants(false, "an answer to an earlier request")
	answer("b", begun.Add(1), 6, true)
	wants(false, "an answer in another term")
	answer("b", begun.Add(1), 7, false)
	wants(false, "an answer that is a refusal")
	answer("x", begun.Add(1), 7, true)
	wants(false, "an answer of who has no vote")
	answer("b", begun, 7, true)
	wants(true, "an answer to a request sent at that moment")
	if ok, _ := a.majority([]raft.ServerID{"b", "c"}, "a", 7, begun); ok {
		t.Error("a leader without a vote counts itself")
	}
}

// slowLog holds writes of entries back until it is let go.
type slowLog struct {
	*memLog
	mu   sync.Mutex
	gate chan struct{} // nil: open
}

func (l *slowLog) StoreLogs(ls []*raft.Log) error {
	l.mu.Lock()
	gate := l.gate
	l.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return l.memLog.StoreLogs(ls)
}

func (l *slowLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// heldBack runs two batches that both want the last unit while the log is slow. It
// says whether a reply came before the log was written, and how many were allowed.
func heldBack(t *testing.T, bug seeded) (early bool, allowed int) {
	synctest.Test(t, func(t *testing.T) {
		l := &slowLog{memLog: newMemLog()}
		n := newNode(t, "solo", func(c *Config) { c.Log, c.bug, c.DecisionTimeout = l, bug, time.Hour })
		n.start()
		defer func() { n.stop(); time.Sleep(time.Minute) }()
		if got, o := do(n.Group, "take k 999999"); o != store.Decided {
			t.Fatal(got)
		}
		synctest.Wait() // with a reply that is early the entry may still be on its way
		gate := make(chan struct{})
		l.mu.Lock()
		l.gate = gate
		l.mu.Unlock()
		replies := make(chan string, 2)
		for range 2 {
			go func() {
				got, _ := do(n.Group, "take k 1")
				replies <- got
			}()
			synctest.Wait()
		}
		early = len(replies) > 0
		l.mu.Lock()
		l.gate = nil
		l.mu.Unlock()
		close(gate)
		for range 2 {
			if strings.HasPrefix(<-replies, "1 ") {
				allowed++
			}
		}
	})
	return early, allowed
}

func TestRepliesWaitForTheLogAndForWhatTheySaw(t *testing.T) {
	if early, allowed := heldBack(t, noBug); early || allowed != 1 {
		t.Errorf("a reply came before its entry was written: %v; %d of two got the last unit", early, allowed)
	}
	if early, _ := heldBack(t, bugEarlyReply); !early {
		t.Error("the fault earlyreply is not noticed")
	}
	if _, allowed := heldBack(t, bugEarlyDrop); allowed != 2 {
		t.Error("the fault earlydrop is not noticed")
	}
}

// TestWhatCannotBeCommittedIsUnknown stops the log for good: what had effects is
// unknown after the time for a decision, what was still waiting was not applied.
func TestWhatCannotBeCommittedIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &slowLog{memLog: newMemLog()}
		n := newNode(t, "solo", func(c *Config) { c.Log, c.DecisionTimeout = l, 500*time.Millisecond })
		n.start()
		if got, o := do(n.Group, "take k 1"); o != store.Decided {
			t.Fatal(got)
		}
		synctest.Wait()
		gate := make(chan struct{})
		l.mu.Lock()
		l.gate = gate
		l.mu.Unlock()
		outcomes := make(chan store.Outcome, 2)
		for range 2 {
			go func() {
				begun := time.Now()
				_, o := do(n.Group, "take k 1")
				if took := time.Since(begun); took < 500*time.Millisecond || took > 600*time.Millisecond {
					t.Errorf("an answer after %v", took)
				}
				outcomes <- o
			}()
			synctest.Wait()
		}
		if a, b := <-outcomes, <-outcomes; a+b != store.Unknown+store.NotApplied {
			t.Errorf("the outcomes are %v and %v", a, b)
		}
		l.mu.Lock()
		l.gate = nil
		l.mu.Unlock()
		close(gate)
		if got, o := do(n.Group, "peek k"); o != store.Decided || got != "999998;" {
			t.Errorf("%q (%v) are left", got, o)
		}
		n.stop()
		time.Sleep(time.Minute)
	})
}

func TestALeaderBeginsAtATimeThatTheMajorityKnows(t *testing.T) {
	const s = int64(time.Second)
	for _, c := range []struct {
		name   string
		own    reading
		others []reading
		now    int64
		ahead  time.Duration
	}{
		{"alone", reading{Expected: 10 * s, Agreed: true, Wall: 12 * s}, nil, 12 * s, 0},
		{"alone, after a long stop", reading{Expected: 10 * s, Wall: 5000 * s}, nil, 5000 * s, 0},
		{"alone, set back", reading{Expected: 100 * s, Wall: 50 * s}, nil, 100 * s, 0},
		{"all is well", reading{Expected: 99 * s, Agreed: true, Wall: 100 * s}, []reading{{Expected: 98 * s, Agreed: true, Wall: 101 * s}}, 100 * s, 0},
		{"own clock ahead", reading{Expected: 99 * s, Wall: 3700 * s}, []reading{{Expected: 100 * s, Agreed: true, Wall: 100 * s}}, 100 * s, 3600 * time.Second},
		{"own clock ahead, and nobody was up", reading{Expected: 9 * s, Wall: 3700 * s}, []reading{{Expected: 10 * s, Wall: 100 * s}}, 100 * s, 3600 * time.Second},
		{"own clock behind", reading{Expected: 99 * s, Wall: 10 * s}, []reading{{Expected: 100 * s, Agreed: true, Wall: 100 * s}}, 100 * s, 0},
		{"a full restart after an hour", reading{Expected: 10 * s, Wall: 3600 * s}, []reading{{Expected: 9 * s, Wall: 3601 * s}}, 3600 * s, 0},
		{"the others' clocks are ahead", reading{Expected: 99 * s, Agreed: true, Wall: 100 * s}, []reading{{Expected: 100 * s, Wall: 9000 * s}, {Expected: 100 * s, Wall: 9000 * s}}, 100 * s, 0},
		{"all clocks have jumped, and one was up", reading{Expected: 100 * s, Agreed: true, Wall: 9000 * s}, []reading{{Expected: 100 * s, Agreed: true, Wall: 9000 * s}}, 100 * s, 8900 * time.Second},
	} {
		if now, ahead := begin(c.own, c.others); now != c.now || ahead != c.ahead {
			t.Errorf("%s: begins at %v, %v refused, want %v, %v", c.name, time.Duration(now), ahead, time.Duration(c.now), c.ahead)
		}
	}
}

// TestTimeGoesOnWhileTheWallClockJumps fails when the wall clock of a leader moves
// its decisions.
func TestTimeGoesOnWhileTheWallClockJumps(t *testing.T) {
	base := time.Now()
	c := leaderClock{frozen: new(frozenClock), wall: func() time.Time { return base }, anchor: 1e18, start: base}
	c.frozen.at.Store(runs)
	base = base.Add(3 * time.Second)
	if got := c.now(0); got != 1e18+3e9 {
		t.Errorf("after 3 s it is %d", got)
	}
	if got := c.now(2e18); got != 2e18 {
		t.Errorf("behind the log it is %d", got)
	}
	c.frozen.at.Store(5)
	if got := c.now(4); got != 5 {
		t.Errorf("frozen it is %d", got)
	}
}

// sink is a snapshot in memory.
type sink struct{ bytes.Buffer }

func (*sink) Close() error  { return nil }
func (*sink) ID() string    { return "s" }
func (*sink) Cancel() error { return errors.New("cancelled") }

// TestSnapshotsAndTheLogMakeTheSameState applies the same log with snapshots at
// other points.
func TestSnapshotsAndTheLogMakeTheSameState(t *testing.T) {
	leader := newFSM(t, noBug)
	var log []*raft.Log
	for i := range uint64(60) {
		o := leader.ks.NewOverlay()
		tx := o.Begin(int64(1e18) + int64(i)*1e9)
		words{}.Execute(tx, batchOf("take a 1", "take b 2", "take c 3").Requests, nil)
		e := &raft.Log{Index: i + 1, Term: 1, Data: o.Append(appendEntryHead(nil, entryEffects, 1, i+1, tx.Now()))}
		leader.Apply(e)
		log = append(log, e)
	}
	hash := func(f *fsm) uint64 {
		v, err := f.ks.Freeze()
		if err != nil {
			t.Fatal(err)
		}
		return v.Hash()
	}
	want := hash(leader)
	for _, at := range []int{0, 1, 17, 59, 60} {
		a := newFSM(t, noBug)
		for _, e := range log[:at] {
			a.Apply(e)
		}
		snap, err := a.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range log[at:] { // while the snapshot is open
			a.Apply(e)
		}
		var s sink
		if err := snap.Persist(&s); err != nil {
			t.Fatal(err)
		}
		snap.Release()
		whole := bytes.Clone(s.Bytes())
		b := newFSM(t, noBug)
		if err := b.Restore(io.NopCloser(&s)); err != nil {
			t.Fatal(err)
		}
		for _, e := range log[at:] {
			b.Apply(e)
		}
		if x, y := hash(a), hash(b); x != want || y != want || b.fence != leader.fence {
			t.Errorf("with a snapshot after %d: hashes %x and %x, want %x", at, x, y, want)
		}
		for i := range whole {
			damaged := bytes.Clone(whole)
			damaged[i] ^= 0x41
			if _, err := CheckBackup(bytes.NewReader(damaged)); err == nil {
				t.Fatalf("with byte %d of %d changed it is accepted", i, len(whole))
			}
			if _, err := CheckBackup(bytes.NewReader(whole[:i])); err == nil {
				t.Fatalf("cut to %d of %d bytes it is accepted", i, len(whole))
			}
		}
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add(appendEntryHead(nil, entryEffects, 1, 2, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := parseEntry(b); err == nil {
			again := append(appendEntryHead(nil, e.kind, e.term, e.n, e.time), e.payload...)
			if x, err := parseEntry(again); err != nil || x.term != e.term || x.n != e.n || x.time != e.time {
				t.Fatalf("%v becomes %v", e, x)
			}
		}
	})
}

func FuzzParseBatch(f *testing.F) {
	g := &Group{cfg: Config{Lookup: func([][]byte) (int32, bool) { return 1, true }}}
	f.Add(appendBatch(nil, batchOf("take k 1", "peek k")))
	f.Fuzz(func(t *testing.T, b []byte) {
		batch, err := g.parseBatch(b)
		if err != nil {
			return
		}
		again, err := g.parseBatch(appendBatch(nil, batch))
		if err != nil || len(again.Requests) != len(batch.Requests) {
			t.Fatalf("%d requests become %v, %v", len(batch.Requests), again, err)
		}
	})
}
