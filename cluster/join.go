package cluster

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stint-dev/stint/cluster/internal/port"
)

// PortConfig is what a node needs to meet others.
type PortConfig struct {
	Listener  net.Listener // closed by Close
	Advertise string       // host:port at which the others reach it
	ServerTLS *tls.Config  // both nil: without TLS
	ClientTLS *tls.Config

	// Join are addresses of Raft ports, this node's own perhaps among them, where
	// a cluster may be found. Expect, if above 0, is how many nodes found a new
	// one: exactly those of Join, when all are there and empty.
	Join   []string
	Expect int
}

// portCloser is the Raft port as Close needs it.
type portCloser interface{ Close() error }

// soloAddr stands for the address of a node without a Raft port.
const soloAddr = "local"

// mostForwarded bounds a forwarded batch, and the replies to one, bytes: about what
// a client may ask for.
const mostForwarded = 64 << 20

// Bounds of the search for a cluster.
const (
	probeEvery   = 250 * time.Millisecond
	probeTimeout = 2 * time.Second
	tellEvery    = 10 * time.Second // between two log lines about why it takes so long
)

// begin finds out what this node is: a member that comes back, the only voter of
// its own, or one that has to look for others.
func (g *Group) begin() error {
	if err := g.openPort(); err != nil {
		return err
	}
	has, err := raft.HasExistingState(g.cfg.Log, g.cfg.Log, g.cfg.Snapshots)
	if err != nil {
		return fmt.Errorf("look for the state of Raft in %s: %w", g.cfg.Dir, err)
	}
	if has {
		if err := g.recoverQuorum(); err != nil {
			return err
		}
		return g.enlist()
	}
	if g.joined() {
		// It was taken in and stopped before the leader had sent anything.
		return g.enlist()
	}
	if g.cfg.Port == nil && g.cfg.calls == nil {
		if err := g.bootstrap(randomID(), []raft.Server{{Suffrage: raft.Voter, ID: g.id, Address: soloAddr}}); err != nil {
			return err
		}
		return g.enlist()
	}
	g.wg.Go(g.search)
	return nil
}

// joined says whether this node was taken into a cluster before.
func (g *Group) joined() bool { return g.cluster() != "" }

// openPort starts the Raft port, which takes calls only until the node is a
// member: what it does not know it must not promise.
func (g *Group) openPort() error {
	switch {
	case g.cfg.transport != nil:
		g.calls = g.cfg.calls
		return nil
	case g.cfg.Port == nil:
		_, g.cfg.transport = raft.NewInmemTransport(soloAddr)
		return nil
	}
	p := port.New(port.Options{
		Listener:  g.cfg.Port.Listener,
		ServerTLS: g.cfg.Port.ServerTLS,
		ClientTLS: g.cfg.Port.ClientTLS,
		Self:      func() port.Identity { return port.Identity{Cluster: g.cluster(), ID: string(g.id)} },
		Serve: func(h port.Hello, kind uint8, payload []byte, reply func([]byte)) {
			g.serveCall(kind, payload, reply)
		},
		MaxFrame: mostForwarded,
		Log:      g.log,
	})
	g.cfg.transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: addresses{g},
		Logger:                newRaftLogger(g.log),
		Stream:                p.Layer(g.cfg.Port.Advertise),
		MaxPool:               3,
		Timeout:               max(2*g.cfg.ElectionTimeout, 2*time.Second),
	})
	g.port, g.calls = p, p
	return p.Start()
}

// addresses gives Raft's transport the address of a node together with its ID,
// which the one who answers there must have.
type addresses struct{ g *Group }

func (a addresses) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if id == a.g.id {
		return raft.ServerAddress(a.g.addr() + "#" + string(id)), nil
	}
	if a.g.isReady() {
		for _, s := range a.g.raft.GetConfiguration().Configuration().Servers {
			if s.ID == id {
				return s.Address + "#" + raft.ServerAddress(id), nil
			}
		}
	}
	return "", fmt.Errorf("the cluster has no node %s", id)
}

