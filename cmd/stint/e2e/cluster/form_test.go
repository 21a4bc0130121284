//go:build unix && !slow

package cluster

import "time"

// Without the tag slow a few scenarios are tried for a moment.
const (
	long        = false
	defaultLoad = 2 * time.Second
)
