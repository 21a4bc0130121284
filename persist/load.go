package persist

import (
	"errors"
	"fmt"
	"time"

	"github.com/stint-dev/stint/engine"
)

// keyspace is what persist needs of an engine.Keyspace; tests have others.
type keyspace interface {
	Cut() cut
	Dump() dump
	Load(chunk []byte) error
	Advance(latest int64)
	Changed() int64
	Count() int64 // keys, about
}

type cut interface {
	Latest() int64
	Append(dst []byte, max int) (out []byte, more bool)
	Keys() int
}

type dump interface {
	Append(dst []byte, max int) (out []byte, more bool)
}

// engineKeyspace is an engine.Keyspace as a keyspace.
type engineKeyspace struct{ *engine.Keyspace }

func (k engineKeyspace) Cut() cut   { return k.Keyspace.Cut() }
func (k engineKeyspace) Dump() dump { return k.Keyspace.Dump() }

func (k engineKeyspace) Count() (n int64) {
	for _, keys := range k.Stats(k.Latest()).Keys {
		n += keys
	}
	return n
}

// LoadInfo says what was loaded.
type LoadInfo struct {
	Created bool          // there was no file: it was made
	Saved   time.Time     // wall clock of the last flush
	Latest  int64         // latest time of any decision, unix ns
	Bytes   int64         // of all chunks
	Took    time.Duration // for loading
}

// Load fills an empty keyspace, which must have been made with Options.Track,
// with the state of the file, and verifies every byte of it on the way. The
// keyspace must not be used before Load is done, nor after it failed.
//
// Errors wrap ErrDamaged or ErrFormat, or are the system's.
func (st *State) Load(ks *engine.Keyspace) (LoadInfo, error) {
	return st.load(engineKeyspace{ks})
}

func (st *State) load(ks keyspace) (LoadInfo, error) {
	begin := st.o.now()
	r, err := openReader(st.path, true)
	if err != nil {
		return LoadInfo{}, err
	}
	defer r.Close()
	if err := st.recognize(r); err != nil {
		return LoadInfo{}, err
	}
	if err := r.load(ks); err != nil {
		return LoadInfo{}, refuse(st.path, err)
	}
	st.ks = ks
	return LoadInfo{
		Created: st.created,
		Saved:   time.Unix(0, r.hdr.saved),
		Latest:  r.hdr.latest,
		Bytes:   int64(r.hdr.base.bytes + r.hdr.deltaBytes()),
		Took:    st.o.now().Sub(begin),
	}, nil
}

// load gives all chunks to ks. The time comes first: with it the keyspace can
// leave out what is full again.
func (r *reader) load(ks keyspace) error {
	ks.Advance(r.hdr.latest)
	return r.chunks(func(p chunkPlace, payload []byte) error {
		err := ks.Load(payload)
		if errors.Is(err, engine.ErrDamaged) {
			return damaged("chunk %d of %s: %w", p.index, p, err)
		}
		if err != nil {
			return fmt.Errorf("chunk %d of %s: %w", p.index, p, err)
		}
		return nil
	})
}
