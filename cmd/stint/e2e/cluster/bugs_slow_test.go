//go:build unix && slow

package cluster

import (
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

var buggy = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("STINT_TEST_BUGGY_PROGRAM"); path != "" {
		return path, nil
	}
	return build("stint-bugs", "-tags", "stintbugs")
})

// buggyProgram builds the server with faults that the environment can switch on,
// unless STINT_TEST_BUGGY_PROGRAM names one.
func buggyProgram(t *testing.T) string {
	t.Helper()
	path, err := buggy()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSeededBugsAreFound shows that the scenarios find what they are there for: a
// server that is built with one fault on purpose must not pass.
func TestSeededBugsAreFound(t *testing.T) {
	path := buggyProgram(t)
	under := func(name string) func(c *cluster, r *rand.Rand) []string {
		for _, s := range scenarios {
			if s.name == name {
				return func(c *cluster, r *rand.Rand) []string { return c.suffer(c.t, s, r, 4*time.Second) }
			}
		}
		panic("no scenario is called " + name)
	}
	usual := func(t *testing.T, env string) *cluster {
		return startCluster(t, path, func(_ int, n *node) { n.env = []string{env} })
	}
	for _, b := range []struct {
		bug   string
		start func(t *testing.T, env string) *cluster
		hunt  func(c *cluster, r *rand.Rand) (wrong []string)
	}{
		{"earlydrop", usual, under("calm")},
		{"earlyreply", usual, under("leader-cut-off")},
		{
			"verifyleader",
			func(t *testing.T, env string) *cluster { return startPatient(t, path, env) },
			func(c *cluster, _ *rand.Rand) []string { wrong, _ := c.staleRead(0, nil); return wrong },
		},
	} {
		t.Run(b.bug, func(t *testing.T) {
			c := b.start(t, "STINT_TEST_BUG="+b.bug)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			c.kept = t.TempDir() // it is expected to fail: nothing of it is worth keeping
			for range 5 {
				for _, w := range b.hunt(c, r) {
					if !strings.HasSuffix(w, unchecked) {
						t.Logf("found: %s", w)
						return
					}
				}
			}
			t.Errorf("a server with the fault %q passes", b.bug)
		})
	}
}
