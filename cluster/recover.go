package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stint-dev/stint/engine"
)

// RecoverFile is the name of the peers file, in the folder of each node that is
// left, when a majority of a cluster is lost for good: a JSON list of
// {"id": …, "address": …} of the nodes that are to be the cluster from now on. It
// is loud because it gives up what makes a cluster safe: what only the lost nodes
// had is gone, and if they come back with their folders they must not be let in.
const RecoverFile = "RECOVER-LOST-QUORUM.json"

var errPeers = errors.New("the peers file cannot be used")

// peer is one node of the peers file.
type peer struct {
	ID      string `json:"id"`      // of Raft: RAFT SERVER LIST and the log show it
	Address string `json:"address"` // of its Raft port
}

// recoverQuorum makes the nodes of a peers file the whole cluster, if there is
// one. The cluster's id becomes another, so that lost nodes that come back are
// refused; it is made from the file, which is the same on all nodes.
func (g *Group) recoverQuorum() error {
	path := filepath.Join(g.cfg.Dir, RecoverFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the peers file: %w", err)
	}
	var peers []peer
	if err := json.Unmarshal(data, &peers); err != nil {
		return fmt.Errorf("%w: %s is not a JSON list of {\"id\": …, \"address\": …}: %w", errPeers, path, err)
	}
	var config raft.Configuration
	self := false
	for i, p := range peers {
		if p.ID == "" || p.Address == "" {
			return fmt.Errorf("%w: %s: entry %d lacks id or address", errPeers, path, i+1)
		}
		self = self || raft.ServerID(p.ID) == g.id
		config.Servers = append(config.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Address)})
	}
	if !self {
		return fmt.Errorf("%w: %s does not name this node, which is %s", errPeers, path, g.id)
	}
	scratch, err := engine.New(engine.Options{})
	if err != nil {
		return err
	}
	// Raft replays the log into a state of its own and writes a snapshot of it.
	var failed error
	f := &fsm{ks: scratch, wall: g.cfg.Now, level: g.fsm.level, fatal: func(err error) { failed = errors.Join(failed, err) }, meta: meta{Members: map[string]Member{}}, changed: func() {}}
	sum := sha256.Sum256(append([]byte(g.cluster()+"\n"), data...))
	f.rename = hex.EncodeToString(sum[:8])
	if err := raft.RecoverCluster(g.raftConfig(nil), f, g.cfg.Log, g.cfg.Log, g.cfg.Snapshots, g.cfg.transport, config); err != nil {
		return fmt.Errorf("recover the cluster with %s: %w", path, err)
	}
	if failed != nil {
		return fmt.Errorf("recover the cluster with %s: %w", path, failed)
	}
	if err := g.setCluster(f.rename); err != nil {
		return err
	}
	used := fmt.Sprintf("%s.used-%s", path, time.Now().UTC().Format("20060102T150405Z"))
	if err := os.Rename(path, used); err != nil {
		return fmt.Errorf("put the peers file aside: %w", err)
	}
	g.log.Warn("the cluster was cut down to the nodes of a peers file: what only the others had is lost, and they must not come back with their folders",
		"nodes", len(peers), "cluster", f.rename, "file", used)
	return nil
}
