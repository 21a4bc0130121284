package command

import (
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/server/resp"
)

// describeCommands is COMMAND: the table, as clients read it.
var describeCommands = []Command{{
	Name: "command", Group: "server", Since: "0.1.0",
	Syntax:  "[subcommand [argument ...]]",
	Summary: "Replies the table of commands",
	Arity:   -1,
	Conn:    func(c *ConnCtx) { describeAll(&c.W) },
	Sub: []Command{
		{
			Name: "count", Group: "server", Since: "0.1.0",
			Summary: "Replies how many commands there are", Arity: 2, Flags: Fast,
			Conn: func(c *ConnCtx) { c.W.Int(int64(len(commands.top))) },
		},
		{
			Name: "info", Group: "server", Since: "0.1.0", Syntax: "[command-name ...]",
			Summary: "Replies the rows of the commands named, of all if none is", Arity: -2, Conn: commandInfo,
		},
		{
			Name: "docs", Group: "server", Since: "0.1.0", Syntax: "[command-name ...]",
			Summary: "Replies what the commands named are for, all if none is", Arity: -2, Conn: commandDocs,
		},
		{
			Name: "list", Group: "server", Since: "0.1.0", Syntax: "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
			Summary: "Replies the names of the commands", Arity: -2, Conn: commandList,
		},
		{
			Name: "getkeys", Group: "server", Since: "0.1.0", Syntax: "command [argument ...]",
			Summary: "Replies the keys in a command", Arity: -3, Conn: commandGetKeys,
		},
	},
}}

func describeAll(w *resp.Writer) {
	w.Array(len(commands.top))
	for _, c := range commands.top {
		describe(w, c)
	}
}

// describe writes the ten fields of a command: name, arity, flags, first key,
// last key, step, categories, tips, key specifications, subcommands.
func describe(w *resp.Writer, c *Command) {
	w.Array(10)
	w.BulkString(c.full)
	w.Int(int64(c.Arity))
	words(w, c.Flags.names())
	w.Int(int64(c.FirstKey))
	w.Int(int64(c.LastKey))
	w.Int(int64(c.Step))
	words(w, c.categories())
	w.Array(0)
	keySpecs(w, c)
	w.Array(len(c.Sub))
	for i := range c.Sub {
		describe(w, &c.Sub[i])
	}
}

// words writes a set of status lines.
func words(w *resp.Writer, list []string) {
	w.Set(len(list))
	for _, word := range list {
		w.Simple(word)
	}
}

// categories are the command's groups as access lists call them.
func (c *Command) categories() []string {
	var out []string
	add := func(when bool, name string) {
		if when {
			out = append(out, name)
		}
	}
	add(c.Group == "limiter", "@limiter")
	add(c.Group == "keys", "@keyspace")
	add(c.Group == "connection", "@connection")
	add(c.Flags&Write != 0, "@write")
	add(c.Flags&ReadOnly != 0, "@read")
	add(c.Flags&Admin != 0, "@admin")
	add(c.Flags&Admin != 0, "@dangerous")
	add(c.Flags&Fast != 0, "@fast")
	add(c.Flags&Fast == 0, "@slow")
	return out
}

// keySpecs writes where the keys are in the form that Redis 7 brought: where
// to begin and how to go on.
func keySpecs(w *resp.Writer, c *Command) {
	if c.FirstKey == 0 {
		w.Array(0)
		return
	}
	access := []string{"RO", "access"}
	if c.Flags&Write != 0 {
		access = []string{"RW", "access", "update"}
	}
	// The last key counts from the first one here, unless from the end.
	last := c.LastKey
	if last > 0 {
		last -= c.FirstKey
	}
	w.Array(1)
	w.Map(3)
	w.BulkString("flags")
	words(w, access)
	w.BulkString("begin_search")
	w.Map(2)
	w.BulkString("type")
	w.BulkString("index")
	w.BulkString("spec")
	w.Map(1)
	w.BulkString("index")
	w.Int(int64(c.FirstKey))
	w.BulkString("find_keys")
	w.Map(2)
	w.BulkString("type")
	w.BulkString("range")
	w.BulkString("spec")
	w.Map(3)
	w.BulkString("lastkey")
	w.Int(int64(last))
	w.BulkString("keystep")
	w.Int(int64(c.Step))
	w.BulkString("limit")
	w.Int(0)
}

// findFull returns the command of a name such as client or client|id, nil if
// there is none.
func findFull(name []byte) *Command {
	outer, inner, two := strings.Cut(string(name), "|")
	c := commands.find([]byte(outer))
	if c != nil && two {
		c = c.sub([]byte(inner))
	}
	return c
}

