package command

import (
	"slices"
	"strings"

	"github.com/stint-dev/stint/server/resp"
)

// Param is one setting as CONFIG shows it.
type Param struct {
	Name string        // lower case, as Redis calls it where Redis has it
	Flag string        // of the command line that gives it, without dashes; "" if none does
	Get  func() string // the value now

	// Set checks a new value and returns what puts it into force, or an error
	// that says what is allowed. nil: it cannot be changed while running.
	Set func(value string) (apply func(), err error)
}

// Config is the settings that CONFIG GET and SET know, sorted by name. It is
// filled with Add before the first connection and only read from then on.
type Config struct {
	params []Param
}

// Add puts settings in; one of the same name is replaced.
func (c *Config) Add(params ...Param) {
	for _, p := range params {
		i, found := c.search(p.Name)
		if found {
			c.params[i] = p
			continue
		}
		c.params = slices.Insert(c.params, i, p)
	}
}

// AddFixed puts in a setting whose value never changes.
func (c *Config) AddFixed(name, value string) {
	c.Add(Param{Name: name, Get: func() string { return value }})
}

func (c *Config) search(name string) (int, bool) {
	return slices.BinarySearchFunc(c.params, name, func(p Param, name string) int {
		return strings.Compare(p.Name, name)
	})
}

// find returns the setting called name in any case.
func (c *Config) find(name []byte) (Param, bool) {
	for _, p := range c.params {
		if foldEqual(name, p.Name) {
			return p, true
		}
	}
	return Param{}, false
}

// configCommands is CONFIG.
var configCommands = []Command{{
	Name: "config", Group: "server", Since: "0.1.0",
	Syntax:  "subcommand [argument ...]",
	Summary: "The server's settings",
	Arity:   -2,
	Sub: []Command{
		{
			Name: "get", Group: "server", Since: "0.1.0", Syntax: "pattern [pattern ...]",
			Summary: "Replies the settings whose names match one of the patterns", Arity: -3, Flags: Admin, Conn: configGet,
		},
		{
			Name: "set", Group: "server", Since: "0.1.0", Syntax: "parameter value [parameter value ...]",
			Summary: "Changes settings while the server runs, all of them or none", Arity: -4, Flags: Admin, Conn: configSet,
		},
		{
			Name: "resetstat", Group: "server", Since: "0.1.0",
			Summary: "Sets the counters of INFO to 0", Arity: 2, Flags: Admin, Conn: resetStat,
		},
	},
}}

func configGet(c *ConnCtx) {
	left := maxPattern
	for _, pattern := range c.Args[2:] {
		if left -= max(len(pattern), 1); left < 0 {
			c.W.Error(ErrPattern(pattern))
			return
		}
	}
	var found []Param
	for _, p := range c.Server.Config.params {
		for _, pattern := range c.Args[2:] {
			if globMatchFold(pattern, p.Name) {
				found = append(found, p)
				break
			}
		}
	}
	c.W.Map(len(found))
	for _, p := range found {
		c.W.BulkString(p.Name)
		c.W.BulkString(p.Get())
	}
}

// configSet checks every value before it applies the first one.
func configSet(c *ConnCtx) {
	pairs := c.Args[2:]
	if len(pairs)%2 != 0 {
		c.W.Error(ErrArity("config|set"))
		return
	}
	failed := func(name, why string) {
		c.W.Error("ERR CONFIG SET failed (possibly related to argument '" + name + "') - " + why)
	}
	seen := map[string]bool{}
	var apply []func()
	for ; len(pairs) > 0; pairs = pairs[2:] {
		p, ok := c.Server.Config.find(pairs[0])
		switch {
		case !ok:
			c.W.Error("ERR Unknown option or number of arguments for CONFIG SET - " + resp.Quote(pairs[0]))
			return
		case seen[p.Name]:
			failed(p.Name, "duplicate parameter")
			return
		case p.Set == nil:
			failed(p.Name, immutable(p))
			return
		}
		seen[p.Name] = true
		f, err := p.Set(string(pairs[1]))
		if err != nil {
			failed(p.Name, err.Error())
			return
		}
		apply = append(apply, f)
	}
	for _, f := range apply {
		f()
	}
	c.W.OK()
}

// immutable says in Redis's words that a setting cannot be changed while the
// server runs, and in ours what can be done.
func immutable(p Param) string {
	text := "can't set immutable config"
	if p.Flag != "" {
		text += ": restart stint with --" + p.Flag
	}
	return text
}

func resetStat(c *ConnCtx) {
	c.Server.Counters.reset()
	c.Server.usage.reset()
	c.Server.errors.reset()
	if c.Server.ResetTraffic != nil {
		c.Server.ResetTraffic()
	}
	c.W.OK()
}
