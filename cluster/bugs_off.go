//go:build !stintbugs

package cluster

func seededBug() seeded { return noBug }

func seededLevel() int { return FormatLevel }
