package command

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/server/resp"
)

// Cluster is what the commands about a cluster need of this node's part in it. Its
// methods may be called from any goroutine, and wait. An error with a method
// NotLeader that returns true says that nothing was done for want of a leader, one
// with Unknown that it may have been done, or may still be.
type Cluster interface {
	Status() ClusterStatus
	StateHash() (hash string, index uint64)
	Add(node, addr string) error
	Remove(node string) error
	Promote(node string) error
	Demote(node string) error
	Transfer(node string) error // "": to any
	Snapshot() error
	Backup() (io.ReadCloser, error)
}

// ClusterStatus is how a node and its cluster are.
type ClusterStatus struct {
	Node, ID, Cluster               string
	State                           string // leader, follower, candidate, joining, stopped
	Alone                           bool   // a single node without a Raft port
	Serving                         bool   // decisions can be made through this node
	Why                             string // if not
	Term                            uint64
	LastIndex, CommitIndex          uint64
	AppliedIndex                    uint64
	SnapshotIndex, Snapshots        uint64
	SnapshotBytes, LogBytes         int64
	SnapshotFailures                uint64
	SnapshotTime                    time.Time     // zero: not known
	LogSlowest                      time.Duration // longest write of the log since the start
	Level                           int           // of the format that the cluster writes
	Voters, Waiting                 int
	Leader                          *ClusterNode // nil: none is known
	Nodes                           []ClusterNode
	Latest                          int64         // unix ns: latest time of the log
	ClockRefused                    time.Duration // by which the wall clock was ahead, and was refused
	Batches, Commands               uint64
	Entries, EntryBytes, Confirmed  uint64
	Forwarded, ForwardLost, Relayed uint64
	NotApplied, Unknown, FencedOff  uint64
}

// ClusterNode is a member of a cluster.
type ClusterNode struct {
	Node, ID, Addr, Client string
	Voter, Held            bool // Held: it gets no vote until SERVER PROMOTE
	Leader, Alive          bool
	Contact                time.Duration // below 0: not known here
	Behind                 uint64
	Level                  int
	Version                string
}

const errNoRaft = "ERR this server is not part of a cluster: it has no Raft log; see --durability strict and --raft-addr"

var raftCommands = []Command{{
	Name: "raft", Group: "cluster", Since: "0.2.0",
	Syntax:  "subcommand [argument ...]",
	Summary: "The cluster: its leader, its nodes and their log",
	Arity:   -2,
	Sub: []Command{
		{
			Name: "leader", Group: "cluster", Since: "0.2.0",
			Summary: "Shows name, Raft address and client address of the leader, or nil if none is known",
			Arity:   2, Flags: Fast, Conn: raft(raftLeader),
		},
		{
			Name: "info", Group: "cluster", Since: "0.2.0",
			Summary: "Shows this node's part in the cluster, a line for each figure",
			Arity:   2, Flags: Admin | Slow, Conn: raft(raftInfo),
		},
		{
			Name: "server", Group: "cluster", Since: "0.2.0",
			Syntax:  "<LIST | ADD | REMOVE | PROMOTE | DEMOTE> [node] [raft-addr]",
			Summary: "Lists the nodes of the cluster, or changes them",
			Arity:   -3, Flags: Admin | Slow, Conn: raft(raftServer),
		},
		{
			Name: "transfer", Group: "cluster", Since: "0.2.0", Syntax: "[node]",
			Summary: "Hands the leadership over to a node, or to the one that is most up to date",
			Arity:   -2, Flags: Admin | Slow, Conn: raft(raftTransfer),
		},
		{
			Name: "snapshot", Group: "cluster", Since: "0.2.0",
			Summary: "Takes a snapshot on this node and shortens its log",
			Arity:   2, Flags: Admin | Slow,
			Conn: raft(func(c *ConnCtx) { raftDone(c, c.Server.Cluster.Snapshot()) }),
		},
		{
			Name: "backup", Group: "cluster", Since: "0.2.0", Syntax: "[READ | END]",
			Summary: "Begins a backup of the whole state, gives its next part, nil at its end, or gives it up",
			Arity:   -2, Flags: Admin | Slow, Conn: raft(raftBackup),
		},
	},
}}

