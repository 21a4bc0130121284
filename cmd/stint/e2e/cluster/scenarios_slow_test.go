//go:build unix && slow

package cluster

import "testing"

// TestEveryHistoryHasAnOrderWithSnapshotsAllTheTime is the same where nodes that
// were away get a snapshot, and not the log.
func TestEveryHistoryHasAnOrderWithSnapshotsAllTheTime(t *testing.T) {
	everyHistory(t, []string{smallSnapshots}, func(s scenario) bool { return s.small })
}