// maxNames bounds how many commands one call may ask about: a name of a few
// bytes asks for kilobytes.
const maxNames = 1024

// tooMany replies an error if there are more than maxNames.
func tooMany(c *ConnCtx, names [][]byte) bool {
	if len(names) > maxNames {
		c.W.Error("ERR too many command names: want at most " + strconv.Itoa(maxNames))
		return true
	}
	return false
}

func commandInfo(c *ConnCtx) {
	names := c.Args[2:]
	if tooMany(c, names) {
		return
	}
	if len(names) == 0 {
		describeAll(&c.W)
		return
	}
	c.W.Array(len(names))
	for _, name := range names {
		if found := findFull(name); found != nil {
			describe(&c.W, found)
		} else {
			c.W.NullArray()
		}
	}
}

func commandDocs(c *ConnCtx) {
	list := commands.top
	if tooMany(c, c.Args[2:]) {
		return
	}
	if names := c.Args[2:]; len(names) > 0 {
		list = nil
		for _, name := range names {
			found := findFull(name)
			if found != nil && !slices.Contains(list, found) {
				list = append(list, found)
			}
		}
	}
	c.W.Map(len(list))
	for _, found := range list {
		c.W.BulkString(found.full)
		document(&c.W, found)
	}
}

// document writes what a command is for, as COMMAND DOCS replies it.
func document(w *resp.Writer, c *Command) {
	args := parseSyntax(c.Syntax)
	n := 3
	if len(args) > 0 && c.Sub == nil {
		n++
	}
	if len(c.Sub) > 0 {
		n++
	}
	w.Map(n)
	w.BulkString("summary")
	w.BulkString(c.Summary)
	w.BulkString("since")
	w.BulkString(c.Since)
	w.BulkString("group")
	w.BulkString(c.Group)
	if len(args) > 0 && c.Sub == nil {
		w.BulkString("arguments")
		writeArguments(w, args)
	}
	if len(c.Sub) > 0 {
		w.BulkString("subcommands")
		w.Map(len(c.Sub))
		for i := range c.Sub {
			w.BulkString(c.Sub[i].full)
			document(w, &c.Sub[i])
		}
	}
}

func commandList(c *ConnCtx) {
	args := c.Args[2:]
	keep := func(*Command) bool { return true }
	switch {
	case len(args) == 0:
	case len(args) != 3 || !foldEqual(args[0], "FILTERBY"):
		c.W.Error(ErrSyntax)
		return
	case foldEqual(args[1], "MODULE"):
		keep = func(*Command) bool { return false }
	case foldEqual(args[1], "ACLCAT"):
		keep = func(c *Command) bool {
			return slices.ContainsFunc(c.categories(), func(name string) bool { return foldEqual(args[2], name[1:]) })
		}
	case foldEqual(args[1], "PATTERN"):
		if len(args[2]) > maxPattern {
			c.W.Error(ErrPattern(args[2]))
			return
		}
		keep = func(c *Command) bool { return globMatchFold(args[2], c.full) }
	default:
		c.W.Error(ErrSyntax)
		return
	}
	var found []*Command
	for _, cmd := range commands.all {
		if keep(cmd) && (len(args) > 0 || cmd.outer == nil) {
			found = append(found, cmd)
		}
	}
	c.W.Array(len(found))
	for _, cmd := range found {
		c.W.BulkString(cmd.full)
	}
}

// Errors of COMMAND GETKEYS, in Redis's words.
const (
	errKeysInvalid = "ERR Invalid command specified"
	errKeysArity   = "ERR Invalid number of arguments specified for command"
	errKeysNone    = "ERR The command has no key arguments"
)

func commandGetKeys(c *ConnCtx) {
	args := c.Args[2:]
	cmd := commands.find(args[0])
	if cmd != nil && cmd.Sub != nil && len(args) > 1 {
		cmd = cmd.sub(args[1])
	}
	switch {
	case cmd == nil:
		c.W.Error(errKeysInvalid)
	case cmd.FirstKey == 0:
		c.W.Error(errKeysNone)
	case !cmd.takes(len(args)):
		c.W.Error(errKeysArity)
	default:
		first, last, step := cmd.keyRange(len(args))
		c.W.Array((last-first)/step + 1)
		for i := first; i <= last; i += step {
			c.W.Bulk(args[i])
		}
	}
}

// keyRange says where the keys of the command stand among n words. It is for
// commands that have keys, with a count of words that suits the arity, so that
// there is at least one.
func (c *Command) keyRange(n int) (first, last, step int) {
	last = c.LastKey
	if last < 0 {
		last += n
	}
	return c.FirstKey, last, c.Step
}
