package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// An entry of the log, in Raft's Data:
//
//	format (1 byte), kind (1 byte), term, n, time (unsigned varints), payload
//
// term and n are the term fence: the term that the entry was decided in, and its
// number within that term. time is the unix ns of the decisions in it.
const entryFormat = 1

// entryKind says what the payload is. The numbers are stored.
type entryKind uint8

const (
	entryEffects entryKind = 1 // effects of the engine; none: the entry only tells the time
	entryMember  entryKind = 2 // JSON of a Member: replaces the one of the same ID
	entrySetting entryKind = 3 // JSON of the Settings of the cluster
	entryReset   entryKind = 4 // everything is forgotten, the time too: DEBUG RESET
	entryForget  entryKind = 5 // the ID of a Member that has left
)

// errEntry: an entry that this program cannot read. The node must not go on: it
// would differ from the others.
var errEntry = errors.New("an entry of the log cannot be read")

// entry is one entry of the log.
type entry struct {
	kind    entryKind
	term, n uint64
	time    int64
	payload []byte
}

// appendEntryHead appends all but the payload, which may follow.
func appendEntryHead(dst []byte, kind entryKind, term, n uint64, time int64) []byte {
	dst = append(dst, entryFormat, byte(kind))
	dst = binary.AppendUvarint(dst, term)
	dst = binary.AppendUvarint(dst, n)
	return binary.AppendUvarint(dst, uint64(time))
}

// parseEntry reads an entry. Its payload shares b's memory.
func parseEntry(b []byte) (e entry, err error) {
	if len(b) < 2 {
		return e, fmt.Errorf("%w: it has %d bytes", errEntry, len(b))
	}
	if b[0] != entryFormat {
		return e, fmt.Errorf("%w: it is of format %d, and this program reads format %d: a newer version of stint is needed", errEntry, b[0], entryFormat)
	}
	e.kind = entryKind(b[1])
	b = b[2:]
	var numbers [3]uint64
	for i := range numbers {
		x, w := binary.Uvarint(b)
		if w <= 0 {
			return e, fmt.Errorf("%w: it is cut short", errEntry)
		}
		numbers[i], b = x, b[w:]
	}
	if numbers[2] > 1<<63-1 {
		return e, fmt.Errorf("%w: its time is none", errEntry)
	}
	e.term, e.n, e.time, e.payload = numbers[0], numbers[1], int64(numbers[2]), b
	return e, nil
}

// fence is the last entry that was taken: nothing but the next one may follow.
type fence struct {
	Term uint64 `json:"term"`
	N    uint64 `json:"n"`
}

// takes says whether an entry, found in the log at logTerm, is the one that was
// meant to come next. An entry can get into the log in a later term than it was
// decided in, when a leader is deposed and elected again while it waits to be
// appended: what it was decided on may have changed since.
func (f fence) takes(e *entry, logTerm uint64) bool {
	switch {
	case e.term != logTerm:
		return false
	case e.term == f.Term:
		return e.n == f.N+1
	}
	return e.term > f.Term && e.n == 1
}
