// Package limit holds the decision functions: token bucket, leaky bucket,
// fixed window, sliding window and sliding log, as exact integer arithmetic.
//
// Every function is pure: state, limit, cost and time in, state and result
// out. Nothing here reads a clock, takes a lock, logs, or uses a float, so any
// goroutine may call anything, and the same inputs give the same outputs on
// every machine. Who keeps the state, and which time is used, is the business
// of package engine.
//
// Units: times and periods are nanoseconds (unix time for instants), costs and
// capacities are whole units of whatever is limited.
package limit

// Bounds of the parameters. Functions of this package are exact for every
// value within them and do not check them; ParseRate, ParsePeriod and the
// Check methods do.
const (
	MaxUnits      = 1<<53 - 1 // largest capacity, limit, cost and rate count
	MaxTime       = 1<<62 - 1 // latest instant a decision can be made at, unix ns
	MaxFill       = 1 << 62   // longest time an empty bucket may need to fill, ns
	MinPeriod     = 1_000_000 // shortest window, ns (1 ms)
	MaxPeriod     = 1 << 61   // longest window, ns
	MaxLogLimit   = 1_000_000 // largest limit of a sliding log
	MaxLogEntries = 2_000_000 // most entries a sliding log may hold
)

// Mode says how a decision treats its cost.
type Mode uint8

const (
	Consume Mode = iota // all of the cost or nothing
	Peek                // answer as Consume would, change nothing
	Force               // consume always, past the limit too
	AtMost              // consume min(cost, what is there)
)

// Result is the answer to a decision.
type Result struct {
	Allowed   int64 // 1 or 0; with AtMost the units that were granted
	Limit     int64 // the capacity or limit that was applied
	Remaining int64 // whole units left, rounded down; negative after Force or a lowered limit
	WaitMs    int64 // ms until the same request would pass, rounded up; -1 never. Leaky bucket, allowed: how long to hold the request back
	ResetMs   int64 // ms until the state is as new, rounded up; 0 when it is
	Forgotten int64 // units that Force asked for beyond its bound, not recorded
}
