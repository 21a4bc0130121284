package command

import (
	"errors"

	"github.com/stint-dev/stint/engine/limit"
)

// limiterCommands decide on buckets. windowCommands, which decide on windows,
// read their options the same way.
var limiterCommands = []Command{
	{
		Name: "throttle", Group: "limiter", Since: "0.1.0", Arity: -4,
		Flags: Write | DenyOOM | Fast, FirstKey: 1, LastKey: 1, Step: 1,
		Syntax:  "key capacity rate [cost] [PEEK | FORCE | ATMOST]",
		Summary: "Takes cost units (default 1) from a token bucket that holds capacity and refills at rate",
		Run:     throttle,
	},
	{
		Name: "leak", Group: "limiter", Since: "0.1.0", Arity: -4,
		Flags: Write | DenyOOM | Fast, FirstKey: 1, LastKey: 1, Step: 1,
		Syntax:  "key capacity rate [cost] [PEEK]",
		Summary: "Queues cost units (default 1) in a leaky bucket and tells how long to hold the request back",
		Run:     leak,
	},
	{
		Name: "refund", Group: "limiter", Since: "0.1.0", Arity: 3,
		Flags: Write | Fast, FirstKey: 1, LastKey: 1, Step: 1,
		Syntax:  "key units",
		Summary: "Gives units back to a limiter of any kind, never beyond full",
		Run:     refund,
	},
	{
		Name: "cl.throttle", Group: "limiter", Since: "0.1.0", Arity: -5,
		Flags: Write | DenyOOM | Fast, FirstKey: 1, LastKey: 1, Step: 1,
		Syntax:  "key max_burst count period [quantity]",
		Summary: "Decides on the same token bucket with the arguments and the reply of redis-cell",
		Run:     clThrottle,
	},
	{
		Name: "inspect", Group: "limiter", Since: "0.1.0", Arity: 2,
		Flags: ReadOnly | Fast, FirstKey: 1, LastKey: 1, Step: 1,
		Syntax:  "key",
		Summary: "Shows the limit a key remembers and how much of it is used, changing nothing",
		Run:     inspect,
	},
}

// option is a word after the positional arguments.
type option uint8

const (
	optPeek option = 1 << iota
	optForce
	optAtMost
	optFixed
	optSliding
	optLog
)

// optionWords are the options in the order in which errors list them.
var optionWords = []struct {
	opt  option
	word string
}{
	{optFixed, "FIXED"}, {optSliding, "SLIDING"}, {optLog, "LOG"},
	{optPeek, "PEEK"}, {optForce, "FORCE"}, {optAtMost, "ATMOST"},
}

// Groups of options of which a call may have one.
const (
	optModes   = optPeek | optForce | optAtMost
	optWindows = optFixed | optSliding | optLog
)

// parseOption finds the option that arg is, 0 if none.
func parseOption(arg []byte) option {
	for i := range optionWords {
		if foldEqual(arg, optionWords[i].word) {
			return optionWords[i].opt
		}
	}
	return 0
}

// word is the name of a single option.
func (o option) word() string {
	for _, w := range optionWords {
		if w.opt == o {
			return w.word
		}
	}
	return ""
}

// list names the options as "PEEK, FORCE or ATMOST".
func (o option) list() string {
	var words []string
	for _, w := range optionWords {
		if o&w.opt != 0 {
			words = append(words, w.word)
		}
	}
	s := words[0]
	for i, w := range words[1:] {
		if i == len(words)-2 {
			s += " or " + w
		} else {
			s += ", " + w
		}
	}
	return s
}

// tail reads [cost] and the options that stand after it. It replies the error
// itself and returns false if there is one.
func (c *Ctx) tail(args [][]byte, known option) (cost int64, opts option, ok bool) {
	cost = 1
	for i, arg := range args {
		opt := parseOption(arg)
		if opt == 0 && i == 0 {
			if cost, ok = limit.ParseUnits(arg); ok {
				continue
			}
			// A word is more likely a mistyped option than a cost.
			if len(arg) == 0 || !isLetter(arg[0]) {
				c.W.Error(ErrCost(arg))
				return 0, 0, false
			}
		}
		if opt&known == 0 {
			c.W.Error(ErrOption(arg, known.list()))
			return 0, 0, false
		}
		if opts&opt != 0 {
			c.W.Error(ErrOptionTwice(opt.word()))
			return 0, 0, false
		}
		for _, group := range [...]option{optModes, optWindows} {
			if opt&group != 0 && opts&group != 0 {
				c.W.Error(ErrOptionsExclude((opts & group).word(), opt.word()))
				return 0, 0, false
			}
		}
		opts |= opt
	}
	return cost, opts, true
}

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

