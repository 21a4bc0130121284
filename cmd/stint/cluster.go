package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/cluster"
	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/persist"
	"github.com/stint-dev/stint/server/command"
)

// node is what a server with durability strict has: its part of a cluster, or of
// one of its own, and the lock of the folder.
type node struct {
	lock  *persist.DirLock
	group *cluster.Group
}

// soloName is the name of a node that has no cluster.
const soloName = "solo"

// openNode locks the folder and opens what is in it. fatal is called when the node
// must not go on.
func openNode(cfg *Config, ks *engine.Keyspace, log *slog.Logger, fatal func(error)) (_ *node, err error) {
	dir := cfg.stateDir()
	n := new(node)
	if n.lock, err = persist.LockDir(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = n.lock.Release()
		}
	}()
	if err := bringState(cfg, dir, log); err != nil {
		return nil, err
	}
	conf := cluster.Config{
		NodeID: cfg.NodeID, Dir: dir, Keyspace: ks,
		Executor:        &command.Executor{Debug: cfg.EnableDebugCommand},
		Lookup:          lookup,
		SlowRead:        slowRead,
		Clients:         cfg.clientAddrs(),
		Version:         buildVersion(),
		DecisionTimeout: time.Duration(cfg.DecisionTimeout),
		ElectionTimeout: time.Duration(cfg.ElectionTimeout),
		Frozen:          (*int64)(cfg.DebugClock),
		Now:             skewedClock(cfg),
		Logger:          log,
		Fatal:           fatal,
	}
	if conf.NodeID == "" {
		conf.NodeID = soloName
	}
	if cfg.EnableDebugCommand {
		if n, err := strconv.ParseInt(os.Getenv("STINT_TEST_SNAPSHOT_BYTES"), 10, 64); err == nil {
			conf.SnapshotBytes = n
		}
	}
	if cfg.clustered() {
		l, err := net.Listen("tcp", cfg.RaftAddr)
		if err != nil {
			return nil, listenError(err, "raft-addr")
		}
		defer func() {
			if err != nil {
				_ = l.Close()
			}
		}()
		conf.Port = &cluster.PortConfig{Listener: l, Advertise: cfg.advertised(), Join: cfg.Join, Expect: int(cfg.BootstrapExpect)}
		if conf.Port.ServerTLS, conf.Port.ClientTLS, err = cfg.raftTLS(); err != nil {
			return nil, err
		}
	}
	snapshots, err := persist.OpenSnapshots(filepath.Join(dir, persist.SnapshotDir), persist.SnapshotOptions{Logger: log})
	if err != nil {
		return nil, err
	}
	conf.Snapshots = snapshots
	raftLog, err := persist.OpenLog(filepath.Join(dir, persist.LogFileName), persist.LogOptions{NoSync: cluster.SeededNoSync(), Logger: log})
	if err != nil {
		return nil, err
	}
	// A node whose newest snapshot is damaged must not go on from an older one that
	// the log does not reach back to: it would have forgotten what it has promised.
	if err := snapshots.Check(raftLog); err != nil {
		return nil, errors.Join(err, raftLog.Close())
	}
	conf.Log = raftLog
	if n.group, err = cluster.Open(conf); err != nil {
		return nil, errors.Join(err, raftLog.Close())
	}
	return n, nil
}

// close ends the node's part and gives the folder back.
func (n *node) close(ctx context.Context) error {
	return errors.Join(n.group.Close(ctx), n.lock.Release())
}

// bringState makes a single node's state file, where there is one and no log yet,
// into what the cluster begins with. The file stays, under another name.
func bringState(cfg *Config, dir string, log *slog.Logger) error {
	state, raftLog, err := persist.Holds(dir)
	if err != nil {
		return err
	}
	switch {
	case !state:
		return nil
	case raftLog:
		return fmt.Errorf("the folder %s holds both the state of a single node (%s) and a node of a cluster (%s): move one of them away", dir, persist.FileName, persist.LogFileName)
	}
	dest := filepath.Join(dir, cluster.ImportFile)
	file := filepath.Join(dir, persist.FileName)
	if err := writeImport(file, dest); err != nil {
		return err
	}
	if err := os.Rename(file, file+".imported"); err != nil {
		return fmt.Errorf("put the state file aside: %w", err)
	}
	log.Info("the state of a single node becomes that of the cluster", "file", file+".imported")
	return nil
}

// writeImport makes a state file into a file that a cluster begins with.
func writeImport(source, dest string) (err error) {
	tmp := dest + ".new"
	out, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write the state for the cluster: %w", err)
	}
	defer func() {
		if err != nil {
			_ = out.Close()
			_ = os.Remove(tmp)
		}
	}()
	latest := int64(0) // comes first
	err = persist.ReadState(source, func(at int64) error { latest = at; return nil }, func([]byte) error { return errFirst })
	if err != nil && !errors.Is(err, errFirst) {
		return err
	}
	err = cluster.WriteImport(out, latest, func(write func([]byte) error) error {
		return persist.ReadState(source, func(int64) error { return nil }, write)
	})
	if err == nil {
		err = out.Sync()
	}
	if err == nil {
		err = out.Close()
	}
	if err == nil {
		err = os.Rename(tmp, dest)
	}
	if err != nil {
		return fmt.Errorf("write the state for the cluster: %w", err)
	}
	return nil
}

// errFirst ends a reading of which only the head was wanted.
var errFirst = errors.New("that is enough")

// lookup finds the number of a command by its words.
func lookup(args [][]byte) (int32, bool) {
	c, _ := command.Find(args)
	if c == nil || !c.Store() {
		return 0, false
	}
	return c.Index(), true
}

// slowRead says whether a command only reads and may take long.
func slowRead(cmd int32) bool {
	f := command.At(cmd).Flags
	return f&command.Slow != 0 && f&command.Write == 0
}

// clientAddrs are the addresses that others are told to reach this node at.
func (c *Config) clientAddrs() []string {
	if len(c.ClientAdvertise) > 0 {
		return c.ClientAdvertise
	}
	var addrs []string
	for _, a := range c.Addr {
		if !strings.HasPrefix(a, "unix:") {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// skewedClock is the wall clock of a node under test, which may be wrong; nil for
// the real one.
func skewedClock(cfg *Config) func() time.Time {
	d, err := time.ParseDuration(os.Getenv("STINT_TEST_CLOCK_OFFSET"))
	if !cfg.EnableDebugCommand || err != nil || d == 0 {
		return nil
	}
	return func() time.Time { return time.Now().Add(d) }
}
