//go:build unix && slow

package cluster

import "time"

// With the tag slow all scenarios run, each for as long as a few elections take;
// STINT_TEST_CLUSTER_SECONDS=60 makes it a minute each.
const (
	long        = true
	defaultLoad = 2500 * time.Millisecond
)
