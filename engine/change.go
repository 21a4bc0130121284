package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/stint-dev/stint/engine/internal/table"
	"github.com/stint-dev/stint/engine/limit"
)

// EncodingVersion is the version of the bytes that Cut and Dump write and Load
// and VisitChunk read. It is raised when older readers would misread them.
const EncodingVersion = 1

// Op says what a Change does. The numbers are stored in files.
type Op uint8

const (
	OpPut     Op = 1 // the key's value is Value
	OpDelete  Op = 2 // the key has no value
	OpFlushDB Op = 3 // the database has no keys
)

// Change is one change of the keyspace, absolute: applied twice it does what
// it does once, and the last one of a key wins.
type Change struct {
	Op    Op
	DB    uint8
	Key   []byte // shares the chunk's memory
	Value limit.Value
}

// A change is encoded as op (1 byte), database (1 byte), then for put and
// delete the key's length (uvarint) and the key, then for put the value as
// limit.AppendValue writes it.

func appendHead(dst []byte, op Op, db uint8, key []byte) []byte {
	dst = append(dst, byte(op), db)
	if op != OpFlushDB {
		dst = binary.AppendUvarint(dst, uint64(len(key)))
		dst = append(dst, key...)
	}
	return dst
}

func appendPut(dst []byte, db uint8, key []byte, v *limit.Value) []byte {
	return limit.AppendValue(appendHead(dst, OpPut, db, key), v)
}

// decodeChange reads the change at the front of b into c.
func decodeChange(b []byte, c *Change) (rest []byte, err error) {
	if len(b) < 2 {
		return nil, fmt.Errorf("%w: it ends within its first two bytes", ErrDamaged)
	}
	*c = Change{Op: Op(b[0]), DB: b[1]}
	if c.Op < OpPut || c.Op > OpFlushDB {
		return nil, fmt.Errorf("%w: unknown operation %d", ErrDamaged, b[0])
	}
	if c.DB >= Databases {
		return nil, fmt.Errorf("%w: database %d", ErrDamaged, b[1])
	}
	b = b[2:]
	if c.Op == OpFlushDB {
		return b, nil
	}
	n, w := binary.Uvarint(b)
	if w <= 0 || n < 1 || n > MaxKey || n > uint64(len(b)-w) {
		return nil, fmt.Errorf("%w: the length of a key", ErrDamaged)
	}
	c.Key, b = b[w:w+int(n)], b[w+int(n):]
	if c.Op == OpDelete {
		return b, nil
	}
	v, rest, err := limit.DecodeValue(b)
	if err != nil {
		return nil, fmt.Errorf("%w: the value of a key: %w", ErrDamaged, err)
	}
	c.Value = v
	return rest, nil
}

// VisitChunk decodes the changes of a chunk that Cut or Dump made and gives
// them to f in order, until f returns an error. Damaged bytes give an error
// that wraps ErrDamaged.
func VisitChunk(chunk []byte, f func(*Change) error) error {
	var c Change
	for len(chunk) > 0 {
		rest, err := decodeChange(chunk, &c)
		if err != nil {
			return err
		}
		if err := f(&c); err != nil {
			return err
		}
		chunk = rest
	}
	return nil
}

// Load applies a chunk of changes. It is for a keyspace that is being
// restored, before anything decides on it. Values that were full at the latest
// time seen (set it first, with Advance) are not kept. What is loaded counts
// as unchanged: the next Cut does not drain it. It is loaded whatever
// Options.MaxMemory says.
//
// Errors wrap ErrDamaged; the changes before the damage are applied.
func (ks *Keyspace) Load(chunk []byte) error {
	latest := ks.Latest()
	return VisitChunk(chunk, func(c *Change) error {
		if c.Op == OpFlushDB {
			ks.lockAll()
			ks.flush(int(c.DB), int(c.DB))
			ks.flushed[c.DB] = false
			ks.unlockAll()
			return nil
		}
		hash := ks.hash(c.Key)
		sh := ks.shardOf(hash)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return sh.load(ks, hash, c, latest)
	})
}

// load applies a put or delete to a shard, which is locked.
func (sh *shard) load(ks *Keyspace, hash uint64, c *Change, latest int64) error {
	t := sh.tables[c.DB]
	if c.Op == OpPut && c.Value.Expiry() > latest {
		if t == nil {
			t = ks.newTable()
			sh.tables[c.DB] = t
		}
		return t.Load(hash, c.Key, &c.Value)
	}
	if t == nil {
		return nil
	}
	var v limit.Value
	if ref := t.Get(hash, c.Key, &v); ref != table.NoRef {
		t.Delete(hash, ref, false)
	}
	return nil
}
