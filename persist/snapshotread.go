package persist

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/stint-dev/stint/persist/internal/boltfile"
)

// snapshotReader reads a snapshot with plain reads, and never writes. One
// goroutine uses it.
type snapshotReader struct {
	path   string
	file   *os.File
	bolt   *boltfile.File
	head   *snapshotHead
	values []boltfile.Value // of the chunks

	next int    // chunk to be read
	buf  []byte // the chunk at hand
	rest []byte // of it, not yet given
	sum  uint32 // over what was read
	err  error  // of the chunk that could not be read
}

// openSnapshot opens a snapshot file and checks its structure and its head: that
// all chunks are there, not yet what is in them.
func openSnapshot(path string, name snapshotName) (_ *snapshotReader, err error) {
	r := &snapshotReader{path: path}
	if r.file, err = openRegular(path); err != nil {
		return nil, fmt.Errorf("open the snapshot %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			r.file.Close()
			err = refuseSnapshot(path, err)
		}
	}()
	info, err := r.file.Stat()
	if err != nil {
		return nil, err
	}
	if r.bolt, err = boltfile.Open(r.file, info.Size()); err != nil {
		return nil, err
	}
	var meta boltfile.Value
	size := int64(0)
	err = r.bolt.Scan(func(bucket, key []byte, v boltfile.Value) error {
		if string(bucket) != snapshotBucket {
			return damaged("it holds a bucket %q, which no stint wrote", bucket)
		}
		if string(key) == snapshotMeta {
			meta = v
			return nil
		}
		if i, err := parseChunkKey(key); err != nil || i != uint64(len(r.values)) {
			return damaged("chunk %d is missing", len(r.values))
		}
		r.values = append(r.values, v)
		size += int64(v.Size) - snapshotChunkHeader
		return nil
	})
	if err != nil {
		return nil, err
	}
	b, err := r.bolt.Read(meta, nil)
	if err != nil {
		return nil, err
	}
	if r.head, err = parseSnapshotHead(b); err != nil {
		return nil, err
	}
	switch {
	case r.head.name != name:
		return nil, damaged("it is snapshot %s under another name", r.head.name)
	case r.head.chunks != uint64(len(r.values)) || r.head.size != size:
		return nil, damaged("it has %d of %d chunks and %d of %d bytes", len(r.values), r.head.chunks, size, r.head.size)
	}
	return r, nil
}

// Read gives what was written to the snapshot, each chunk after its checksum was
// found right, and the last after that of the whole.
func (r *snapshotReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if r.next == len(r.values) {
			return 0, io.EOF
		}
		if err := r.chunk(); err != nil {
			r.err = refuseSnapshot(r.path, err)
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *snapshotReader) chunk() (err error) {
	if r.buf, err = r.bolt.Read(r.values[r.next], r.buf); err != nil {
		return err
	}
	payload, err := openSnapshotChunk(r.buf, r.head.name.random, uint64(r.next))
	if err != nil {
		return err
	}
	r.next++
	r.sum = crc32.Update(r.sum, castagnoli, payload)
	if r.next == len(r.values) && r.sum != r.head.sum {
		return damaged("the chunks are not those that were written")
	}
	r.rest = payload
	return nil
}

// Close ends the reading.
func (r *snapshotReader) Close() error { return r.file.Close() }

// refuseSnapshot words an error of reading a snapshot as a sentence with advice.
func refuseSnapshot(path string, err error) error {
	why := err
	switch {
	case errors.Is(err, ErrFormat):
		return &fileError{
			fact:   fmt.Sprintf("the snapshot %s %s", path, reason(err)),
			advice: "use the version of stint that wrote it",
			kind:   ErrFormat, cause: err,
		}
	case errors.Is(err, ErrDamaged):
		why = errors.New(reason(err))
	case errors.Is(err, boltfile.ErrNotBolt), errors.Is(err, boltfile.ErrDamaged), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		// EOF: the file has become shorter. It must not look like the end.
	default:
		return fmt.Errorf("read the snapshot %s: %w", path, err)
	}
	return &fileError{
		fact:   fmt.Sprintf("the snapshot %s is damaged: %v", path, why),
		advice: "move it away; if the node then does not start, remove it from the cluster, move its folder away and let it join again",
		kind:   ErrDamaged, cause: why,
	}
}
