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
  stint --addr tls:0.0.0.0:6390 --tls-cert cert.pem --tls-key key.pem --tls-ca clients.pem
  stint status --addr 127.0.0.1:6390 --for 1s
  stint backup --dir /var/lib/stint /backup/state.db

Sizes are bytes or have a unit: 512MiB, 1.5GiB (2^20, 2^30), 1GB or 1g (10^9). Durations have
a unit: 250ms, 30s, 1h; a plain number is seconds. Every flag can be set by the variable named
after it, or as a key of the --config file: --max-clients is STINT_MAX_CLIENTS, and
max-clients: 100 in the file.

SIGTERM or SIGINT (Ctrl-C) stops the server in order, within 10 s: clients are answered, the
state is flushed. Sent again, they change nothing, but that a SIGINT a second or more after the
first signal ends the wait for clients and, if the state cannot be written, the process.
SIGHUP reads the files of --tls-cert, --tls-key, --tls-ca and --requirepass-file again.

Exit codes: 0 stopped in order, 1 failure, 2 wrong flag, variable or file. Those of stint status
are in its own help.
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

// helpRequest is `stint help [COMMAND]`, for those who know it from elsewhere.
type helpRequest struct {
	Command string `arg:"" optional:"" help:"Command to show the help of."`
}

func (h *helpRequest) run(w io.Writer, app *kong.Application) error {
	var b strings.Builder
	if h.Command == "" || h.Command == app.DefaultCmd.Name {
		helpServer(&b, app)
	}
	for _, c := range app.Children {
		if c.Name == h.Command && c != app.DefaultCmd {
			helpCommand(&b, c)
		}
	}
	if b.Len() == 0 {
		return fmt.Errorf("there is no command %q; stint --help shows what there is", h.Command)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func helpServer(b *strings.Builder, app *kong.Application) {
	fmt.Fprintf(b, "%s\n\nUsage: stint [flags]\n       stint <command> [flags]\n\nCommands:\n", app.Help)
	for _, c := range app.Children {
		fmt.Fprintf(b, "  %-22s %s\n", commandUsage(c), c.Help)
	}
	fmt.Fprint(b, "\nEverywhere:\n  -h, --help             Show the help of stint or of a command.\n  -v, --version          Show the version.\n")
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
	if node.Detail != "" {
		fmt.Fprintf(b, "\n%s", wrap(node.Detail, ""))
	}
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

// commandUsage is a command's name and arguments: "backup FILE". What may be
// left out is in brackets.
func commandUsage(node *kong.Node) string {
	words := []string{node.Name}
	for _, p := range node.Positional {
		word := strings.ToUpper(p.Name)
		if !p.Required {
			word = "[" + word + "]"
		}
		words = append(words, word)
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
