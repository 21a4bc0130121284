package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/store"
)

// LogStore keeps Raft's log, votes and terms on disk: each method that changes
// something returns when that would survive the machine.
type LogStore interface {
	raft.LogStore
	raft.StableStore
	Bytes() int64 // of all entries, about
	Close() error
}

// Calls is the Raft port as a Group uses it. *port.Port is one.
type Calls interface {
	// Go asks the node with Raft ID to (empty: whoever is there) at addr; done is
	// called once. It does not block. payload is copied.
	Go(addr, to string, kind uint8, payload []byte, done func(reply []byte, err error))
	// Call is Go, and waits.
	Call(ctx context.Context, addr, to string, kind uint8, payload []byte) ([]byte, error)
}

// Config is all that a Group is made of.
type Config struct {
	NodeID string // [A-Za-z0-9_-]{1,64}
	Dir    string // of the node; the caller holds its lock

	// Port opens the Raft port; nil for a single voter, which has none.
	Port *PortConfig

	Keyspace  *engine.Keyspace // empty; the Group fills it
	Executor  store.Executor
	Log       LogStore // closed by Close
	Snapshots raft.SnapshotStore

	// Lookup finds the number of a command for the words that another node has
	// sent; SlowRead says whether a command only reads and may take long.
	Lookup   func(args [][]byte) (cmd int32, ok bool)
	SlowRead func(cmd int32) bool

	Clients []string // addresses that clients can reach this node at
	Version string   // of the program

	DecisionTimeout time.Duration // 0: 500 ms
	ElectionTimeout time.Duration // without a leader's word before an election; 0: 1 s
	SnapshotBytes   int64         // of log after which a snapshot is taken, at least; 0: 64 MiB

	Now    func() time.Time // wall clock with a monotonic reading; nil: time.Now
	Frozen *int64           // the test clock stands at this time, unix ns, from the start
	Logger *slog.Logger     // nil: nothing is logged

	// Fatal is called when the node must not go on, with a sentence, from any
	// goroutine and at most once. It should end the process.
	Fatal func(error)

	// For tests.
	transport inner
	calls     Calls
	bug       seeded
}

// Group is one node's part of a replicated keyspace. Its methods may be called
// from any goroutine.
//
// Its goroutines: one that watches the leadership, and for as long as this node
// leads the one that leads (the proposer) and one for its upkeep; one that
// follows Raft's news of the leader; one that ends batches whose time is over;
// one for upkeep of the node (snapshots, watchdogs); one that joins, until that
// is done; one for each slow read. Besides them those of Raft, and of the port.
//
// Locks, none of which is held while another is taken but as said: fsm.mu, the
// apply lock, under which the engine's locks are taken; routing, under which mu
// is; mu, which guards what waits.
type Group struct {
	cfg       Config
	log       *slog.Logger
	id        raft.ServerID
	bug       seeded
	fsm       *fsm
	acks      *acks
	frozen    frozenClock
	disk      *watchedLog
	trans     *transport
	port      portCloser
	calls     Calls
	clusterID atomic.Pointer[string] // the cluster's id

	raft  *raft.Raft
	ready chan struct{} // closed when raft is there

	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	readers sync.WaitGroup // slow reads and the leader's upkeep
	leads   sync.WaitGroup // leaderships
	halted  chan struct{}  // closed when Raft has stopped

	deadlines *deadlines
	work      chan struct{} // something waits for the proposer
	orders    chan order
	freeze    sync.Mutex // held while the keyspace is frozen

	routing sync.Mutex
	term    atomic.Uint64 // in which this node decides; 0: it does not. changed under routing

	mu      sync.Mutex
	closing bool
	route   route
	waiting []*ticket

	skew      atomic.Int64 // ns by which the wall clock was refused
	snapshot  snapshotState
	hash      stateHash
	count     counters
	failed    sync.Once
	announced time.Time // when the leader was last told; upkeep's
}

// counters count since the start.
type counters struct {
	batches, commands, entries, entryBytes, confirmed atomic.Uint64
	notApplied, unknown                               atomic.Uint64
	forwarded, relayed, forwardLost                   atomic.Uint64
}

// Keys of what a node knows about itself, in the stable store.
var (
	keyNode        = []byte("stint/node")
	keyIncarnation = []byte("stint/incarnation")
	keyCluster     = []byte("stint/cluster")
)

