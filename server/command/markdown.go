package command

import (
	"fmt"
	"strings"
)

// Markdown is docs/commands.md: the whole table, for people.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Commands\n\n" +
		"Made from the command table (package server/command); a test compares the two.\n" +
		"Names and options are case-insensitive. `[x]` may be left out, `a | b` is a choice.\n")
	for _, name := range Groups {
		first := true
		for _, c := range commands.top {
			if c.Group != name {
				continue
			}
			if first {
				fmt.Fprintf(&b, "\n## %s\n", strings.ToUpper(name[:1])+name[1:])
				first = false
			}
			b.WriteString("\n### " + usage(c) + "\n\n" + about(c) + "\n")
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

// usage is a command as one types it.
func usage(c *Command) string {
	name := strings.ToUpper(strings.ReplaceAll(c.full, "|", " "))
	return strings.TrimSpace(name + " " + c.Syntax)
}

// about is what stands under a command's heading.
func about(c *Command) string {
	text := c.Summary + ".\n\nSince " + c.Since + "."
	if names := c.Flags.names(); len(names) > 0 {
		text += " Flags: " + strings.Join(names, ", ") + "."
	}
	return text
}
