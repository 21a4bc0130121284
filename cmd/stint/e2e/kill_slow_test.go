//go:build unix && slow

package e2e

import "testing"

func TestManyKillsLoseAtMostTheIntervalAndOneFlush(t *testing.T) {
	dir := t.TempDir()
	for round := range 40 {
		killed(t, dir, round)
	}
}