// ErrConfig: Open was given what it cannot use.
var ErrConfig = errors.New("cluster: invalid configuration")

// Open makes a Group of what is in the log and the snapshots, or begins a new
// one, or joins one. It returns before there is a leader.
func Open(cfg Config) (g *Group, err error) {
	if cfg.Keyspace == nil || cfg.Executor == nil || cfg.Log == nil || cfg.Snapshots == nil || cfg.NodeID == "" {
		return nil, fmt.Errorf("%w: NodeID, Keyspace, Executor, Log and Snapshots are required", ErrConfig)
	}
	if cfg.DecisionTimeout <= 0 {
		cfg.DecisionTimeout = 500 * time.Millisecond
	}
	if cfg.ElectionTimeout <= 0 {
		cfg.ElectionTimeout = time.Second
	}
	if cfg.SnapshotBytes <= 0 {
		cfg.SnapshotBytes = 64 << 20
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Fatal == nil {
		cfg.Fatal = func(err error) { panic(err) }
	}
	g = &Group{cfg: cfg, log: cfg.Logger, bug: cfg.bug, acks: newAcks(), ready: make(chan struct{}), halted: make(chan struct{}), work: make(chan struct{}, 1), orders: make(chan order)}
	if g.bug == noBug {
		g.bug = seededBug()
	}
	g.frozen.at.Store(runs)
	if cfg.Frozen != nil {
		g.frozen.at.Store(*cfg.Frozen)
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if err := g.identify(); err != nil {
		return nil, err
	}
	g.fsm = &fsm{ks: cfg.Keyspace, wall: cfg.Now, fatal: g.fatal, bug: g.bug, level: seededLevel(), meta: meta{Members: map[string]Member{}}, changed: g.metaChanged}
	g.deadlines = newDeadlines(cfg.DecisionTimeout, g.overdue)
	if err := g.begin(); err != nil {
		g.cancel()
		g.deadlines.close()
		return nil, err
	}
	return g, nil
}

// fatal ends the node, once.
func (g *Group) fatal(err error) {
	g.failed.Do(func() { g.cfg.Fatal(err) })
}

// identify reads who this node is, or decides it.
func (g *Group) identify() error {
	node, err := getString(g.cfg.Log, keyNode)
	if err != nil {
		return err
	}
	if node != "" && node != g.cfg.NodeID {
		return fmt.Errorf("the folder %s belongs to node %q, and this node is %q: give it its own folder, or its name", g.cfg.Dir, node, g.cfg.NodeID)
	}
	incarnation, err := getString(g.cfg.Log, keyIncarnation)
	if err != nil {
		return err
	}
	if incarnation == "" {
		incarnation = randomID()
		if err := g.cfg.Log.Set(keyIncarnation, []byte(incarnation)); err != nil {
			return fmt.Errorf("write the identity of the node: %w", err)
		}
		if err := g.cfg.Log.Set(keyNode, []byte(g.cfg.NodeID)); err != nil {
			return fmt.Errorf("write the identity of the node: %w", err)
		}
	}
	cluster, err := getString(g.cfg.Log, keyCluster)
	if err != nil {
		return err
	}
	g.clusterID.Store(&cluster)
	g.id = raft.ServerID(serverID(g.cfg.NodeID, incarnation))
	return nil
}

// setCluster notes which cluster this node belongs to, before it takes part.
func (g *Group) setCluster(id string) error {
	if err := g.cfg.Log.Set(keyCluster, []byte(id)); err != nil {
		return fmt.Errorf("write the identity of the cluster: %w", err)
	}
	g.clusterID.Store(&id)
	return nil
}

// cluster is the id of the cluster this node belongs to, empty if none yet.
func (g *Group) cluster() string { return *g.clusterID.Load() }

func randomID() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // it does not fail: see crypto/rand
	return hex.EncodeToString(b)
}

// getString reads a key of the stable store; "" if it is not there.
func getString(s raft.StableStore, key []byte) (string, error) {
	b, err := s.Get(key)
	if err != nil && err.Error() != "not found" { // as Raft itself tells it
		return "", fmt.Errorf("read the identity of the node: %w", err)
	}
	return string(b), nil
}

// ID is this node's ID in Raft.
func (g *Group) ID() string { return string(g.id) }

// NodeID is the name its operator gave it.
func (g *Group) NodeID() string { return g.cfg.NodeID }

// Ready is closed when this node takes part in Raft: at once if it did before,
// else when it has founded or joined a cluster.
func (g *Group) Ready() <-chan struct{} { return g.ready }

func (g *Group) isReady() bool {
	select {
	case <-g.ready:
		return true
	default:
		return false
	}
}

// Serving says whether batches can be decided through this node now.
func (g *Group) Serving() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.closing && (g.route.self || g.route.peer != "")
}

