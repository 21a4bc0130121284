package command

import (
	"math"
	"strconv"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
	"github.com/stint-dev/stint/server/resp"
)

var scanCommands = []Command{
	{
		Name: "scan", Group: "keys", Since: "0.1.0", Arity: -2,
		Flags:   ReadOnly | Slow,
		Syntax:  "cursor [MATCH pattern] [COUNT count] [TYPE type]",
		Summary: "Walks the keys of the selected database in steps: every key that is there throughout comes at least once",
		Run:     scan,
	},
}

// Bounds of one SCAN, whose count is a hint: after so many bytes of keys, or so
// much work, it lets the client go on with the next. Work is counted in bytes
// of patterns looked at, about 2 ns each: all of it is some 20 ms, and as much
// again if one key and one pattern are chosen to be the worst of all.
const (
	maxScanBytes = 1 << 20
	maxScanWork  = 8 << 20

	// A step of the walk is of so many keys, or fewer if that many can be more
	// work than scanStepWork. A step that finds fewer keys than it may has
	// looked at many places where none is: that costs about scanEmptyWork.
	scanStep      = 256
	scanStepWork  = 4 << 20
	scanEmptyWork = 64 << 10
	scanKeyWork   = 32 // to look at a key and copy it
)

func scan(c *Ctx) {
	cursor, ok := parseNumber(c.Args[1], math.MaxUint64)
	if !ok {
		c.W.Error(ErrCursor)
		return
	}
	count := int64(10)
	var pattern, kind []byte
	for opts := c.Args[2:]; len(opts) > 0; opts = opts[2:] {
		if len(opts) == 1 {
			c.W.Error(ErrSyntax)
			return
		}
		switch arg := opts[1]; {
		case foldEqual(opts[0], "MATCH"):
			if len(arg) > maxPattern {
				c.W.Error(ErrPattern(arg))
				return
			}
			pattern = arg
		case foldEqual(opts[0], "TYPE"):
			kind = arg
		case foldEqual(opts[0], "COUNT"):
			if count, ok = limit.ParseUnits(arg); !ok || count == 0 {
				c.W.Error(ErrInvalid("count", arg, wantUnits))
				return
			}
		default:
			c.W.Error(ErrSyntax)
			return
		}
	}
	// The reply begins with how many keys there are, which is known at the
	// end: they are gathered aside.
	found := scanFound{pattern: pattern, kind: kind, w: resp.Writer{Proto: c.W.Proto}}
	step := int64(scanStep)
	if pattern != nil {
		step = int64(min(scanStep, max(1, scanStepWork/(maxPattern*(len(pattern)+1)))))
	}
	for left := count; left > 0 && len(found.w.B) < maxScanBytes && found.work < maxScanWork; left -= step {
		step = min(left, step)
		cursor = found.step(c.Tx, cursor, int(step))
		found.match()
		if cursor == 0 {
			break
		}
	}
	c.W.Array(2)
	c.W.BulkString(strconv.FormatUint(cursor, 10))
	c.W.Array(found.n)
	c.W.B = append(c.W.B, found.w.B...)
}

// scanFound takes the keys of one step after another. While a step is under
// way the lock of a shard is held, and others wait: keys are only copied then,
// and compared when it is over.
type scanFound struct {
	pattern []byte // nil: every key matches
	kind    []byte // nil: of every kind

	keys []byte // of the step, one after another
	ends []int  // where each of them ends

	w    resp.Writer // takes the keys that match
	n    int         // how many do
	work int         // bytes compared so far, and what else costs as much
}

// step walks on by about count keys and returns the next cursor.
func (f *scanFound) step(tx *engine.Tx, cursor uint64, count int) (next uint64) {
	seen := 0
	next = tx.Scan(cursor, count, func(key []byte, kind limit.Kind) {
		seen++
		if f.kind == nil || foldEqual(f.kind, kind.String()) {
			f.keys = append(f.keys, key...)
			f.ends = append(f.ends, len(f.keys))
		}
	})
	f.work += seen * scanKeyWork
	if seen < count {
		f.work += scanEmptyWork
	}
	return next
}

// match compares the keys of the step that is over.
func (f *scanFound) match() {
	start := 0
	for _, end := range f.ends {
		key := f.keys[start:end]
		start = end
		if f.pattern != nil {
			ok, work := globMatch(f.pattern, key)
			f.work += work
			if !ok {
				continue
			}
		}
		f.w.Bulk(key)
		f.n++
	}
	f.keys, f.ends = f.keys[:0], f.ends[:0]
}