// mode is the option's word for the engine.
func (o option) mode() limit.Mode {
	switch o & optModes {
	case optPeek:
		return limit.Peek
	case optForce:
		return limit.Force
	case optAtMost:
		return limit.AtMost
	}
	return limit.Consume
}

func decisionError(err error) string {
	if errors.Is(err, limit.ErrLogFull) {
		return ErrLogFull
	}
	return ErrEngine(err)
}

func leak(c *Ctx) {
	if !c.key(c.Args[1]) {
		return
	}
	l, ok := c.bucketLimit(c.Args[2], c.Args[3])
	if !ok {
		return
	}
	cost, opts, ok := c.tail(c.Args[4:], optPeek)
	if !ok {
		return
	}
	if c.share != nil {
		l = c.share.bucket(c, limit.KindLeak, l)
	}
	c.decision(c.Tx.Leak(c.Args[1], l, cost, opts.mode()))
}

func refund(c *Ctx) {
	if !c.key(c.Args[1]) {
		return
	}
	units, ok := limit.ParseUnits(c.Args[2])
	if !ok {
		c.W.Error(ErrUnits(c.Args[2]))
		return
	}
	c.decision(c.Tx.Refund(c.Args[1], units))
}

// Bounds of CL.THROTTLE. maxBurst leaves room for the one unit that redis-cell
// adds to it; maxSeconds is the longest period whose nanoseconds fit.
const (
	maxBurst   = limit.MaxUnits - 1
	maxSeconds = 9_223_372_036
)

func clThrottle(c *Ctx) {
	if len(c.Args) > 6 {
		c.W.Error(ErrArity("cl.throttle"))
		return
	}
	if !c.key(c.Args[1]) {
		return
	}
	burst, ok := limit.ParseUnits(c.Args[2])
	if !ok || burst > maxBurst {
		c.W.Error(ErrInvalid("max_burst", c.Args[2], wantBurst))
		return
	}
	count, ok := limit.ParseUnits(c.Args[3])
	if !ok || count == 0 {
		c.W.Error(ErrInvalid("count", c.Args[3], wantUnits))
		return
	}
	seconds, ok := limit.ParseUnits(c.Args[4])
	if !ok || seconds == 0 || seconds > maxSeconds {
		c.W.Error(ErrInvalid("period", c.Args[4], wantSeconds))
		return
	}
	quantity := int64(1)
	if len(c.Args) == 6 {
		if quantity, ok = limit.ParseUnits(c.Args[5]); !ok {
			c.W.Error(ErrInvalid("quantity", c.Args[5], wantCost))
			return
		}
	}
	l := limit.BucketLimit{
		Capacity: burst + 1,
		Rate:     limit.Rate{Count: count, Period: seconds * 1_000_000_000},
	}
	if l.Check() != nil {
		c.W.Error(ErrFillSeconds(c.Args[2], c.Args[3], c.Args[4]))
		return
	}
	if c.share != nil {
		l = c.share.bucket(c, limit.KindBucket, l)
	}
	r, err := c.Tx.Throttle(c.Args[1], l, quantity, limit.Consume)
	if err != nil {
		c.W.Error(decisionError(err))
		return
	}
	retry := int64(-1)
	if r.Allowed == 0 && r.WaitMs >= 0 {
		retry = ceilSeconds(r.WaitMs)
	}
	c.W.Ints5(1-r.Allowed, r.Limit, r.Remaining, retry, ceilSeconds(r.ResetMs))
}

// ceilSeconds rounds up. Rounding milliseconds that were rounded up gives what
// rounding the nanoseconds would.
func ceilSeconds(ms int64) int64 { return (ms + 999) / 1000 }

func inspect(c *Ctx) {
	if !c.key(c.Args[1]) {
		return
	}
	i, ok := c.Tx.Inspect(c.Args[1])
	if !ok {
		c.W.Null()
		return
	}
	fields := 6
	if i.Kind == limit.KindLog {
		fields++
	}
	c.W.Map(fields)
	c.W.BulkString("kind")
	c.W.BulkString(i.Kind.String())
	c.W.BulkString("limit")
	c.W.Int(i.Limit.A)
	switch i.Kind {
	case limit.KindBucket, limit.KindLeak:
		c.W.BulkString("rate")
		c.W.BulkString(limit.Rate{Count: i.Limit.B, Period: i.Limit.C}.String())
	default:
		c.W.BulkString("period")
		c.W.BulkString(limit.PeriodString(i.Limit.C))
	}
	c.W.BulkString("used")
	c.W.Int(i.Used)
	c.W.BulkString("remaining")
	c.W.Int(i.Remaining)
	c.W.BulkString("reset_ms")
	c.W.Int(i.ResetMs)
	if i.Kind == limit.KindLog {
		c.W.BulkString("entries")
		c.W.Int(int64(i.Entries))
	}
}
