package command

import (
	"strconv"

	"github.com/stint-dev/stint/engine/limit"
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

// Bounds of one SCAN, whose count is a hint: how many places it looks at, and
// after how many bytes of keys it lets the client go on with the next. Between
// two looks at the bytes there are scanStep places.
const (
	maxScanCount = 1 << 20
	maxScanBytes = 1 << 20
	scanStep     = 256
)

func scan(c *Ctx) {
	cursor, err := strconv.ParseUint(string(c.Args[1]), 10, 64)
	if err != nil {
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
			pattern = arg
		case foldEqual(opts[0], "TYPE"):
			kind = arg
		case foldEqual(opts[0], "COUNT"):
			var ok bool
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
	keys := c.W
	keys.B = nil
	n := 0
	visit := func(key []byte, k limit.Kind) {
		if kind != nil && !foldEqual(kind, k.String()) {
			return
		}
		if pattern != nil && !globMatch(pattern, key) {
			return
		}
		keys.Bulk(key)
		n++
	}
	for left := min(count, maxScanCount); left > 0 && len(keys.B) < maxScanBytes; left -= scanStep {
		if cursor = c.Tx.Scan(cursor, int(min(left, scanStep)), visit); cursor == 0 {
			break
		}
	}
	c.W.Array(2)
	c.W.BulkString(strconv.FormatUint(cursor, 10))
	c.W.Array(n)
	c.W.B = append(c.W.B, keys.B...)
}