// serveCall answers another node. It must not wait.
func (g *Group) serveCall(kind uint8, payload []byte, reply func([]byte)) {
	// later answers from a goroutine of its own, with a copy of what came.
	later := func(f func(payload []byte) []byte) {
		payload = slices.Clone(payload)
		g.readers.Go(func() { reply(f(payload)) })
	}
	switch kind {
	case callForward:
		g.relay(payload, reply)
	case callProbe:
		b, _ := json.Marshal(g.present())
		reply(b)
	case callClock:
		b, _ := json.Marshal(g.reading())
		reply(b)
	case callJoin:
		later(func(b []byte) []byte { return appendRefusal(g.admit(b)) })
	case callAnnounce:
		later(func(b []byte) []byte { return appendRefusal(g.announce(b)) })
	case callIndex:
		later(func([]byte) []byte {
			i, err := g.settled()
			if err != nil {
				return nil
			}
			return binary.BigEndian.AppendUint64(nil, i)
		})
	case callAdmin:
		later(func(b []byte) []byte {
			var c command
			if err := json.Unmarshal(b, &c); err != nil {
				return appendRefusal(err)
			}
			ctx, cancel := context.WithTimeout(g.ctx, adminTimeout)
			defer cancel()
			return appendRefusal(g.obey(ctx, c))
		})
	default:
		reply(appendRefusal(&adminError{Text: "this node does not know what it is asked: do all nodes run the same version?"}))
	}
}

// presence is what a node answers when it is asked who it is.
type presence struct {
	ID, Node, Addr string
	Cluster        string
	Member         bool     // it takes part in Raft
	Join           []string // sorted
	Expect         int
	Level          int
	Durability     string
	Servers        []streamServer
	Leader         string // ID
	LeaderAddr     string
	Import         bool // it brings a state along
}

func (g *Group) present() presence {
	p := presence{
		ID: string(g.id), Node: g.cfg.NodeID, Addr: g.addr(), Cluster: g.cluster(), Level: g.maxLevel(),
		Durability: "strict", Import: g.hasImport(),
	}
	if g.cfg.Port != nil {
		p.Join, p.Expect = sortedSet(g.cfg.Port.Join), g.cfg.Port.Expect
	}
	if g.isReady() {
		p.Member = true
		for _, s := range g.raft.GetConfiguration().Configuration().Servers {
			p.Servers = append(p.Servers, streamServer{string(s.ID), string(s.Address), s.Suffrage == raft.Voter})
		}
		addr, id := g.raft.LeaderWithID()
		p.Leader, p.LeaderAddr = string(id), hostOf(string(addr))
	}
	return p
}

func sortedSet(list []string) []string {
	set := slices.Clone(list)
	sort.Strings(set)
	return slices.Compact(set)
}

// bootstrap writes the first membership of a new cluster.
func (g *Group) bootstrap(cluster string, servers []raft.Server) error {
	if err := g.setCluster(cluster); err != nil {
		return err
	}
	conf := g.raftConfig(nil)
	err := raft.BootstrapCluster(conf, g.cfg.Log, g.cfg.Log, g.cfg.Snapshots, g.cfg.transport, raft.Configuration{Servers: servers})
	if err != nil {
		return fmt.Errorf("found a cluster: %w", err)
	}
	return nil
}

// enlist takes part in Raft.
func (g *Group) enlist() error {
	if p, ok := g.port.(interface{ SetRaft(bool) }); ok {
		p.SetRaft(true)
	}
	return g.start()
}

// search is the goroutine of a node with an empty folder: it takes part in
// nothing until it has founded a cluster together with all the others it was told
// of, or one has taken it in.
func (g *Group) search() {
	var told time.Time
	begun := time.Now()
	for g.ctx.Err() == nil {
		done, why, err := g.searchOnce()
		switch {
		case err != nil:
			g.fatal(err)
			return
		case done:
			if err := g.enlist(); err != nil {
				g.fatal(err)
			}
			return
		}
		if now := time.Now(); now.Sub(begun) > 2*time.Second && now.Sub(told) > tellEvery {
			told = now
			g.log.Info("this node is not yet part of a cluster", "why", why)
		}
		select {
		case <-g.ctx.Done():
		case <-time.After(probeEvery):
		}
	}
}

// searchOnce looks around once. done: this node may take part in Raft.
func (g *Group) searchOnce() (done bool, why string, err error) {
	found, missing := g.probe()
	for _, p := range found {
		if !p.Member {
			continue
		}
		for _, s := range p.Servers {
			if s.ID == string(g.id) {
				// The founder, or a leader, has counted this node in.
				return true, "", g.setCluster(p.Cluster)
			}
		}
	}
	for _, p := range found {
		if p.Member {
			why, err := g.knock(found, p)
			return false, why, err
		}
	}
	if g.cfg.Port.Expect == 0 {
		return false, "no node of --join is part of a cluster; --bootstrap-expect founds a new one", nil
	}
	if len(missing) > 0 {
		return false, "to found a cluster all nodes of --join must be there; missing: " + strings.Join(missing, ", "), nil
	}
	return g.foundWith(found)
}

