package main

import (
	"fmt"
	"slices"
)

// spread is what the rounds of one measurement gave: the median, and how far
// they lay apart.
type spread struct{ median, min, max float64 }

// spreadOf summarises values; an empty list gives zeros. The median of an even
// number of values is the mean of the middle two.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	v := slices.Sorted(slices.Values(values))
	middle := v[len(v)/2]
	if len(v)%2 == 0 {
		middle = (v[len(v)/2-1] + middle) / 2
	}
	return spread{median: middle, min: v[0], max: v[len(v)-1]}
}

// show prints the median and, of more than one round, the extremes.
func (s spread) show(format string) string {
	if s.min == s.max {
		return fmt.Sprintf(format, s.median)
	}
	return fmt.Sprintf(format+" ("+format+"–"+format+")", s.median, s.min, s.max)
}

// ratios divides round by round: what slows a machine down for a while slows
// both, so their ratio is steadier than the ratio of two medians.
func ratios(a, b []float64) []float64 {
	var out []float64
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			out = append(out, a[i]/b[i])
		}
	}
	return out
}
