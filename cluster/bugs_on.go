//go:build stintbugs

package cluster

import "os"

// seededBug is the fault that the environment asks for.
func seededBug() seeded { return seeded(os.Getenv("STINT_TEST_BUG")) }
