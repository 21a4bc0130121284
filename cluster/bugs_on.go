//go:build stintbugs

package cluster

import (
	"os"
	"strconv"
)

// seededBug is the fault that the environment asks for.
func seededBug() seeded { return seeded(os.Getenv("STINT_TEST_BUG")) }

// seededLevel is the format level that the environment has this program know, as
// if it were a later release.
func seededLevel() int {
	if n, err := strconv.Atoi(os.Getenv("STINT_TEST_LEVEL")); err == nil {
		return n
	}
	return FormatLevel
}
