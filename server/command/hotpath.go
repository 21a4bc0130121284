package command

import (
	"sync"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
	"github.com/stint-dev/stint/engine/store"
)

// This file is the way of a decision, from a command's words to its reply, in
// the order in which things happen: the session looks the name up and checks
// the number of words (Find); the store runs the batch (Execute); the command
// reads its arguments, has the engine decide, and appends the reply (throttle).
// Nothing on it allocates. Parsing comes before, in package resp and transport.

// Finder finds commands by name and remembers the last one, which is most often
// the next one too. It belongs to one connection; the zero value is ready.
type Finder struct {
	name [maxRemembered]byte // as it was sent last
	len  uint8               // 0: nothing is remembered
	last *Command            // no container
}

// maxRemembered is the length of the longest name that is remembered.
const maxRemembered = 15

// Find is the function Find, usually faster.
func (f *Finder) Find(args [][]byte) (*Command, string) {
	if len(args) > 0 && f.len > 0 && string(args[0]) == string(f.name[:f.len]) && f.last.takes(len(args)) {
		return f.last, ""
	}
	c, line := Find(args)
	if c != nil && c.outer == nil && c.Sub == nil && len(args[0]) <= maxRemembered {
		f.len = uint8(copy(f.name[:], args[0]))
		f.last = c
	}
	return c, line
}

// Find returns the command that args call, which may be empty, or nil and the
// line of the error to reply: unknown, or of wrong arity. It does not allocate
// unless there is an error to tell.
func Find(args [][]byte) (*Command, string) {
	if len(args) == 0 {
		return nil, ErrUnknown(args)
	}
	c := commands.find(args[0])
	if c == nil {
		return nil, ErrUnknown(args)
	}
	if c.Sub != nil && (len(args) > 1 || c.Conn == nil) {
		if len(args) == 1 {
			return nil, ErrArity(c.full)
		}
		outer := c
		if c = outer.sub(args[1]); c == nil {
			return nil, ErrUnknownSub(outer.Name, args[1])
		}
	}
	if !c.takes(len(args)) {
		return nil, ErrArity(c.full)
	}
	return c, ""
}

// Executor runs store commands by the table: it is what a store.Store is made
// with. The zero value is ready; any number of goroutines may use one.
type Executor struct {
	// Failed, if not nil, is told of each command that replied an error: its
	// index, and the reply. It runs on the goroutine of the batch.
	Failed func(cmd int32, reply []byte)

	// Debug allows DEBUG STAMP.
	Debug bool

	share *Fallback

	// A Ctx goes through a function value and so cannot stay on the stack:
	// the pool spares an allocation for each batch.
	pool sync.Pool
}

var _ store.Executor = (*Executor)(nil)

// Execute runs the requests on tx, in order, and appends their replies to out.
// The Cmd of each is the Index of a store command that Find returned for its
// Args; for anything else the reply is an error.
func (e *Executor) Execute(tx *engine.Tx, requests []store.Request, out []byte) []byte {
	c, _ := e.pool.Get().(*Ctx)
	if c == nil {
		c = new(Ctx)
	}
	c.Tx, c.W.B, c.Debug, c.share = tx, out, e.Debug, e.share
	ahead := 0 // requests before it have been announced, if there is a use for it
	for i := range requests {
		if i >= ahead && i+1 < len(requests) {
			ahead = i + c.announce(requests[i:])
		}
		r, before := &requests[i], len(c.W.B)
		c.Args, c.DB, c.W.Proto = r.Args, r.DB, r.Proto
		if uint(r.Cmd) < uint(len(commands.all)) && commands.all[r.Cmd].Run != nil {
			tx.Select(r.DB)
			commands.all[r.Cmd].Run(c)
		} else {
			c.W.Error(ErrInternal)
		}
		// One byte tells errors, which are rare: whatever else they cost they
		// cost alone.
		if len(c.W.B) > before && c.W.B[before] == '-' && e.Failed != nil {
			e.Failed(r.Cmd, c.W.B[before:])
		}
	}
	out = c.W.B
	// Nothing of the batch may be kept alive by the pool.
	*c = Ctx{}
	e.pool.Put(c)
	return out
}

// announce tells the transaction the keys of the requests that come first, as
// long as each is of one key in the same database, and returns how many requests
// these are, at least one: the next that is not among them may be tried again.
func (c *Ctx) announce(requests []store.Request) int {
	var keys [engine.MaxAhead][]byte
	n := 0
	for ; n < len(requests) && n < len(keys) && requests[n].DB == requests[0].DB; n++ {
		r := &requests[n]
		if uint(r.Cmd) >= uint(len(commands.all)) || !commands.all[r.Cmd].oneKey() || len(r.Args) < 2 {
			break
		}
		keys[n] = r.Args[1]
	}
	if n < 2 {
		return max(n, 1)
	}
	c.Tx.Select(requests[0].DB)
	return c.Tx.Ahead(keys[:n])
}

func throttle(c *Ctx) {
	if !c.key(c.Args[1]) {
		return
	}
	l, ok := c.bucketLimit(c.Args[2], c.Args[3])
	if !ok {
		return
	}
	cost, opts, ok := int64(1), option(0), true
	if len(c.Args) > 4 {
		if cost, opts, ok = c.tail(c.Args[4:], optModes); !ok {
			return
		}
	}
	if c.share != nil {
		l = c.share.bucket(c, limit.KindBucket, l)
	}
	c.decision(c.Tx.Throttle(c.Args[1], l, cost, opts.mode()))
}

// key reads a key, replying the error itself.
func (c *Ctx) key(arg []byte) bool {
	if len(arg) == 0 || len(arg) > engine.MaxKey {
		c.W.Error(ErrKey(arg))
		return false
	}
	return true
}

// bucketLimit reads capacity and rate, replying the error itself. A pipeline
// mostly repeats them: what was read last is compared, which is cheaper.
func (c *Ctx) bucketLimit(capacity, rate []byte) (l limit.BucketLimit, ok bool) {
	if c.bucket.Capacity > 0 && string(capacity) == string(c.capacity) && string(rate) == string(c.rate) {
		return c.bucket, true
	}
	if l.Capacity, ok = limit.ParseUnits(capacity); !ok || l.Capacity == 0 {
		c.W.Error(ErrCapacity(capacity))
		return l, false
	}
	if l.Rate, ok = limit.ParseRate(rate); !ok {
		c.W.Error(ErrRate(rate))
		return l, false
	}
	if l.Check() != nil {
		c.W.Error(ErrFill(capacity, rate))
		return l, false
	}
	c.capacity, c.rate, c.bucket = capacity, rate, l
	return l, true
}

// decision replies the five integers of a decision, or its error.
func (c *Ctx) decision(r limit.Result, err error) {
	if err != nil {
		c.W.Error(decisionError(err))
		return
	}
	c.W.Ints5(r.Allowed, r.Limit, r.Remaining, r.WaitMs, r.ResetMs)
}
