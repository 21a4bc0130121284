//go:build unix

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// cluster is some nodes and the network between them.
type cluster struct {
	t     *testing.T
	mesh  *mesh
	nodes []*node
	kept  string // folder of what a failed test has seen; "" until there is one
}

// newCluster makes a cluster whose nodes n1, n2, … are not started. edit, if not
// nil, changes a node before that.
func newCluster(t *testing.T, program string, size int, edit func(i int, n *node)) *cluster {
	t.Helper()
	c := &cluster{t: t, mesh: newMesh(t)}
	dir := t.TempDir()
	for i := range size {
		c.add(dir, program, i)
	}
	join := strings.Join(c.doors(), ",")
	for i, n := range c.nodes {
		n.args = []string{"--join", join, "--bootstrap-expect", strconv.Itoa(size)}
		if edit != nil {
			edit(i, n)
		}
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.kill()
		}
		if t.Failed() {
			c.keepLogs()
		}
	})
	return c
}

// add adds a node that is not started.
func (c *cluster) add(dir, program string, i int) *node {
	name := fmt.Sprintf("n%d", i+1)
	n := &node{t: c.t, name: name, program: program, dir: filepath.Join(dir, name), addr: freeAddr(c.t), raft: freeAddr(c.t)}
	n.door = c.mesh.door(c.t, name, n.raft)
	c.nodes = append(c.nodes, n)
	return n
}

func (c *cluster) doors() (all []string) {
	for _, n := range c.nodes {
		all = append(all, n.door)
	}
	return all
}

func (c *cluster) names() []string { return names(c.nodes) }

func names(nodes []*node) (all []string) {
	for _, n := range nodes {
		all = append(all, n.name)
	}
	return all
}

// startCluster starts a cluster of three and returns when it decides.
func startCluster(t *testing.T, program string, edit func(i int, n *node)) *cluster {
	t.Helper()
	c := newCluster(t, program, 3, edit)
	for _, n := range c.nodes {
		n.start()
	}
	c.ready()
	return c
}

// repair ends all faults: the network is whole, all processes run.
func (c *cluster) repair() {
	c.t.Helper()
	c.upright()
	c.mesh.heal()
	for _, n := range c.nodes {
		if n.stopped {
			n.resume()
		}
		if !n.runs() {
			n.start()
		}
	}
}

// ready waits until decisions can be made through every node that runs.
func (c *cluster) ready() {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.runs() && !n.stopped {
			eventually(c.t, patience, "decisions can be made through node "+n.name, func() bool {
				c.upright()
				_, err := n.ask("THROTTLE", "ready", "1000000", "1000000")
				return err == nil
			})
		}
	}
}

// upright ends the test if a node has ended by itself.
func (c *cluster) upright() {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.fell() {
			c.t.Fatalf("node %s has ended by itself:\n%s", n.name, tail(n.text()))
		}
	}
}

// tail is the end of a log.
func tail(text string) string {
	if len(text) > 4000 {
		text = "…" + text[len(text)-4000:]
	}
	return text
}

// leader is the node that leads, by its own word and with the highest term; nil
// if none does.
func (c *cluster) leader() (leader *node) {
	var term uint64
	for _, n := range c.nodes {
		if f := n.info(); f["state"] == "leader" && number(f, "term") > term {
			leader, term = n, number(f, "term")
		}
	}
	return leader
}

// mustLeader waits for a leader that is none of others.
func (c *cluster) mustLeader(others ...*node) (leader *node) {
	c.t.Helper()
	eventually(c.t, patience, "a node leads", func() bool {
		c.upright()
		leader = c.leader()
		return leader != nil && !slices.Contains(others, leader)
	})
	return leader
}

// followers are the other nodes.
func (c *cluster) followers(leader *node) (rest []*node) {
	for _, n := range c.nodes {
		if n != leader {
			rest = append(rest, n)
		}
	}
	return rest
}

// member is a line of RAFT SERVER LIST.
type member struct{ node, id, role string }

// members are those that a node knows; nil if it cannot tell.
func (n *node) members() (all []member) {
	v, err := n.ask("RAFT", "SERVER", "LIST")
	list, _ := v.([]any)
	if err != nil {
		return nil
	}
	for _, item := range list {
		fields := map[string]string{}
		pairs, _ := item.([]any)
		for i := 0; i+1 < len(pairs); i += 2 {
			fields[fmt.Sprint(pairs[i])] = fmt.Sprint(pairs[i+1])
		}
		all = append(all, member{fields["node"], fields["id"], fields["role"]})
	}
	return all
}

// roleOf is a node's role as n knows it: leader, voter, non-voter, or "".
func (n *node) roleOf(name string) string {
	for _, m := range n.members() {
		if m.node == name {
			return m.role
		}
	}
	return ""
}

// must sends a command to whichever node leads, again until it is done.
func (c *cluster) must(args ...string) {
	c.t.Helper()
	var err error
	if !await(patience, func() bool {
		if l := c.leader(); l != nil {
			_, err = l.ask(args...)
			return err == nil
		}
		return false
	}) {
		c.t.Fatalf("%q is not done after %v: %v", args, patience, err)
	}
}

// clock has all nodes, those that are started later too, decide at a time that
// stands still, unix ns; 0: at the real one. All nodes must run.
func (c *cluster) clock(ns int64) {
	c.t.Helper()
	at := "REAL"
	if ns != 0 {
		at = strconv.FormatInt(ns, 10)
	}
	for _, n := range c.nodes {
		if _, err := n.ask("DEBUG", "CLOCK", at); err != nil {
			c.t.Fatalf("node %s: DEBUG CLOCK %s: %v", n.name, at, err)
		}
		n.args = slices.DeleteFunc(n.args, func(a string) bool { return strings.HasPrefix(a, "--debug-clock=") })
		if ns != 0 {
			n.args = append(n.args, "--debug-clock="+at)
		}
	}
}

// converged waits until all nodes have applied the same entries and compares
// their states by the hash.
func (c *cluster) converged() {
	c.t.Helper()
	var seen []string
	same := func() bool {
		seen = seen[:0]
		var hashes []string
		for _, n := range c.nodes {
			f := n.info()
			if f == nil {
				continue
			}
			seen = append(seen, fmt.Sprintf("%s: %s at %s, applied %s", n.name, f["state_hash"], f["state_hash_index"], f["applied_index"]))
			hashes = append(hashes, f["state_hash"]+" at "+f["state_hash_index"])
		}
		slices.Sort(hashes)
		return len(slices.Compact(hashes)) == 1 && len(seen) > 0
	}
	if !await(patience, same) {
		c.t.Errorf("the nodes do not come to the same state:\n%s", strings.Join(seen, "\n"))
	}
}

// keep is the folder of what a failed test has seen.
func (c *cluster) keep() string {
	if c.kept == "" {
		dir, err := os.MkdirTemp("", "stint-failed-")
		if err != nil {
			c.t.Error(err)
			return os.TempDir()
		}
		c.kept = dir
		c.t.Logf("what was seen is kept in %s", dir)
	}
	return c.kept
}

func (c *cluster) keepLogs() {
	dir := c.keep()
	for _, n := range c.nodes {
		if err := os.WriteFile(filepath.Join(dir, n.name+".log"), []byte(n.text()), 0o600); err != nil {
			c.t.Error(err)
		}
	}
}
