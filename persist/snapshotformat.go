package persist

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/hashicorp/raft"
)

// A snapshot file is a bbolt database with one bucket, "snapshot":
//
//	index (8 bytes, big endian)    a chunk, from index 0 on
//	"meta"                         the snapshotHead: the last key in the order
//
// Keys come in order and are never changed, so the pages are full and lie one
// after the other. Nothing in the file counts without the head, which is written
// last.
const (
	snapshotBucket = "snapshot"
	snapshotMeta   = "meta"
	snapshotSuffix = ".snap"

	// snapshotFormat is the version that this program writes, and the newest
	// that it reads.
	snapshotFormat = 1
)

// snapshotHead is what a file says about its snapshot.
type snapshotHead struct {
	name    snapshotName
	version uint32 // raft.SnapshotVersion
	conf    raft.Configuration
	confAt  uint64 // index of the entry with the configuration

	chunks uint64
	size   int64  // bytes of all chunks: of what Open streams
	sum    uint32 // CRC-32C over all of that
}

var snapshotMagic = [8]byte{'s', 't', 'i', 'n', 't', 'S', 'N', 0}

// The first 16 bytes stay as they are in every format: magic, CRC-32C of all that
// follows it, format version.
func (h *snapshotHead) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, snapshotMagic[:]...)
	dst = order.AppendUint32(dst, 0)
	dst = order.AppendUint32(dst, snapshotFormat)
	for _, v := range []uint64{h.name.index, h.name.term, h.name.random, uint64(h.version), h.confAt, h.chunks, uint64(h.size), uint64(h.sum), uint64(len(h.conf.Servers))} {
		dst = order.AppendUint64(dst, v)
	}
	for _, s := range h.conf.Servers {
		dst = append(dst, byte(s.Suffrage))
		dst = appendText(dst, string(s.ID))
		dst = appendText(dst, string(s.Address))
	}
	order.PutUint32(dst[start+8:], checksum(dst[start+12:]))
	return dst
}

// fits is an error if the configuration holds what append would cut short.
func (h *snapshotHead) fits() error {
	for _, s := range h.conf.Servers {
		if len(s.ID) > 255 || len(s.Address) > 255 {
			return fmt.Errorf("the ID or the address of node %.40q has more than 255 bytes", s.ID)
		}
	}
	return nil
}

func parseSnapshotHead(b []byte) (*snapshotHead, error) {
	const fixed = 16 + 9*8
	if len(b) < 16 || [8]byte(b[:8]) != snapshotMagic {
		return nil, damaged("its head is missing or no head")
	}
	if checksum(b[12:]) != order.Uint32(b[8:]) {
		return nil, damaged("the checksum of its head is wrong")
	}
	if v := order.Uint32(b[12:]); v == 0 || v > snapshotFormat {
		return nil, fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf("is of format %d, and this program reads up to format %d", v, snapshotFormat))
	}
	if len(b) < fixed {
		return nil, damaged("its head is cut short")
	}
	v := func(i int) uint64 { return order.Uint64(b[16+8*i:]) }
	if v(3) > math.MaxUint32 || v(6) > math.MaxInt64 || v(7) > math.MaxUint32 {
		return nil, damaged("a number in its head is too large")
	}
	h := &snapshotHead{
		name:    snapshotName{index: v(0), term: v(1), random: v(2)},
		version: uint32(v(3)), confAt: v(4), chunks: v(5), size: int64(v(6)), sum: uint32(v(7)),
	}
	n := v(8)
	for b = b[fixed:]; n > 0; n-- {
		if len(b) == 0 {
			return nil, damaged("its head is cut short")
		}
		suffrage := raft.ServerSuffrage(b[0])
		id, rest, ok := parseText(b[1:])
		if !ok {
			return nil, damaged("its head is cut short")
		}
		addr, rest, ok := parseText(rest)
		if !ok {
			return nil, damaged("its head is cut short")
		}
		h.conf.Servers = append(h.conf.Servers, raft.Server{Suffrage: suffrage, ID: raft.ServerID(id), Address: raft.ServerAddress(addr)})
		b = rest
	}
	if len(b) > 0 {
		return nil, damaged("its head has the wrong length")
	}
	return h, nil
}

func (h *snapshotHead) meta() *raft.SnapshotMeta {
	return &raft.SnapshotMeta{
		Version: raft.SnapshotVersion(h.version), ID: h.name.String(),
		Index: h.name.index, Term: h.name.term,
		Configuration: h.conf.Clone(), ConfigurationIndex: h.confAt, Size: h.size,
	}
}

// snapshotName tells a snapshot from all others. As text it is the ID that raft
// knows, and the file's name: the order of the texts is that of the indexes.
type snapshotName struct{ index, term, random uint64 }

func (n snapshotName) String() string {
	return fmt.Sprintf("%016x-%016x-%016x", n.index, n.term, n.random)
}

var errSnapshotName = errors.New("not the ID of a snapshot")

func parseSnapshotName(s string) (n snapshotName, err error) {
	for i, v := range []*uint64{&n.index, &n.term, &n.random} {
		if len(s) < 17*i+16 {
			return n, errSnapshotName
		}
		if *v, err = strconv.ParseUint(s[17*i:17*i+16], 16, 64); err != nil {
			return n, errSnapshotName
		}
	}
	if n.String() != s {
		return n, errSnapshotName
	}
	return n, nil
}

// A chunk begins with snapshotChunkHeader bytes: CRC-32C of all that follows it,
// payload length (4 bytes each), the snapshot's random number, index (8 each). So
// one that turns up in another place, or another file, is noticed.
const snapshotChunkHeader = 24

// sealSnapshotChunk fills in the header of b, which is snapshotChunkHeader bytes
// of anything and then the payload.
func sealSnapshotChunk(b []byte, random, index uint64) {
	order.PutUint32(b[4:], uint32(len(b)-snapshotChunkHeader))
	order.PutUint64(b[8:], random)
	order.PutUint64(b[16:], index)
	order.PutUint32(b, checksum(b[4:]))
}

// openSnapshotChunk checks a chunk and returns its payload, which shares b's
// memory.
func openSnapshotChunk(b []byte, random, index uint64) ([]byte, error) {
	switch {
	case len(b) < snapshotChunkHeader || uint64(order.Uint32(b[4:])) != uint64(len(b)-snapshotChunkHeader):
		return nil, damaged("chunk %d has the wrong length", index)
	case checksum(b[4:]) != order.Uint32(b):
		return nil, damaged("the checksum of chunk %d is wrong", index)
	case order.Uint64(b[8:]) != random || order.Uint64(b[16:]) != index:
		return nil, damaged("chunk %d of another snapshot was found where chunk %d belongs", order.Uint64(b[16:]), index)
	}
	return b[snapshotChunkHeader:], nil
}