// raft runs f where there is a cluster.
func raft(f func(*ConnCtx)) func(*ConnCtx) {
	return func(c *ConnCtx) {
		if c.Server.Cluster == nil {
			c.W.Error(errNoRaft)
			return
		}
		f(c)
	}
}

// raftDone replies OK, or what went wrong.
func raftDone(c *ConnCtx, err error) {
	var down interface{ NotLeader() bool }
	var unclear interface{ Unknown() bool }
	switch {
	case err == nil:
		c.W.OK()
	case errors.As(err, &unclear) && unclear.Unknown():
		c.W.Error(ErrIndeterminate(err.Error()))
	case errors.As(err, &down) && down.NotLeader():
		c.W.Error(ErrDown(err.Error()))
	default:
		c.W.Error("ERR " + err.Error())
	}
}

func raftLeader(c *ConnCtx) {
	l := c.Server.Cluster.Status().Leader
	if l == nil {
		c.W.Null()
		return
	}
	c.W.Array(3)
	c.W.BulkString(l.Node)
	c.W.BulkString(l.Addr)
	c.W.BulkString(l.Client)
}

func raftInfo(c *ConnCtx) {
	s := c.Server.Cluster.Status()
	var b strings.Builder
	for _, l := range append(s.lines(), s.nodeLines()...) {
		b.WriteString(l)
		b.WriteString("\r\n")
	}
	hash, at := c.Server.Cluster.StateHash()
	fmt.Fprintf(&b, "state_hash:%s\r\nstate_hash_index:%d\r\n", hash, at)
	c.W.BulkString(b.String())
}

// lines are the figures of INFO and RAFT INFO, name:value.
func (s ClusterStatus) lines() []string {
	leader := ClusterNode{}
	if s.Leader != nil {
		leader = *s.Leader
	}
	line := func(name string, value any) string { return fmt.Sprintf("%s:%v", name, value) }
	return []string{
		line("node_id", s.Node), line("server_id", s.ID), line("cluster_id", s.Cluster),
		line("state", s.State), line("serving", truth(s.Serving)), line("why_not_serving", oneLine(s.Why)),
		line("term", s.Term), line("leader_id", leader.Node), line("leader_raft_addr", leader.Addr), line("leader_client_addr", leader.Client),
		line("nodes", len(s.Nodes)), line("voters", s.Voters),
		line("last_log_index", s.LastIndex), line("commit_index", s.CommitIndex), line("applied_index", s.AppliedIndex),
		line("log_bytes", s.LogBytes), line("log_slowest_write_ms", s.LogSlowest.Milliseconds()),
		line("snapshot_index", s.SnapshotIndex), line("snapshot_bytes", s.SnapshotBytes), line("snapshots_taken", s.Snapshots), line("snapshots_failing", s.SnapshotFailures),
		line("format_level", s.Level), line("latest_time_ns", s.Latest), line("clock_refused_ms", s.ClockRefused.Milliseconds()),
		line("waiting_batches", s.Waiting), line("batches", s.Batches), line("commands", s.Commands),
		line("entries", s.Entries), line("entry_bytes", s.EntryBytes), line("confirmations", s.Confirmed),
		line("forwarded", s.Forwarded), line("forwards_lost", s.ForwardLost), line("relayed", s.Relayed),
		line("not_applied", s.NotApplied), line("indeterminate", s.Unknown), line("fenced_entries", s.FencedOff),
	}
}

// nodeLines are the lines of INFO and RAFT INFO about the nodes.
func (s ClusterStatus) nodeLines() (lines []string) {
	for i, n := range s.Nodes {
		lines = append(lines, fmt.Sprintf("server%d:node=%s,raft=%s,clients=%s,role=%s,alive=%d,contact_ms=%d,behind=%d,version=%s",
			i, n.Node, n.Addr, strings.ReplaceAll(n.Client, ",", " "), n.role(), truth(n.Alive), n.contact(), n.Behind, n.Version))
	}
	return lines
}

