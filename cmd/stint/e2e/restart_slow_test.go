//go:build slow

package e2e

import "testing"

func TestAllVectorsGoOnAfterARestart(t *testing.T) { restarts(t, 1) }

func TestManyKillsLoseAtMostTheIntervalAndOneFlush(t *testing.T) {
	dir := t.TempDir()
	for round := range 40 {
		killed(t, dir, round)
	}
}
