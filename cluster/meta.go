package cluster

import (
	"maps"
	"slices"
	"strings"
)

// FormatLevel is the newest level of entries and snapshots that this program
// writes and reads. A cluster writes at the level that all of its members know;
// an older program cannot join one of a higher level.
const FormatLevel = 1

// Settings are what all members of a cluster have to agree on. They are a value
// of the log.
type Settings struct {
	ClusterID string `json:"cluster_id"`
	Level     int    `json:"level"` // of entries and snapshots
}

// Member is what a node tells the others about itself. It is a value of the log,
// so that every node can tell clients where the leader is.
type Member struct {
	ID       string   `json:"id"`      // of Raft: node id and incarnation
	Node     string   `json:"node"`    // the name its operator gave it
	Addr     string   `json:"addr"`    // of its Raft port
	Clients  []string `json:"clients"` // where it serves clients
	MaxLevel int      `json:"max_level"`
	Version  string   `json:"version"` // of the program
	Hold     bool     `json:"hold,omitempty"`
}

// meta is the part of the state that is not the keyspace's.
type meta struct {
	Settings Settings          `json:"settings"`
	Members  map[string]Member `json:"members"` // by ID
}

func (m meta) clone() meta {
	m.Members = maps.Clone(m.Members)
	if m.Members == nil {
		m.Members = map[string]Member{}
	}
	return m
}

// serverID is the ID in Raft of a node: its name and the incarnation of its
// folder, so that a node whose folder was lost is another one, whose old votes
// and promises are not taken for its own.
func serverID(node, incarnation string) string { return node + "." + incarnation }

// nodeOf is the name of the node with this ID.
func nodeOf(id string) string {
	if i := strings.LastIndexByte(id, '.'); i > 0 {
		return id[:i]
	}
	return id
}

// equal says whether two descriptions of a node are the same.
func (m Member) equal(o Member) bool {
	return m.ID == o.ID && m.Node == o.Node && m.Addr == o.Addr && slices.Equal(m.Clients, o.Clients) &&
		m.MaxLevel == o.MaxLevel && m.Version == o.Version && m.Hold == o.Hold
}
