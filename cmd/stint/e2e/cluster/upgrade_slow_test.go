//go:build unix && slow

package cluster

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// released builds the newest release before this source, from its tag. Where there
// is none yet, this source stands in for it.
func released(t *testing.T) string {
	t.Helper()
	tag, err := exec.Command("git", "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD").Output()
	if err != nil {
		t.Log("there is no release yet: this source stands in for the one before")
		return mustProgram(t)
	}
	name := strings.TrimSpace(string(tag))
	tree, path := filepath.Join(t.TempDir(), "source"), filepath.Join(builds, "released")
	if out, err := exec.Command("git", "worktree", "add", "--detach", tree, name).CombinedOutput(); err != nil {
		t.Fatalf("the source of %s: %v\n%s", name, err, out)
	}
	t.Cleanup(func() { _ = exec.Command("git", "worktree", "remove", "--force", tree).Run() })
	cmd := exec.Command("go", "build", "-o", path, "./cmd/stint")
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("release %s cannot be built: %v\n%s", name, err, out)
	}
	t.Logf("the release before is %s", name)
	return path
}

// TestAClusterIsUpgradedNodeByNode rolls from the release before to this source, and
// on to a program that knows a format level more, while units are taken. What is
// written is raised when the last node knows it, and not before; from then on the
// older program can neither join nor start.
func TestAClusterIsUpgradedNodeByNode(t *testing.T) {
	before, now := released(t), mustProgram(t)
	next, err := build("next", "-tags", "stintbugs")
	if err != nil {
		t.Fatal(err)
	}
	c := startCluster(t, before, nil)
	take := []string{"THROTTLE", "upgraded", "1000", "1/h"}
	units := int64(0)
	spend := func() {
		t.Helper()
		for _, n := range c.nodes {
			w := &wire{addr: n.addr}
			_, o, err := w.do(10*time.Second, take)
			w.close()
			if o != decided {
				t.Fatalf("node %s decides nothing: %v", n.name, err)
			}
			units++
		}
	}
	level := func(n *node) string { return n.info()["format_level"] }
	spend()
	for _, step := range []struct{ program, level string }{{now, "1"}, {next, "2"}} {
		for i, n := range c.nodes {
			n.stop()
			n.program = step.program
			if step.level == "2" {
				n.env = append(n.env, "STINT_TEST_LEVEL=2")
			}
			n.start()
			c.ready()
			spend()
			if step.level == "1" || i == len(c.nodes)-1 {
				continue
			}
			// The newest leads, and is the one to raise the level; but not yet.
			c.must("RAFT", "TRANSFER", n.name)
			until(time.Second, func() {
				for _, other := range c.nodes {
					if level(other) == "2" {
						t.Fatalf("node %s writes at level 2 before all nodes know it", other.name)
					}
				}
				during(electionTimeout / 20)
			})
		}
	}
	eventually(t, patience, "all nodes write at the new level", func() bool {
		for _, n := range c.nodes {
			if level(n) != "2" {
				return false
			}
		}
		return true
	})
	for _, n := range c.nodes {
		if left := n.remaining(take); left != 1000-units {
			t.Errorf("node %s: %d units are left, want %d", n.name, left, 1000-units)
		}
	}
	c.converged()
	// Back to the older program, with its folder and with an empty one.
	old := c.followers(c.mustLeader())[0]
	old.stop()
	old.program, old.env = now, nil
	out, err := exec.Command(now, "--addr", old.addr, "--dir", old.dir, "--node-id", old.name, "--raft-addr", old.raft, "--raft-advertise", old.door).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "a newer version of stint is needed") {
		t.Errorf("an older program with the state of a newer one: %v: %s", err, tail(string(out)))
	}
	old.wipe()
	old.start()
	eventually(t, patience, "the older program is told why it cannot join", func() bool {
		return strings.Contains(old.text(), "it needs a newer version of stint")
	})
	if role := c.mustLeader(old).roleOf(old.name); role == "non-voter" {
		t.Error("the older program was taken in")
	}
	old.kill()
}
