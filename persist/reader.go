package persist

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/stint-dev/stint/persist/internal/boltfile"
)

// reader reads a state file and never writes. Nothing in it maps the file into
// memory, so that a damaged or vanishing file is an error and no fault, and
// reading ten million buckets leaves no trace in the resident set.
type reader struct {
	path string
	file *os.File
	bolt *boltfile.File
	hdr  *header
	size int64
}

// openReader opens a state file, checks its structure (not yet the chunks) and
// reads its header. If shared, a writer that has it open is ErrLocked.
func openReader(path string, shared bool) (r *reader, err error) {
	f, err := openRegular(path)
	if errors.Is(err, ErrForeign) {
		return nil, refuse(path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the state file: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
			err = refuse(path, err)
		}
	}()
	if shared {
		if err := lockFile(f, false); err != nil {
			if errors.Is(err, ErrLocked) {
				return nil, &fileError{
					fact:   fmt.Sprintf("the state file %s is in use by a running stint", path),
					advice: "stop it first",
					kind:   ErrLocked, cause: err,
				}
			}
			return nil, err
		}
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	r = &reader{path: path, file: f, size: info.Size()}
	if r.size == 0 {
		// A state file appears under its name when it is complete, so stint
		// never leaves an empty one.
		return nil, foreign("it is empty")
	}
	if r.bolt, err = boltfile.Open(f, r.size); err != nil {
		return nil, boltError(err)
	}
	if err := r.readHeader(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *reader) Close() error { return r.file.Close() }

func foreign(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrForeign, fmt.Errorf(format, args...))
}

func boltError(err error) error {
	switch {
	case errors.Is(err, boltfile.ErrNotBolt):
		return foreign("its first bytes are those of something else")
	case errors.Is(err, boltfile.ErrDamaged):
		return damaged("%w", err)
	}
	return err
}

// readHeader walks the whole structure and finds the header.
func (r *reader) readHeader() error {
	var raw []byte
	found, others := false, false
	stray := ""
	err := r.bolt.Scan(func(bucket, key []byte, v boltfile.Value) (err error) {
		switch {
		case string(bucket) == headerBucket && string(key) == headerKey:
			found = true
			raw, err = r.bolt.Read(v, nil)
			return err
		case strings.HasPrefix(string(bucket), basePrefix), strings.HasPrefix(string(bucket), deltaPrefix):
			// Part of the state, or left by a write that was not finished.
		default:
			others = true
			stray = string(bucket)
		}
		return nil
	})
	if err != nil {
		return boltError(err)
	}
	if !found {
		return foreign("it is a bbolt database of another program")
	}
	if others {
		return damaged("it holds a bucket %q, which no stint wrote", stray)
	}
	if r.hdr, err = parseHeader(raw); err != nil {
		return err
	}
	if r.hdr.tx != r.bolt.Transaction() {
		return damaged("its header is of transaction %d, and the last was %d", r.hdr.tx, r.bolt.Transaction())
	}
	return nil
}

// chunks gives the payloads of all chunks that count to visit, base first, and
// checks that they are all there and as they were written. The payload is
// valid during the call.
func (r *reader) chunks(visit func(p chunkPlace, payload []byte) error) error {
	want := make([]chunkPlace, 0, 1+len(r.hdr.eras))
	sums := make([]group, 0, cap(want))
	if r.hdr.base.id != 0 {
		want, sums = append(want, chunkPlace{kind: baseChunk, group: r.hdr.base.id}), append(sums, r.hdr.base)
	}
	for _, e := range r.hdr.eras {
		want, sums = append(want, chunkPlace{kind: deltaChunk, group: e.id}), append(sums, e)
	}
	names := make([]string, len(want))
	for i, p := range want {
		names[i] = p.bucket()
	}
	var buf []byte
	seen := make([]group, len(want))
	at := 0
	// The scan comes by in the order of names, so base before eras and the
	// eras in the order of their numbers, which is that of the header.
	err := r.bolt.Scan(func(bucket, key []byte, v boltfile.Value) error {
		i := at
		for i < len(names) && names[i] != string(bucket) {
			i++
		}
		if i == len(names) {
			return nil // the header, or a leftover
		}
		at = i
		index, err := parseChunkKey(key)
		if err != nil {
			return damaged("%s: %w", names[i], err)
		}
		if index != seen[i].chunks {
			return damaged("%s: chunk %d is missing", want[i], seen[i].chunks)
		}
		if index >= sums[i].chunks {
			seen[i].chunks++
			return nil // of a tick that was not finished
		}
		if buf, err = r.bolt.Read(v, buf); err != nil {
			return err
		}
		want[i].index = index
		payload, err := openChunk(buf, want[i])
		if err != nil {
			return err
		}
		seen[i].add(buf)
		return visit(want[i], payload)
	})
	if err != nil {
		return boltError(err)
	}
	for i := range want {
		switch {
		case seen[i].chunks < sums[i].chunks:
			return damaged("%s has %d chunks of %d", want[i], seen[i].chunks, sums[i].chunks)
		case seen[i].sum != sums[i].sum || seen[i].bytes != sums[i].bytes:
			return damaged("the chunks of %s are not those that were written last", want[i])
		}
	}
	return nil
}

// bucket is the name of the bucket that holds the chunk.
func (p chunkPlace) bucket() string {
	if p.kind == baseChunk {
		return baseBucket(p.group)
	}
	return deltaBucket(p.group)
}