// probe asks all addresses of Join who is there.
func (g *Group) probe() (found []presence, missing []string) {
	addrs := sortedSet(g.cfg.Port.Join)
	answers := make([]*presence, len(addrs))
	var wg sync.WaitGroup
	for i, a := range addrs {
		if a == g.addr() {
			own := g.present()
			answers[i] = &own
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(g.ctx, probeTimeout)
			defer cancel()
			b, err := g.calls.Call(ctx, a, "", callProbe, nil)
			var p presence
			if err == nil && json.Unmarshal(b, &p) == nil {
				answers[i] = &p
			}
		})
	}
	wg.Wait()
	for i, p := range answers {
		if p == nil {
			missing = append(missing, addrs[i])
			continue
		}
		found = append(found, *p)
	}
	return found, missing
}

// foundWith founds a cluster if this node is the one to do so. What is not as it
// must be is an error if waiting cannot mend it.
func (g *Group) foundWith(found []presence) (done bool, why string, err error) {
	own := g.present()
	founder, imports := found[0], 0
	nodes := map[string]string{}
	for _, p := range found {
		if p.Cluster != "" {
			return false, fmt.Sprintf("node %s at %s was part of a cluster before and is waiting for it", p.Node, p.Addr), nil
		}
		if !slices.Equal(p.Join, own.Join) || p.Expect != own.Expect {
			return false, fmt.Sprintf("node %s at %s has another list or number: --join %s --bootstrap-expect %d there, --join %s --bootstrap-expect %d here",
				p.Node, p.Addr, strings.Join(p.Join, ","), p.Expect, strings.Join(own.Join, ","), own.Expect), nil
		}
		if other, twice := nodes[p.Node]; twice {
			return false, fmt.Sprintf("two nodes are called %s: those at %s and %s; give one another --node-id", p.Node, other, p.Addr), nil
		}
		nodes[p.Node] = p.Addr
		if p.Durability != own.Durability {
			return false, fmt.Sprintf("node %s has durability %s, and this one %s", p.Node, p.Durability, own.Durability), nil
		}
		if p.Import {
			founder = p
			imports++
		}
	}
	if imports > 1 {
		return false, "more than one node brings a state along: a cluster can begin with one", nil
	}
	if !slices.ContainsFunc(found, func(p presence) bool { return p.ID == own.ID }) {
		return false, fmt.Sprintf("this node's own address %s is not in --join %s", own.Addr, strings.Join(own.Join, ",")), nil
	}
	if founder.ID != own.ID {
		return false, fmt.Sprintf("node %s is about to found the cluster", founder.Node), nil
	}
	var servers []raft.Server
	for _, p := range found {
		if own.Import && p.ID != own.ID {
			// Any voter may be the first leader, and it must be the one that has
			// the state: the others are taken in when that is done.
			continue
		}
		servers = append(servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Addr)})
	}
	if err := g.bootstrap(randomID(), servers); err != nil {
		return false, "", err
	}
	g.log.Info("this node has founded a cluster", "cluster", g.cluster(), "nodes", strings.Join(own.Join, ", "))
	return true, "", nil
}

// joinRequest asks a leader to be taken in.
type joinRequest struct {
	ID, Node, Addr string
	Level          int
	Durability     string
}

// knock asks the leader of a cluster to take this node in.
func (g *Group) knock(found []presence, member presence) (why string, err error) {
	if g.hasImport() {
		return "", fmt.Errorf("this node brings a state along, but there is a cluster already at %s: to join it, begin with an empty folder", member.Addr)
	}
	leader, addr := member.Leader, member.LeaderAddr
	for _, p := range found {
		if p.Member && p.Leader == p.ID {
			leader, addr = p.ID, p.Addr
		}
	}
	if leader == "" {
		return "the cluster has no leader now", nil
	}
	b, err := json.Marshal(joinRequest{string(g.id), g.cfg.NodeID, g.addr(), g.maxLevel(), "strict"})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(g.ctx, adminTimeout)
	defer cancel()
	reply, err := g.calls.Call(ctx, addr, leader, callJoin, b)
	if err == nil {
		err = parseRefusal(reply)
	}
	if err != nil {
		return "the leader has not taken it in: " + err.Error(), nil
	}
	return "the leader is taking it in", nil
}

