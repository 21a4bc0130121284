package port

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

// After the handshake a connection for calls carries frames:
//
//	length of what follows (4 bytes, little endian), number (8), kind (1), payload
//
// A call has a number and a kind of the caller's; the frame that ends it has the
// same number. Kinds from reservedKinds on, and 0, are the port's own.
const (
	frameHead = 4 + frameRest
	frameRest = 8 + 1 // least that a length may say

	reservedKinds = 0xf0
	kindReply     = 0xff
	kindTooLarge  = 0xfe // ends a call whose reply does not fit into a frame
	kindPing      = 0xfd // to be answered with a pong of the same number and payload
	kindPong      = 0xfc
	kindBeat      = 0xfb // says only that whoever sends it is alive
)

func appendFrame(dst []byte, id uint64, kind uint8, payload []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(frameRest+len(payload)))
	dst = binary.LittleEndian.AppendUint64(dst, id)
	return append(append(dst, kind), payload...)
}

type frame struct {
	id      uint64
	kind    uint8
	payload []byte
}

// Sizes of buffers, in bytes.
const (
	slabSize  = 64 << 10  // what is read at a time
	blockFull = 256 << 10 // what is written at a time, about
	keepSize  = 512 << 10 // larger ones are not kept
)

// frameReader takes frames out of what it reads, without copying: a payload is a
// part of the memory that was read into.
//
// With give, payloads belong to who gets them: memory that has one is not written
// to again. A slab of it then serves many small frames, and the garbage collector
// takes it when none of them is needed any more. Without, a payload is valid until
// the next call of next.
type frameReader struct {
	r    io.Reader
	most int // bytes of a payload
	give bool

	buf   []byte // what was read is buf[at:end]
	at    int
	end   int
	given bool // buf has a payload that was given away
}

// next returns the next frame.
func (f *frameReader) next() (frame, error) {
	if err := f.fill(frameHead); err != nil {
		return frame{}, err
	}
	n := binary.LittleEndian.Uint32(f.buf[f.at:])
	if n < frameRest || n > uint32(frameRest+f.most) {
		return frame{}, fmt.Errorf("a frame of %d bytes, and %d is the most", n, f.most)
	}
	size := 4 + int(n)
	if err := f.fill(size); err != nil {
		return frame{}, err
	}
	b := f.buf[f.at : f.at+size : f.at+size]
	f.at += size
	if size > frameHead {
		f.given = f.give
	}
	return frame{binary.LittleEndian.Uint64(b[4:]), b[frameHead-1], b[frameHead:]}, nil
}

// fill reads until n bytes are there. The end of the stream within a frame is
// io.ErrUnexpectedEOF.
func (f *frameReader) fill(n int) error {
	if f.at == f.end && !f.given {
		f.at, f.end = 0, 0
		if len(f.buf) > keepSize {
			f.buf = nil
		}
	}
	if f.at+n > len(f.buf) {
		old := f.buf[f.at:f.end]
		if f.given || n > len(f.buf) {
			f.buf, f.given = make([]byte, max(n, slabSize)), false
		}
		f.at, f.end = 0, copy(f.buf, old)
	}
	for f.end-f.at < n {
		m, err := f.r.Read(f.buf[f.end:])
		f.end += m
		if err != nil && f.end-f.at < n {
			if err == io.EOF && f.end > f.at {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// block is frames that are written at once.
type block struct {
	buf  []byte
	last uint64 // number of its last call
}

var blocks = sync.Pool{New: func() any { return new(block) }}

// free gives a block back, when nothing uses it any more.
func (b *block) free() {
	if cap(b.buf) <= keepSize {
		b.buf, b.last = b.buf[:0], 0
		blocks.Put(b)
	}
}

// outbox is frames that wait to be written: while one block is on its way, the next
// ones are filled. Its owner guards it.
type outbox struct {
	blocks []*block
	bytes  int
}

// add puts a frame behind the others. id counts as a call's if call is set.
func (o *outbox) add(id uint64, kind uint8, payload []byte, call bool) {
	size := frameHead + len(payload)
	n := len(o.blocks)
	if n == 0 || len(o.blocks[n-1].buf)+size > blockFull && len(o.blocks[n-1].buf) > 0 {
		o.blocks = append(o.blocks, blocks.Get().(*block))
		n++
	}
	b := o.blocks[n-1]
	b.buf = appendFrame(b.buf, id, kind, payload)
	if call {
		b.last = id
	}
	o.bytes += size
}

// take removes the first block; nil: nothing waits. Once it is written it is to be
// freed.
func (o *outbox) take() *block {
	if len(o.blocks) == 0 {
		return nil
	}
	b := o.blocks[0]
	o.blocks[0] = nil
	o.blocks = o.blocks[1:]
	if len(o.blocks) == 0 {
		o.blocks = nil
	}
	o.bytes -= len(b.buf)
	return b
}

// cut removes the frame of a call. It reports whether it was there.
func (o *outbox) cut(id uint64) bool {
	for _, b := range o.blocks {
		for at := 0; at < len(b.buf); {
			size := 4 + int(binary.LittleEndian.Uint32(b.buf[at:]))
			if binary.LittleEndian.Uint64(b.buf[at+4:]) == id && b.buf[at+frameHead-1] < reservedKinds {
				b.buf = append(b.buf[:at], b.buf[at+size:]...)
				o.bytes -= size
				return true
			}
			at += size
		}
	}
	return false
}

// drop forgets what waits.
func (o *outbox) drop() {
	for b := o.take(); b != nil; b = o.take() {
		b.free()
	}
}
