package limit

// Kind says which algorithm a value belongs to. The numbers are stored in
// files: never renumber.
type Kind uint8

const (
	None        Kind = 0 // no value: as new
	KindBucket  Kind = 1 // token bucket (THROTTLE, CL.THROTTLE)
	KindLeak    Kind = 2 // leaky bucket (LEAK)
	KindFixed   Kind = 3 // fixed window
	KindSliding Kind = 4 // sliding window of two counters
	KindLog     Kind = 5 // sliding log
)

// Params is a limit in stored form, whatever the kind.
//
//	bucket, leak:         A capacity, B rate count, C rate period (ns)
//	fixed, sliding, log:  A limit,    B 0,          C period (ns)
type Params struct{ A, B, C int64 }

// Value is the state under one key, with the limit of its last decision.
// W holds the numbers of the kind:
//
//	bucket, leak:  FullAt, Rem, 0
//	fixed:         Start, Count, 0
//	sliding:       Start, Prev, Cur
//	log:           unused; the entries are in Log
//
// The zero Value is no value. A Value read from an engine shares its Log with
// the engine: it is read only, and valid until the transaction goes on.
type Value struct {
	Kind  Kind
	Limit Params
	W     [3]int64
	Log   *Log
}
