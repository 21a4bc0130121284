package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// helpWidth is where lines of the help are broken, in columns.
const helpWidth = 96

// examples end the help of the server.
const examples = `Examples:
  stint                                          on 127.0.0.1:6390, state in ./stint-data
  stint --addr 0.0.0.0:6390 --requirepass-file /etc/stint/password
  stint --addr unix:/run/stint.sock --durability none
  STINT_MAX_MEMORY=512MiB stint --config /etc/stint.yaml
  stint backup --dir /var/lib/stint /backup/state.db

Sizes are bytes or have a unit: 512MiB (2^20), 1GB (10^9). Durations have a unit: 250ms, 30s,
1h; a plain number is seconds. Every flag can be set by the variable named after it, or as a
key of the --config file: --max-clients is STINT_MAX_CLIENTS, and max-clients: 100 in the file.

Exit codes: 0 stopped in order, 1 failure, 2 wrong flag, variable or file.
`

// printHelp is the kong.HelpPrinter: the whole server's help for "stint
// --help" and "stint serve --help", a command's own for the others.
func printHelp(_ kong.HelpOptions, ctx *kong.Context) error {
	node := ctx.Selected()
	var b strings.Builder
	if node == nil || node == ctx.Model.DefaultCmd {
		helpServer(&b, ctx.Model)
	} else {
		helpCommand(&b, node)
	}
	_, err := io.WriteString(ctx.Stdout, b.String())
	return err
}

func helpServer(b *strings.Builder, app *kong.Application) {
	fmt.Fprintf(b, "%s\n\nUsage: stint [flags]\n       stint <command> [flags]\n\nCommands:\n", app.Help)
	for _, c := range app.Children {
		fmt.Fprintf(b, "  %-22s %s\n", commandUsage(c), c.Help)
	}
	group := ""
	for _, f := range serverFlags(app) {
		if f.Group != nil && f.Group.Title != group {
			group = f.Group.Title
			fmt.Fprintf(b, "\n%s:\n", group)
		}
		helpFlag(b, f)
	}
	fmt.Fprintf(b, "\n%s", examples)
}

func helpCommand(b *strings.Builder, node *kong.Node) {
	fmt.Fprintf(b, "%s\n\nUsage: stint %s [flags]\n", node.Help, commandUsage(node))
	if len(node.Positional) > 0 {
		fmt.Fprint(b, "\nArguments:\n")
		for _, p := range node.Positional {
			fmt.Fprintf(b, "  %s\n%s", strings.ToUpper(p.Name), wrap(p.Help, "      "))
		}
	}
	if len(node.Flags) > 0 {
		fmt.Fprint(b, "\nFlags:\n")
		for _, f := range node.Flags {
			helpFlag(b, f)
		}
	}
}

// commandUsage is a command's name and arguments: "backup FILE".
func commandUsage(node *kong.Node) string {
	words := []string{node.Name}
	for _, p := range node.Positional {
		words = append(words, strings.ToUpper(p.Name))
	}
	return strings.Join(words, " ")
}

func helpFlag(b *strings.Builder, f *kong.Flag) {
	fmt.Fprintf(b, "  %s\n%s", flagUsage(f), wrap(flagText(f), "      "))
}

// flagUsage is a flag with the placeholder of its value: "--dir DIR".
func flagUsage(f *kong.Flag) string {
	if f.IsBool() {
		return "--" + f.Name
	}
	return "--" + f.Name + " " + f.PlaceHolder
}

// flagText is a flag's description with its default.
func flagText(f *kong.Flag) string {
	if f.Default == "" {
		return f.Help
	}
	return f.Help + " Default: " + f.Default + "."
}

// wrap breaks text into lines of at most helpWidth columns, each indented.
func wrap(text, indent string) string {
	var b strings.Builder
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > helpWidth && line != indent {
			b.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
	return b.String()
}

// configurationDoc is docs/configuration.md: a table of every option.
func configurationDoc(app *kong.Application) string {
	var b strings.Builder
	b.WriteString(`# Configuration

Made from the struct Config in cmd/stint/config.go by ` + "`make docs`" + `; a test compares the two.

An option is set by its flag, by its environment variable, or by its key in the YAML file that
` + "`--config`" + ` names; the first of these that has it wins. An empty environment variable is an unset
one. Keys are the flags without the dashes, lists are YAML lists. An unknown key or a value that
does not fit ends the process with exit code 2 and a sentence that names the flag, the variable or
the file's line.

Sizes are bytes (` + "`1048576`" + `) or have a unit: KiB, MiB, GiB, TiB are powers of 1,024; KB, MB, GB, TB
powers of 1,000. Durations have a unit (` + "`250ms`, `30s`, `5m`, `1h`" + `); a plain number is seconds.
`)
	group := ""
	for _, f := range serverFlags(app) {
		if f.Group != nil && f.Group.Title != group {
			group = f.Group.Title
			fmt.Fprintf(&b, "\n## %s\n\n| flag | environment | default | meaning |\n| --- | --- | --- | --- |\n", group)
		}
		def := "`" + f.Default + "`"
		if f.Default == "" {
			def = "–"
			if f.IsBool() {
				def = "`false`"
			}
		}
		cell := strings.NewReplacer("|", `\|`).Replace
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", cell(flagUsage(f)), envName(f.Name), def, cell(f.Help))
	}
	b.WriteString(`
## A file

` + "```yaml" + `
addr:
  - 0.0.0.0:6390
  - unix:/run/stint.sock
dir: /var/lib/stint
interval: 500ms
max-memory: 2GiB
requirepass-file: /etc/stint/password
log-format: json
` + "```" + `
`)
	return b.String()
}