// role is what a node is for its cluster.
func (n ClusterNode) role() string {
	switch {
	case n.Leader:
		return "leader"
	case n.Voter:
		return "voter"
	}
	return "non-voter"
}

// contact is how long ago the node was heard of, ms, -1 if that is not known here.
func (n ClusterNode) contact() int64 {
	if n.Contact < 0 {
		return -1
	}
	return n.Contact.Milliseconds()
}

func raftServer(c *ConnCtx) {
	args := c.Args[3:]
	word := strings.ToLower(string(c.Args[2]))
	want, ok := map[string]int{"list": 0, "add": 2, "remove": 1, "promote": 1, "demote": 1}[word]
	switch {
	case !ok:
		c.W.Error("ERR unknown action " + resp.Quote(c.Args[2]) + " of RAFT SERVER: want LIST, ADD, REMOVE, PROMOTE or DEMOTE")
		return
	case len(args) != want:
		c.W.Error(ErrArity("raft|server|" + word))
		return
	}
	g := c.Server.Cluster
	switch word {
	case "list":
		raftList(c, g.Status())
	case "add":
		raftDone(c, g.Add(string(args[0]), string(args[1])))
	case "remove":
		raftDone(c, g.Remove(string(args[0])))
	case "promote":
		raftDone(c, g.Promote(string(args[0])))
	case "demote":
		raftDone(c, g.Demote(string(args[0])))
	}
}

func raftList(c *ConnCtx, s ClusterStatus) {
	c.W.Array(len(s.Nodes))
	for _, n := range s.Nodes {
		fields := [][2]string{
			{"node", n.Node}, {"id", n.ID}, {"raft-addr", n.Addr}, {"client-addr", n.Client}, {"role", n.role()},
			{"alive", strconv.Itoa(truth(n.Alive))}, {"last-contact-ms", strconv.FormatInt(n.contact(), 10)}, {"behind", strconv.FormatUint(n.Behind, 10)},
			{"version", n.Version}, {"format-level", strconv.Itoa(n.Level)},
		}
		c.W.Map(len(fields))
		for _, f := range fields {
			c.W.BulkString(f[0])
			c.W.BulkString(f[1])
		}
	}
}

func raftTransfer(c *ConnCtx) {
	node := ""
	switch len(c.Args) {
	case 2:
	case 3:
		node = string(c.Args[2])
	default:
		c.W.Error(ErrArity("raft|transfer"))
		return
	}
	raftDone(c, c.Server.Cluster.Transfer(node))
}

// backupPart is the size of what RAFT BACKUP READ gives at a time, bytes.
const backupPart = 512 << 10

// raftBackup gives the state in parts, because it is larger than any reply may be.
// The backup belongs to the connection, and ends with it.
func raftBackup(c *ConnCtx) {
	word := ""
	if len(c.Args) > 2 {
		word = strings.ToLower(string(c.Args[2]))
	}
	switch {
	case len(c.Args) > 3:
		c.W.Error(ErrArity("raft|backup"))
	case word == "":
		c.Conn.endBackup()
		r, err := c.Server.Cluster.Backup()
		if err == nil {
			c.Conn.backup = r
		}
		raftDone(c, err)
	case word == "end":
		c.Conn.endBackup()
		c.W.OK()
	case word != "read":
		c.W.Error(ErrInvalid("action", c.Args[2], "READ, END or nothing"))
	case c.Conn.backup == nil:
		c.W.Error("ERR there is no backup to read: begin one with RAFT BACKUP")
	default:
		part := make([]byte, backupPart)
		n, err := io.ReadFull(c.Conn.backup, part)
		switch {
		case n > 0 && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)):
			c.W.Bulk(part[:n])
		case errors.Is(err, io.EOF):
			c.Conn.endBackup()
			c.W.Null()
		default:
			c.Conn.endBackup()
			c.W.Error("ERR the backup cannot be read: " + err.Error())
		}
	}
}

// endBackup gives up the backup that the connection reads.
func (c *Conn) endBackup() {
	if c.backup != nil {
		_ = c.backup.Close()
		c.backup = nil
	}
}
