package limit

import "errors"

// What is wrong with a limit. Each sentence names the argument and the range
// that is allowed; none depends on the value given, so a check never
// allocates.
var (
	ErrCapacity = errors.New("capacity must be 1 to 9007199254740991")
	ErrRate     = errors.New("rate must have a count of 1 to 9007199254740991 and a period of 1 ns to 2^63-1 ns")
	ErrFill     = errors.New("capacity and rate together: an empty bucket must fill within 2^62 ns (about 146 years)")
	ErrLimit    = errors.New("limit must be 1 to 9007199254740991")
	ErrLogLimit = errors.New("limit of a sliding log must be 1 to 1000000")
	ErrPeriod   = errors.New("period must be 1 ms to 2^61 ns (about 73 years)")
)

// What can stop a decision.
var (
	// ErrLogFull says that a sliding log already holds MaxLogEntries entries
	// which still count. Nothing was decided.
	ErrLogFull = errors.New("the sliding log is full: 2000000 entries are the most it can hold")
)

// What can be wrong with stored state.
var (
	ErrDamaged = errors.New("damaged value")
	ErrVersion = errors.New("value of an unknown format")
)
