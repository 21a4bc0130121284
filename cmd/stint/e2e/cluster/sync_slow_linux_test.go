//go:build slow

package cluster

import "testing"

// TestAMissingSyncIsFound shows that the trace of a server that does not sync
// looks otherwise.
func TestAMissingSyncIsFound(t *testing.T) {
	if wrong, ok := untimelyAnswers(t, buggyProgram(t), "STINT_TEST_BUG=nosync"); ok && len(wrong) == 0 {
		t.Error("a server that does not sync passes")
	}
}
