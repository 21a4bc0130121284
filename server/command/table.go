package command

import (
	"math/bits"
	"strings"
)

// maxName is the length of the longest name a lookup considers.
const maxName = 32

// table finds commands by name. It is filled once, before main, and only read
// from then on.
type table struct {
	all   []*Command // every command and subcommand; the position is its index
	top   []*Command // those that are no subcommands, in the table's order
	slots []*Command // open addressing by hash; at most half full
	shift uint       // the hash's upper bits say where to begin
}

// commands is the table. It is filled by init and not by an initializer
// because some commands describe the table themselves.
var commands table

func init() {
	commands = newTable(
		limiterCommands,
		windowCommands,
		keyCommands,
		scanCommands,
		connectionCommands,
		clientCommands,
		describeCommands,
		infoCommands,
		configCommands,
		slowlogCommands,
		latencyCommands,
		adminCommands,
		clusterCommands,
		raftCommands,
	)
}

// newTable makes the table of the families given. It panics when two commands
// share a name: that is a fault of the program, not of a user.
func newTable(families ...[]Command) table {
	var t table
	for _, family := range families {
		for i := range family {
			c := &family[i]
			t.add(c, nil)
			t.top = append(t.top, c)
			if c.Sub == nil {
				continue
			}
			c.Sub = append(c.Sub, helpOf(c))
			for j := range c.Sub {
				t.add(&c.Sub[j], c)
			}
		}
	}
	// Twice the names, rounded up to a power of two: probes stay short and
	// always meet an empty slot.
	size := bits.Len(uint(2*len(t.top) + 1))
	t.slots = make([]*Command, 1<<size)
	t.shift = uint(64 - size)
	for _, c := range t.top {
		i := hashName([]byte(c.Name)) >> t.shift
		for t.slots[i] != nil {
			if t.slots[i].Name == c.Name {
				panic("command: two commands are called " + c.Name)
			}
			i = (i + 1) & uint64(len(t.slots)-1)
		}
		t.slots[i] = c
	}
	return t
}

// add gives the command its number and its full name.
func (t *table) add(c, outer *Command) {
	c.index = int32(len(t.all))
	c.outer = outer
	c.full = c.Name
	if outer != nil {
		c.full = outer.Name + "|" + c.Name
	}
	t.all = append(t.all, c)
}

// hashName spreads names over 64 bits (FNV-1a, then a multiplication that
// brings the differences into the upper bits). Names are short and known, so
// nobody can choose them to collide.
func hashName(name []byte) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, b := range name {
		h = (h ^ uint64(b)) * 0x100000001b3
	}
	return h * 0x9e3779b97f4a7c15
}

// find returns the command called name in any case, nil if there is none.
func (t *table) find(name []byte) *Command {
	if len(name) > maxName {
		return nil
	}
	var room [maxName]byte
	lower := room[:len(name)]
	for i, b := range name {
		lower[i] = lowerByte(b)
	}
	for i := hashName(lower) >> t.shift; ; i = (i + 1) & uint64(len(t.slots)-1) {
		c := t.slots[i]
		if c == nil || c.Name == string(lower) {
			return c
		}
	}
}

// sub returns the subcommand called name in any case, nil if there is none.
func (c *Command) sub(name []byte) *Command {
	for i := range c.Sub {
		if foldEqual(name, c.Sub[i].Name) {
			return &c.Sub[i]
		}
	}
	return nil
}

// At returns the command with the number that Index gave.
func At(index int32) *Command { return commands.all[index] }

// helpOf makes the subcommand HELP of a container: one line for each of its
// subcommands.
func helpOf(outer *Command) Command {
	subs := outer.Sub
	return Command{
		Name: "help", Group: outer.Group, Summary: "Lists the subcommands", Since: outer.Since,
		Arity: 2, Flags: Fast,
		Conn: func(c *ConnCtx) {
			c.W.Array(1 + 2*len(subs))
			c.W.Simple(strings.ToUpper(outer.Name) + " <subcommand> [<arg> ...]. Subcommands are:")
			for i := range subs {
				c.W.Simple(strings.TrimSpace(strings.ToUpper(subs[i].Name) + " " + subs[i].Syntax))
				c.W.Simple("    " + subs[i].Summary + ".")
			}
		},
	}
}
