package persist

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/stint-dev/stint/engine"
)

// FormatVersion is the version of the state file that this program writes, and
// the newest that it reads.
const FormatVersion = 1

// The state file is a bbolt database with these buckets:
//
//	base-G    the chunks of base generation G (a dump of all keys)
//	delta-E   the chunks of delta era E (changed keys, cut by cut)
//	stint     one key, "state": the header
//
// G and E are 16 hex digits. A chunk's key is its index, from 0, as 8 bytes
// big endian. The header names the base and the eras that count, in order, with
// the number of their chunks and a checksum over those: whatever else is in the
// file was left by a write that did not come to its end.
const (
	headerBucket = "stint"
	headerKey    = "state"
	basePrefix   = "base-"
	deltaPrefix  = "delta-"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var order = binary.LittleEndian

// group is a run of chunks: a base or a delta era.
type group struct {
	id     uint64 // generation or era; 0: none
	chunks uint64
	bytes  uint64 // of all chunks, their headers included
	sum    uint32 // CRC-32C over the chunks' checksums, in order
}

// add counts a chunk in.
func (g *group) add(chunk []byte) {
	g.chunks++
	g.bytes += uint64(len(chunk))
	g.sum = crc32.Update(g.sum, castagnoli, chunk[:4])
}

func (g group) append(dst []byte) []byte {
	dst = order.AppendUint64(dst, g.id)
	dst = order.AppendUint64(dst, g.chunks)
	dst = order.AppendUint64(dst, g.bytes)
	return order.AppendUint32(dst, g.sum)
}

const groupSize = 28

func parseGroup(b []byte) group {
	return group{order.Uint64(b), order.Uint64(b[8:]), order.Uint64(b[16:]), order.Uint32(b[24:])}
}

// header is the commit record: the state is what it refers to, all of it.
type header struct {
	format    uint32
	tx        uint64 // of the bbolt transaction that wrote it: every one does
	sequence  uint64 // number of the last tick
	latest    int64  // latest time of any decision, unix ns
	created   int64  // wall clock, unix ns
	saved     int64  // wall clock of the last tick, unix ns
	base      group
	eras      []group // oldest first; never empty
	createdBy string  // versions of stint
	writtenBy string
}

var headerMagic = [8]byte{'s', 't', 'i', 'n', 't', 'D', 'B', 0}

// The header's first 16 bytes stay as they are in every format: magic, CRC-32C
// of all that follows it, format version. So does the writer's version, which
// comes next: a byte with its length and the text.
func (h *header) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, headerMagic[:]...)
	dst = order.AppendUint32(dst, 0)
	dst = order.AppendUint32(dst, h.format)
	dst = appendText(dst, h.writtenBy)
	dst = appendText(dst, h.createdBy)
	dst = order.AppendUint64(dst, h.tx)
	dst = order.AppendUint64(dst, h.sequence)
	for _, t := range []int64{h.latest, h.created, h.saved} {
		dst = order.AppendUint64(dst, uint64(t))
	}
	dst = h.base.append(dst)
	dst = order.AppendUint32(dst, uint32(len(h.eras)))
	for _, e := range h.eras {
		dst = e.append(dst)
	}
	order.PutUint32(dst[start+8:], checksum(dst[start+12:]))
	return dst
}

// appendText writes up to 255 bytes of s.
func appendText(dst []byte, s string) []byte {
	s = s[:min(len(s), 255)]
	return append(append(dst, byte(len(s))), s...)
}

func parseText(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return "", nil, false
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], true
}

func parseHeader(b []byte) (*header, error) {
	if len(b) < 16 || [8]byte(b[:8]) != headerMagic {
		return nil, damaged("its header is not one")
	}
	if checksum(b[12:]) != order.Uint32(b[8:]) {
		return nil, damaged("the checksum of its header is wrong")
	}
	h := &header{format: order.Uint32(b[12:])}
	writer, b, ok := parseText(b[16:])
	if !ok {
		return nil, damaged("its header is cut short")
	}
	h.writtenBy = writer
	if h.format == 0 || h.format > FormatVersion {
		return nil, fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf("is of format %d, written by stint %q, and this program reads up to format %d", h.format, writer, FormatVersion))
	}
	if h.createdBy, b, ok = parseText(b); !ok || len(b) < 40+groupSize+4 {
		return nil, damaged("its header is cut short")
	}
	h.tx, h.sequence = order.Uint64(b), order.Uint64(b[8:])
	h.latest, h.created, h.saved = int64(order.Uint64(b[16:])), int64(order.Uint64(b[24:])), int64(order.Uint64(b[32:]))
	h.base = parseGroup(b[40:])
	n := uint64(order.Uint32(b[40+groupSize:]))
	b = b[44+groupSize:]
	if n == 0 || uint64(len(b)) != n*groupSize {
		return nil, damaged("its header has the wrong length")
	}
	for ; len(b) > 0; b = b[groupSize:] {
		h.eras = append(h.eras, parseGroup(b))
	}
	return h, nil
}