// start starts Raft. The membership is settled, in the log or by what follows.
func (g *Group) start() error {
	g.disk = newWatchedLog(g.cfg.Log, g)
	g.trans = &transport{inner: g.cfg.transport, acks: g.acks}
	notify := make(chan bool, 16)
	conf := g.raftConfig(notify)
	r, err := raft.NewRaft(conf, g.fsm, g.disk, g.disk, g.cfg.Snapshots, g.trans)
	if err != nil {
		return fmt.Errorf("start Raft: %w", err)
	}
	g.raft = r
	news := make(chan raft.Observation, 16)
	r.RegisterObserver(raft.NewObserver(news, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.LeaderObservation, raft.RaftState:
			return true
		}
		return false
	}))
	g.hurry()
	g.wg.Go(func() { g.watchLeadership(notify) })
	g.wg.Go(func() { g.watchLeader(news) })
	g.wg.Go(g.upkeep)
	g.wg.Go(g.disk.watch)
	close(g.ready)
	g.follow()
	return nil
}

// raftConfig is Raft's configuration. Snapshots are taken by upkeep, by bytes;
// Raft itself would count entries.
func (g *Group) raftConfig(notify chan<- bool) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = g.id
	c.HeartbeatTimeout = g.cfg.ElectionTimeout
	c.ElectionTimeout = g.cfg.ElectionTimeout
	c.LeaderLeaseTimeout = g.cfg.ElectionTimeout / 2
	c.CommitTimeout = min(50*time.Millisecond, g.cfg.ElectionTimeout/10)
	c.MaxAppendEntries = 16
	c.SnapshotInterval = 365 * 24 * time.Hour
	c.SnapshotThreshold = 1 << 62
	c.TrailingLogs = trailingLeast
	c.NotifyCh = notify
	c.Logger = newRaftLogger(g.log)
	c.NoLegacyTelemetry = true
	return c
}

// hurry has a sole voter elect itself at once: nobody else can be the leader. A
// changed time-out makes Raft look at its clock again.
func (g *Group) hurry() {
	c := g.raft.GetConfiguration().Configuration()
	if len(c.Servers) != 1 || c.Servers[0].ID != g.id {
		return
	}
	rc := g.raft.ReloadableConfig()
	rc.HeartbeatTimeout -= time.Millisecond
	if err := g.raft.ReloadConfig(rc); err != nil {
		g.log.Debug("the election of a single node is not hurried", "error", err)
	}
}

// Close stops the node: nothing new is taken, what was run is waited for until
// ctx ends, and the leadership is handed over first, so that the others need no
// election. The log is closed last.
func (g *Group) Close(ctx context.Context) error {
	g.mu.Lock()
	if g.closing {
		g.mu.Unlock()
		return nil
	}
	g.closing = true
	g.mu.Unlock()
	var errs []error
	if g.isReady() && g.raft.State() == raft.Leader && len(voters(g.raft.GetConfiguration().Configuration())) > 1 {
		if err := g.transfer(ctx, ""); err != nil {
			g.log.Warn("the leadership could not be handed over: the others elect a leader when they miss this one", "error", err)
		}
	}
	g.cancel()
	if g.isReady() {
		// What is on its way is answered before Raft stops, which forgets some.
		within(ctx, &g.leads)
		if err := g.raft.Shutdown().Error(); err != nil {
			errs = append(errs, fmt.Errorf("stop Raft: %w", err))
		}
	} else {
		errs = append(errs, g.cfg.transport.Close())
	}
	close(g.halted)
	if g.port != nil {
		errs = append(errs, g.port.Close())
	}
	g.wg.Wait()
	g.readers.Wait()
	for _, t := range g.take(nil) {
		t.finish(queued, store.NotApplied, whyStopped)
	}
	g.deadlines.close()
	errs = append(errs, g.cfg.Log.Close())
	return errors.Join(errs...)
}

// within waits for a group, until ctx ends.
func within(ctx context.Context, wg *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
