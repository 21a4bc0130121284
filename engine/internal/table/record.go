package table

import (
	"encoding/binary"

	"github.com/stint-dev/stint/engine/limit"
)

// A record in its slot, little-endian:
//
//	0  uint16  length of the key
//	2  uint8   limit.Kind; None: the slot is free
//	3  uint8   flags
//	4  uint32  number of its limit in the table's limits
//	8  state   1 to 3 words of 8 bytes, by kind; of a log, the number of its ring
//	…  key
const (
	offKind     = 2
	offFlags    = 3
	offLimit    = 4
	headerBytes = 8
)

// stateWords is how many words of state a kind has.
var stateWords = [8]uint8{
	limit.KindBucket:  2,
	limit.KindLeak:    2,
	limit.KindFixed:   2,
	limit.KindSliding: 3,
	limit.KindLog:     1,
}

// keyAt is where the key of a kind's record begins.
func keyAt(k limit.Kind) int { return headerBytes + 8*int(stateWords[k&7]) }

func recordSize(k limit.Kind, key int) int { return keyAt(k) + key }

func kindOf(rec []byte) limit.Kind { return limit.Kind(rec[offKind]) }

func limitOf(rec []byte) uint32 { return binary.LittleEndian.Uint32(rec[offLimit:]) }

func setLimit(rec []byte, i uint32) { binary.LittleEndian.PutUint32(rec[offLimit:], i) }

func word(rec []byte, i int) int64 {
	return int64(binary.LittleEndian.Uint64(rec[headerBytes+8*i:]))
}

func setWord(rec []byte, i int, w int64) {
	binary.LittleEndian.PutUint64(rec[headerBytes+8*i:], uint64(w))
}

// keyOf is the key, in the page's memory.
func keyOf(rec []byte) []byte {
	at := keyAt(kindOf(rec))
	return rec[at : at+int(binary.LittleEndian.Uint16(rec))]
}

// read fills v with the value of a record.
func (t *Table) read(rec []byte, v *limit.Value) {
	v.Kind = kindOf(rec)
	v.Limit = *t.limits.at(limitOf(rec))
	v.Log = nil
	switch v.Kind {
	case limit.KindSliding:
		v.W = [3]int64{word(rec, 0), word(rec, 1), word(rec, 2)}
	case limit.KindLog:
		v.W = [3]int64{}
		v.Log = t.logs[word(rec, 0)]
	default:
		v.W = [3]int64{word(rec, 0), word(rec, 1), 0}
	}
}

// write puts v's words into a record of its kind, which is not a log.
func write(rec []byte, v *limit.Value) {
	setWord(rec, 0, v.W[0])
	setWord(rec, 1, v.W[1])
	if v.Kind == limit.KindSliding {
		setWord(rec, 2, v.W[2])
	}
}
