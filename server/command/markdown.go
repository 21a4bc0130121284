package command

import (
	"fmt"
	"slices"
	"strings"
)

// decisionOrder is how the documentation lists the commands of a limiter: those
// that decide, what takes a decision back, the compatible one, the one that
// only looks. Commands of the group that are not named here come after them.
var decisionOrder = []string{"throttle", "leak", "window", "refund", "cl.throttle", "inspect"}

// flagMeanings explains the flags in the order of the bits.
var flagMeanings = []struct {
	flag Flags
	text string
}{
	{Write, "may change what a key holds"},
	{ReadOnly, "only reads keys"},
	{DenyOOM, "may need memory, and is refused with OOM when it does and `--max-memory` leaves none"},
	{Admin, "is about the server as a whole, not about a key"},
	{Fast, "takes the same short time however many keys there are"},
	{NoAuth, "runs before the connection has given its password"},
	{Slow, "may take longer the more keys there are"},
}

// Markdown is docs/commands.md: the whole table, for people.
func Markdown() string {
	var b strings.Builder
	since := commands.top[0].Since
	b.WriteString("# Commands\n\n" +
		"Every command with its syntax. How limits, rates and keys are written, what the replies mean, with\n" +
		"examples, and which errors there are is in [limits.md](limits.md).\n\n" +
		"Names and options are case-insensitive. `[x]` may be left out, `a | b` is a choice.\n" +
		"A key is *as new* when nothing it ever counted counts any more: its bucket is full, its queue or its\n" +
		"window empty. It then holds nothing for any command, and the next decision on it is like the first.\n\n" +
		"Every command is there since " + since + " unless it says otherwise. The flags are those that `COMMAND INFO`\n" +
		"replies:\n\n")
	for _, f := range flagMeanings {
		fmt.Fprintf(&b, "- `%s`: %s.\n", f.flag.names()[0], f.text)
	}
	b.WriteString("\nThis file is made from the command table (package server/command) by `make docs`; a test compares the\ntwo.\n")
	for _, name := range Groups {
		fmt.Fprintf(&b, "\n## %s\n", strings.ToUpper(name[:1])+name[1:])
		for _, c := range documentedOrder(name) {
			b.WriteString("\n### " + usage(c) + "\n\n" + about(c, since) + "\n")
			if c.Sub == nil {
				continue
			}
			b.WriteString("\n")
			for i := range c.Sub {
				sub := &c.Sub[i]
				fmt.Fprintf(&b, "- `%s`: %s.\n", usage(sub), sub.Summary)
			}
		}
	}
	return b.String()
}

// documentedOrder lists the commands of a group: those of decisionOrder first,
// the others as they stand in the table.
func documentedOrder(group string) []*Command {
	var list []*Command
	for _, c := range commands.top {
		if c.Group == group {
			list = append(list, c)
		}
	}
	rank := func(c *Command) int {
		if i := slices.Index(decisionOrder, c.Name); i >= 0 {
			return i
		}
		return len(decisionOrder)
	}
	slices.SortStableFunc(list, func(a, b *Command) int { return rank(a) - rank(b) })
	return list
}

// usage is a command as one types it.
func usage(c *Command) string {
	name := strings.ToUpper(strings.ReplaceAll(c.full, "|", " "))
	return strings.TrimSpace(name + " " + c.Syntax)
}

// about is what stands under a command's heading. since is the version that
// needs no mention.
func about(c *Command, since string) string {
	text := c.Summary + "."
	if c.Since != since {
		text += " Since " + c.Since + "."
	}
	if names := c.Flags.names(); len(names) > 0 {
		text += "\n\nFlags: " + strings.Join(names, ", ") + "."
	}
	return text
}
