package limit

// Log is the ring of a sliding log's entries, oldest first.
type Log struct{}