// admit takes a node in as a non-voter, as the leader.
func (g *Group) admit(payload []byte) error {
	var r joinRequest
	if err := json.Unmarshal(payload, &r); err != nil {
		return &adminError{Text: "the request cannot be read"}
	}
	if g.term.Load() == 0 {
		return errNoLeader
	}
	m, _, _, _ := g.fsm.view()
	if r.Level < m.Settings.Level {
		return &adminError{Text: fmt.Sprintf("this cluster writes at format level %d, and node %s knows up to %d: it needs a newer version of stint", m.Settings.Level, r.Node, r.Level)}
	}
	if r.Durability != "strict" {
		return &adminError{Text: fmt.Sprintf("the members of this cluster have durability strict, and node %s has %s", r.Node, r.Durability)}
	}
	for _, s := range g.raft.GetConfiguration().Configuration().Servers {
		switch {
		case string(s.ID) == r.ID:
			return nil
		case nodeOf(string(s.ID)) == r.Node:
			if g.alive(s.ID) {
				return &adminError{Text: fmt.Sprintf("there is a node %s already, at %s, and it is alive: give the new one another --node-id", r.Node, s.Address)}
			}
			// Its folder was lost. What the old incarnation has promised the new
			// one does not know, so the old one must leave first, with its vote.
			if len(voters(g.raft.GetConfiguration().Configuration())) == 1 {
				return &adminError{Text: "the only voter cannot be replaced"}
			}
			g.log.Warn("a node has come back with an empty folder: its old incarnation is removed, and it copies the state anew", "node", r.Node, "addr", r.Addr)
			if err := outcome(g.raft.RemoveServer(s.ID, 0, adminTimeout).Error()); err != nil {
				return err
			}
			g.acks.forget(func(id raft.ServerID) bool { return id != s.ID })
		case string(s.Address) == r.Addr:
			return &adminError{Text: fmt.Sprintf("the address %s belongs to node %s", r.Addr, nodeOf(string(s.ID)))}
		}
	}
	g.log.Info("a node is taken in; it copies the state and votes when it has caught up", "node", r.Node, "addr", r.Addr)
	return outcome(g.raft.AddNonvoter(raft.ServerID(r.ID), raft.ServerAddress(r.Addr), 0, adminTimeout).Error())
}

// alive says whether a member has answered lately, or does now.
func (g *Group) alive(id raft.ServerID) bool {
	if id == g.id {
		return true
	}
	return time.Since(g.acks.of(id).seen) < 2*g.cfg.ElectionTimeout
}

// invite takes in a node by its name and address, as the leader.
func (g *Group) invite(ctx context.Context, node, addr string) error {
	b, err := g.calls.Call(ctx, addr, "", callProbe, nil)
	if err != nil {
		return &adminError{Text: fmt.Sprintf("there is no answer at %s: the node to add must be running there, with an empty folder: %v", addr, err)}
	}
	var p presence
	if err := json.Unmarshal(b, &p); err != nil {
		return &adminError{Text: fmt.Sprintf("the answer from %s cannot be read", addr)}
	}
	switch {
	case p.Node != node:
		return &adminError{Text: fmt.Sprintf("the node at %s is %s, not %s", addr, p.Node, node)}
	case p.Cluster != "" && p.Cluster != g.cluster():
		return &adminError{Text: fmt.Sprintf("node %s is part of another cluster: it needs an empty folder", node)}
	}
	r, err := json.Marshal(joinRequest{p.ID, p.Node, addr, p.Level, p.Durability})
	if err != nil {
		return err
	}
	return g.admit(r)
}

// askClocks asks the other voters what their clocks say, until enough of them
// have answered or it has taken too long.
func (g *Group) askClocks(ctx context.Context, config raft.Configuration, enough int) (got []reading) {
	if enough == 0 || g.calls == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.cfg.ElectionTimeout)
	defer cancel()
	answers := make(chan reading, len(config.Servers))
	for _, s := range config.Servers {
		if s.ID == g.id || s.Suffrage != raft.Voter {
			continue
		}
		g.calls.Go(hostOf(string(s.Address)), string(s.ID), callClock, nil, func(b []byte, err error) {
			var r reading
			if err == nil && json.Unmarshal(b, &r) == nil {
				answers <- r
			}
		})
	}
	for len(got) < enough {
		select {
		case r := <-answers:
			got = append(got, r)
		case <-ctx.Done():
			return got
		}
	}
	return got
}
