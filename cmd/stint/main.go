// Command stint is a rate limiter server that speaks the Redis protocol.
//
// It parses and validates the options, wires engine, persist and server
// together, waits, and stops them in order. Whatever decides, stores or speaks
// a protocol lives in those packages, not here.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitOK      = 0 // stopped in order, or the command did what it should
	exitFailure = 1 // could not start, or failed while running
	exitUsage   = 2 // a flag, variable, file or argument is wrong: nothing was started
)

// grammar is the command line: one field a command. kong derives flag names
// from the field names.
type grammar struct {
	Serve struct {
		Config `embed:""`
	} `cmd:"" default:"withargs" help:"Run the server. This is what stint does without a command."`

	Status  statusCommand  `cmd:"" help:"Show how a running server is; its exit code tells too."`
	Backup  backupCommand  `cmd:"" help:"Copy the state of a server to FILE and verify the copy."`
	Restore restoreCommand `cmd:"" help:"Make a folder that a server begins with from a backup FILE."`
	Inspect inspectCommand `cmd:"" help:"Show what a state file or a backup holds; never changes it."`
	Version versionCommand `cmd:"" help:"Show the version."`
	Help    helpRequest    `cmd:"" help:"Show this, or the help of COMMAND."`

	ShowVersion versionFlag `name:"version" short:"v" help:"Show the version."`
}

// process is what a run has of the outside world; tests give their own.
type process struct {
	args    []string
	environ []string
	stdout  io.Writer
	stderr  io.Writer
}

// lookup finds an environment variable.
func (p *process) lookup(name string) (string, bool) {
	for _, kv := range p.environ {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// fail writes err to stderr as one line and returns code.
func (p *process) fail(code int, err error) int {
	fmt.Fprintf(p.stderr, "stint: %s\n", strings.ReplaceAll(err.Error(), "\n", " "))
	return code
}

func main() {
	os.Exit(run(&process{os.Args[1:], os.Environ(), os.Stdout, os.Stderr}))
}

// run parses the command line and runs the command it names.
func run(p *process) int {
	var g grammar
	parser, helped := newParser(&g, p.stdout)
	src := newSources(p.lookup, optionNames(parser))
	if err := kong.Resolvers(src).Apply(parser); err != nil {
		return p.fail(exitUsage, err)
	}
	ctx, err := parser.Parse(joinNegative(p.args))
	if *helped {
		return exitOK
	}
	if err != nil {
		if few := new(fewFilesError); errors.As(err, &few) {
			return p.fail(exitFailure, few)
		}
		return p.fail(exitUsage, src.explain(usageError(err, p.args)))
	}
	switch ctx.Selected().Name {
	case "status":
		code, err := g.Status.run(p.stdout)
		if err != nil {
			return p.fail(exitUsage, src.explain(err))
		}
		return code
	case "backup":
		if err = enoughFiles(openFiles(), 0); err == nil {
			err = g.Backup.run(p.stdout)
		}
	case "restore":
		if err = enoughFiles(openFiles(), 0); err == nil {
			err = g.Restore.run(p.stdout)
		}
	case "inspect":
		if err = enoughFiles(openFiles(), 0); err == nil {
			err = g.Inspect.run(p.stdout)
		}
	case "version":
		err = g.Version.run(p.stdout)
	case "help":
		if err := g.Help.run(p.stdout, parser.Model); err != nil {
			return p.fail(exitUsage, err)
		}
	default:
		if err := enoughFiles(openFiles(), len(g.Serve.Addr)); err != nil {
			return p.fail(exitFailure, err)
		}
		with, err := g.Serve.secrets()
		if err != nil {
			return p.fail(exitUsage, src.explain(err))
		}
		log, level := newLogger(p.stderr, &g.Serve.Config)
		for _, name := range strangers(p.environ, anyOption(parser)) {
			log.Warn("an environment variable looks like an option but is none; it is ignored", "name", name)
		}
		return p.serve(&g.Serve.Config, with, log, level)
	}
	if err != nil {
		return p.fail(exitFailure, err)
	}
	return exitOK
}

// newParser makes the parser of g. *helped is set when --help or --version was
// given and obeyed: kong would end the process there.
func newParser(g *grammar, stdout io.Writer) (parser *kong.Kong, helped *bool) {
	helped = new(bool)
	parser, err := kong.New(g,
		kong.Name("stint"),
		kong.Description("A rate limiter server that speaks the Redis protocol."),
		kong.Help(printHelp),
		kong.Exit(func(int) { *helped = true }),
		kong.Writers(stdout, io.Discard),
		kong.BindTo(stdout, (*io.Writer)(nil)),
	)
	if err != nil {
		panic(err) // the grammar above is wrong: found by any test
	}
	return parser, helped
}

// optionNames tells whether a name is an option of the server.
func optionNames(parser *kong.Kong) func(string) bool {
	names := map[string]bool{}
	for _, f := range serverFlags(parser.Model) {
		names[f.Name] = true
	}
	return func(name string) bool { return names[name] }
}

// anyOption tells whether a name is an option of any command.
func anyOption(parser *kong.Kong) func(string) bool {
	names := map[string]bool{}
	for _, command := range parser.Model.Children {
		for _, f := range command.Flags {
			names[f.Name] = true
		}
	}
	return func(name string) bool { return names[name] }
}

// serverFlags lists the flags of the server in the order they are declared.
func serverFlags(app *kong.Application) []*kong.Flag {
	return app.DefaultCmd.Flags
}
