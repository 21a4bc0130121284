package cluster

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/hashicorp/raft"

	"github.com/stint-dev/stint/engine"
)

// A stream is the whole state as bytes: what snapshots hold, and backups.
//
//	"stintsnp", format (1 byte)
//	frames: length (4 bytes, little endian), CRC-32C of kind and data, kind (1 byte), data
//
// The first frame is the head, in JSON; then come chunks of changes as package
// engine encodes them; the last frame is the tail, with the number of bytes of
// chunks. Nothing follows it.
const (
	streamMagic  = "stintsnp"
	streamFormat = 1
	streamChunk  = 256 << 10 // bytes of a chunk, about
	streamMost   = 64 << 20  // bytes of the largest frame: a sliding log of two million entries fits
)

const (
	frameHead  = 1
	frameChunk = 2
	frameTail  = 3
)

// ErrStream: bytes that are not a whole and unchanged state.
var ErrStream = errors.New("the snapshot is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// streamHead is what the state is besides its keys.
type streamHead struct {
	Latest   int64          `json:"latest"` // unix ns
	Index    uint64         `json:"index"`
	Fence    fence          `json:"fence"`
	Meta     meta           `json:"meta"`
	Servers  []streamServer `json:"servers"`
	Encoding int            `json:"encoding"` // engine.EncodingVersion of the chunks
}

type streamServer struct {
	ID    string `json:"id"`
	Addr  string `json:"addr"`
	Voter bool   `json:"voter"`
}

type streamTail struct {
	Bytes int64 `json:"bytes"`
	Keys  int   `json:"keys"`
}

// configuration is the membership in Raft's form.
func (h streamHead) configuration() (c raft.Configuration) {
	for _, s := range h.Servers {
		suffrage := raft.Nonvoter
		if s.Voter {
			suffrage = raft.Voter
		}
		c.Servers = append(c.Servers, raft.Server{Suffrage: suffrage, ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Addr)})
	}
	return c
}

// chunks is where the changes of a stream come from.
type chunks interface {
	Append(dst []byte, max int) (out []byte, more bool)
	Keys() int
}

// writeStream writes a state.
func writeStream(w io.Writer, head streamHead, from chunks) error {
	s, err := newStreamWriter(w, head)
	if err != nil {
		return err
	}
	var buf []byte
	for more := true; more; {
		buf, more = from.Append(buf[:0], streamChunk)
		if err := s.chunk(buf); err != nil {
			return err
		}
		if cap(buf) > 4*streamChunk {
			buf = nil // a large sliding log's
		}
	}
	return s.end(from.Keys())
}

// streamWriter writes a stream in steps.
type streamWriter struct {
	w     io.Writer
	bytes int64
	buf   []byte
}

func newStreamWriter(w io.Writer, head streamHead) (*streamWriter, error) {
	s := &streamWriter{w: w}
	if _, err := w.Write(append([]byte(streamMagic), streamFormat)); err != nil {
		return nil, err
	}
	return s, s.json(frameHead, head)
}

func (s *streamWriter) json(kind byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.frame(kind, b)
}

func (s *streamWriter) frame(kind byte, data []byte) error {
	if len(data) > streamMost {
		return fmt.Errorf("a value of %d bytes does not fit into a snapshot", len(data))
	}
	s.buf = append(s.buf[:0], 0, 0, 0, 0, 0, 0, 0, 0, kind)
	binary.LittleEndian.PutUint32(s.buf, uint32(len(data)))
	sum := crc32.Update(crc32.Checksum(s.buf[8:9], castagnoli), castagnoli, data)
	binary.LittleEndian.PutUint32(s.buf[4:], sum)
	if _, err := s.w.Write(s.buf); err != nil {
		return err
	}
	_, err := s.w.Write(data)
	return err
}

// chunk writes changes as package engine encodes them.
func (s *streamWriter) chunk(changes []byte) error {
	if len(changes) == 0 {
		return nil
	}
	s.bytes += int64(len(changes))
	return s.frame(frameChunk, changes)
}

