package limit

import "strconv"

// periodUnits are the units of a period from the longest on, in ns.
var periodUnits = [...]struct {
	ns   int64
	name string
}{
	{7 * 24 * 3600e9, "w"}, {24 * 3600e9, "d"}, {3600e9, "h"}, {60e9, "m"}, {1e9, "s"}, {1e6, "ms"}, {1, "ns"},
}

// PeriodString writes a period of ns nanoseconds in the longest unit that it
// is a multiple of: 90s, 1h, 250ms. ParsePeriod reads it back, but for a
// period that is no multiple of a millisecond: a program may use one, no
// command can, and its unit is ns.
func PeriodString(ns int64) string {
	for _, u := range periodUnits {
		if ns%u.ns == 0 {
			return strconv.FormatInt(ns/u.ns, 10) + u.name
		}
	}
	return "" // not reached: every number is a multiple of 1
}

// String writes the rate as ParseRate reads it, under the condition of
// PeriodString, and as people do: 100/m, 7/250ms.
func (r Rate) String() string {
	period := PeriodString(r.Period)
	if period[0] == '1' && (period[1] < '0' || period[1] > '9') {
		period = period[1:]
	}
	return strconv.FormatInt(r.Count, 10) + "/" + period
}
