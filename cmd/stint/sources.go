package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// envPrefix begins the name of every environment variable that is read.
const envPrefix = "STINT_"

// envName is the environment variable of an option: STINT_MAX_CLIENTS for
// max-clients.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// sources resolves the options that the command line does not set: from the
// environment, else from the file of --config. It remembers where each value
// came from, so that an error can name the place that must be changed.
//
// It is a kong.Resolver, and the only one: kong's own env tags would rank the
// environment below a file.
type sources struct {
	environ func(string) (string, bool)
	known   func(string) bool // option names, for the file's keys
	from    map[string]string // option: where its value came from
	last    string            // option resolved last: the one an error of kong's parser is about

	loaded bool
	path   string // of the file, "" for none
	file   map[string]fileValue
}

// fileValue is one key of the file.
type fileValue struct {
	values []string // one for a scalar
	list   bool     // it is written as a list, of one value perhaps
	line   int
}

func newSources(environ func(string) (string, bool), known func(string) bool) *sources {
	return &sources{environ: environ, known: known, from: map[string]string{}}
}

// Validate has nothing to add: keys are checked when the file is read.
func (s *sources) Validate(*kong.Application) error { return nil }

// Resolve returns the value of a flag from environment or file, nil if neither
// has one. A command has no use for the variables and keys of options that are
// another command's, nor for the file if it has no --config itself: what is set
// for the server, right or wrong, does not keep a tool from its work.
func (s *sources) Resolve(ctx *kong.Context, command *kong.Path, flag *kong.Flag) (any, error) {
	name := flag.Name
	if name == "help" || name == "version" {
		return nil, nil // of the command line alone
	}
	s.last = ""
	// An empty variable is an unset one: container tools cannot remove a
	// variable, only empty it.
	if v, ok := s.environ(envName(name)); ok && v != "" {
		s.last, s.from[name] = name, "environment variable "+envName(name)
		return v, nil
	}
	if name != "config" && !s.known(name) || !slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == "config" }) {
		return nil, nil
	}
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	v, ok := s.file[name]
	if !ok {
		return nil, nil
	}
	s.last, s.from[name] = name, fmt.Sprintf("%s, line %d", s.path, v.line)
	if flag.IsSlice() {
		return kong.JoinEscaped(v.values, ','), nil
	}
	if v.list {
		return nil, errors.New("a single value is wanted, not a list")
	}
	return v.values[0], nil
}

// load reads the file of --config or STINT_CONFIG, once.
func (s *sources) load(ctx *kong.Context) error {
	if s.loaded {
		return nil
	}
	s.loaded = true
	s.path, _ = s.environ(envName("config"))
	origin := "environment variable " + envName("config")
	for _, p := range ctx.Path {
		if p.Flag != nil && p.Flag.Name == "config" {
			s.path, _ = ctx.FlagValue(p.Flag).(string)
			origin = ""
		}
	}
	if s.path == "" {
		return nil
	}
	if err := enoughFiles(openFiles(), 0); err != nil {
		return err
	}
	data, err := os.ReadFile(s.path)
	if err != nil {
		s.from["config"] = origin
		return &optionError{"config", fmt.Sprintf("the file cannot be read: %v", err)}
	}
	s.file, err = parseFile(data, s.known)
	if err != nil {
		return &optionError{"config", fmt.Sprintf("%s: %v", s.path, err)}
	}
	return nil
}

// parseFile reads a YAML mapping of option names to scalars or lists of
// scalars. Errors name the line.
func parseFile(data []byte, known func(string) bool) (map[string]fileValue, error) {
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil // empty, or comments only
	} else if err != nil {
		return nil, notYAML(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("want one YAML document, the file has more after it")
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		if root.Tag == "!!null" {
			return nil, nil
		}
		return nil, fmt.Errorf("line %d: want options as \"name: value\"", root.Line)
	}
	values := map[string]fileValue{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, node := root.Content[i], root.Content[i+1]
		switch {
		case !known(key.Value) && mentionsPassword(key.Value):
			return nil, fmt.Errorf("line %d: an unknown key, not shown as it may hold the password: want the line requirepass: \"…\" with a blank after the colon", key.Line)
		case !known(key.Value) || key.Value == "config":
			return nil, fmt.Errorf("line %d: unknown key %q; the keys are the flags without the dashes, see stint --help", key.Line, key.Value)
		case len(values[key.Value].values) != 0:
			return nil, fmt.Errorf("line %d: %q is set twice, first on line %d", key.Line, key.Value, values[key.Value].line)
		}
		v, err := scalars(node)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", node.Line, key.Value, err)
		}
		v.line = key.Line
		values[key.Value] = v
	}
	return values, nil
}

// notYAML words an error of the YAML parser. None shows a value, but one: a
// value that begins with * refers to another, and a password may begin so too.
func notYAML(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.HasPrefix(text, "unknown anchor ") {
		text = "a value begins with *, which refers to an anchor that is not there: put the value into quotes"
	}
	return errors.New("not YAML: " + text)
}

// scalars returns the text of a scalar or of a list of scalars. The text is
// what the file says, not what YAML makes of it: "no" stays "no".
func scalars(n *yaml.Node) (v fileValue, err error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	items := []*yaml.Node{n}
	if v.list = n.Kind == yaml.SequenceNode; v.list {
		items = n.Content
	}
	for _, item := range items {
		switch {
		case item.Kind == yaml.ScalarNode && !strings.HasPrefix(item.ShortTag(), "!!"):
			// The rest of what was meant as a value, and all of it where
			// there is no blank, would silently be gone.
			return v, errors.New("a value begins with !, which makes a tag of its first word: put the value into quotes")
		case item.Kind == yaml.ScalarNode && item.Tag != "!!null":
			v.values = append(v.values, item.Value)
		case v.list:
			return v, errors.New("a list may hold single values only")
		}
	}
	if len(v.values) == 0 {
		return v, errors.New("a value is wanted")
	}
	return v, nil
}

// explain adds to an error the place its value came from, unless that was the
// command line, which the user has before their eyes.
func (s *sources) explain(err error) error {
	name := s.last
	var opt *optionError
	if errors.As(err, &opt) {
		name = opt.flag
	} else if !strings.HasPrefix(err.Error(), "--"+name) {
		name = ""
	}
	if from := s.from[name]; name != "" && from != "" {
		return fmt.Errorf("%w (from %s)", err, from)
	}
	return err
}

// strangers lists the STINT_ variables that are no option of any command: slips
// of the pen.
// Names that Kubernetes makes for a service called stint are left out.
func strangers(environ []string, known func(string) bool) []string {
	var names []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		rest, ok := strings.CutPrefix(name, envPrefix)
		if !ok || strings.HasPrefix(rest, "SERVICE_") || rest == "PORT" || strings.HasPrefix(rest, "PORT_") {
			continue
		}
		if !known(strings.ToLower(strings.ReplaceAll(rest, "_", "-"))) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return slices.Compact(names)
}