// end completes the stream. It does not close what it is written to.
func (s *streamWriter) end(keys int) error {
	return s.json(frameTail, streamTail{Bytes: s.bytes, Keys: keys})
}

// streamReader reads a stream.
type streamReader struct {
	r    io.Reader
	head streamHead
	tail streamTail
	buf  []byte
}

// openStream reads the head. Errors wrap ErrStream, or are the reader's.
func openStream(r io.Reader) (*streamReader, error) {
	s := &streamReader{r: r}
	var magic [len(streamMagic) + 1]byte
	if _, err := io.ReadFull(r, magic[:]); err != nil {
		return nil, cut(err)
	}
	if string(magic[:len(streamMagic)]) != streamMagic {
		return nil, fmt.Errorf("%w: it does not begin like one", ErrStream)
	}
	if magic[len(streamMagic)] != streamFormat {
		return nil, fmt.Errorf("the snapshot is of format %d, and this program reads format %d: a newer version of stint is needed", magic[len(streamMagic)], streamFormat)
	}
	kind, data, err := s.frame()
	if err != nil {
		return nil, err
	}
	if kind != frameHead {
		return nil, fmt.Errorf("%w: it has no head", ErrStream)
	}
	if err := json.Unmarshal(data, &s.head); err != nil {
		return nil, fmt.Errorf("%w: its head: %w", ErrStream, err)
	}
	if s.head.Encoding < 1 || s.head.Encoding > engine.EncodingVersion {
		return nil, fmt.Errorf("the snapshot holds values in encoding %d, and this program reads up to %d: a newer version of stint is needed", s.head.Encoding, engine.EncodingVersion)
	}
	return s, nil
}

// each gives the chunks to f, in order, until the end of the stream. A chunk is
// valid during the call only.
func (s *streamReader) each(f func(changes []byte) error) error {
	bytes := int64(0)
	for {
		kind, data, err := s.frame()
		if err != nil {
			return err
		}
		switch kind {
		case frameChunk:
			bytes += int64(len(data))
			if err := f(data); err != nil {
				return fmt.Errorf("%w: %w", ErrStream, err)
			}
		case frameTail:
			if err := json.Unmarshal(data, &s.tail); err != nil {
				return fmt.Errorf("%w: its end: %w", ErrStream, err)
			}
			if s.tail.Bytes != bytes {
				return fmt.Errorf("%w: it has %d bytes of keys where %d were written", ErrStream, bytes, s.tail.Bytes)
			}
			if n, err := s.r.Read(make([]byte, 1)); n > 0 || err != nil && err != io.EOF {
				return fmt.Errorf("%w: something follows its end", ErrStream)
			}
			return nil
		default:
			return fmt.Errorf("%w: a frame of kind %d", ErrStream, kind)
		}
	}
}

func (s *streamReader) frame() (kind byte, data []byte, err error) {
	var h [9]byte
	if _, err := io.ReadFull(s.r, h[:]); err != nil {
		return 0, nil, cut(err)
	}
	n := binary.LittleEndian.Uint32(h[:])
	if n > streamMost {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes", ErrStream, n)
	}
	// Grown as it is read: a damaged length cannot ask for memory.
	s.buf = s.buf[:0]
	for left := int(n); left > 0; {
		step := min(left, 1<<20)
		at := len(s.buf)
		s.buf = append(s.buf, make([]byte, step)...)
		if _, err := io.ReadFull(s.r, s.buf[at:]); err != nil {
			return 0, nil, cut(err)
		}
		left -= step
	}
	if crc32.Update(crc32.Checksum(h[8:], castagnoli), castagnoli, s.buf) != binary.LittleEndian.Uint32(h[4:]) {
		return 0, nil, fmt.Errorf("%w: a checksum is wrong", ErrStream)
	}
	return h[8], s.buf, nil
}

// cut words the early end of a stream.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is cut short", ErrStream)
	}
	return err
}