// clone copies the header with room for one more era.
func (h *header) clone() *header {
	c := *h
	c.eras = slices.Clone(h.eras)
	return &c
}

// era is the one that is written to.
func (h *header) era() *group { return &h.eras[len(h.eras)-1] }

// deltaBytes is how much must be replayed on top of the base.
func (h *header) deltaBytes() (n uint64) {
	for _, e := range h.eras {
		n += e.bytes
	}
	return n
}

// refers says whether a bucket is part of the state.
func (h *header) refers(bucket string) bool {
	if bucket == headerBucket || h.base.id != 0 && bucket == baseBucket(h.base.id) {
		return true
	}
	return slices.ContainsFunc(h.eras, func(e group) bool { return bucket == deltaBucket(e.id) })
}

func baseBucket(id uint64) string  { return fmt.Sprintf("%s%016x", basePrefix, id) }
func deltaBucket(id uint64) string { return fmt.Sprintf("%s%016x", deltaPrefix, id) }

// chunkKind tells the two kinds of chunks apart. The numbers are stored.
type chunkKind uint8

const (
	baseChunk  chunkKind = 1
	deltaChunk chunkKind = 2
)

// A chunk begins with chunkHeader bytes: CRC-32C of all that follows it,
// payload length (4 bytes each), kind, 0, engine.EncodingVersion (2), 0 (4),
// generation or era, index, sequence of the tick (8 each). With its place
// inside, a chunk that turns up in another is noticed.
const chunkHeader = 40

// chunkPlace is where a chunk belongs.
type chunkPlace struct {
	kind  chunkKind
	group uint64
	index uint64
}

// sealChunk fills in the header of b, which is chunkHeader bytes of anything
// and then the payload.
func sealChunk(b []byte, p chunkPlace, sequence uint64) {
	order.PutUint32(b[4:], uint32(len(b)-chunkHeader))
	b[8], b[9] = byte(p.kind), 0
	order.PutUint16(b[10:], engine.EncodingVersion)
	order.PutUint32(b[12:], 0)
	order.PutUint64(b[16:], p.group)
	order.PutUint64(b[24:], p.index)
	order.PutUint64(b[32:], sequence)
	order.PutUint32(b, checksum(b[4:]))
}

// openChunk checks a chunk found at p and returns its payload, which shares
// b's memory.
func openChunk(b []byte, p chunkPlace) ([]byte, error) {
	if len(b) < chunkHeader || uint64(order.Uint32(b[4:])) != uint64(len(b)-chunkHeader) {
		return nil, damaged("chunk %d of %s has the wrong length", p.index, p)
	}
	if checksum(b[4:]) != order.Uint32(b) {
		return nil, damaged("the checksum of chunk %d of %s is wrong", p.index, p)
	}
	if got := (chunkPlace{chunkKind(b[8]), order.Uint64(b[16:]), order.Uint64(b[24:])}); got != p {
		return nil, damaged("chunk %d of %s was found where chunk %d of %s belongs", got.index, got, p.index, p)
	}
	if v := order.Uint16(b[10:]); v == 0 || v > engine.EncodingVersion {
		return nil, fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf("holds values in encoding %d, and this program reads up to %d", v, engine.EncodingVersion))
	}
	return b[chunkHeader:], nil
}

func (p chunkPlace) String() string {
	if p.kind == baseChunk {
		return fmt.Sprintf("base %d", p.group)
	}
	return fmt.Sprintf("era %d", p.group)
}

var errPlace = errors.New("not the key of a chunk")

func chunkKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

func parseChunkKey(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, errPlace
	}
	return binary.BigEndian.Uint64(b), nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }
