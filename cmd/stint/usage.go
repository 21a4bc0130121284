package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// joinNegative makes one argument of a flag and a value that begins with a
// dash and a digit, as if there were an = between them. kong would take the
// value for a flag, and its user, who sees a number, would not understand.
func joinNegative(args []string) []string {
	var joined []string
	for i, a := range args {
		if a == "--" {
			return append(joined, args[i:]...)
		}
		negative := len(a) > 1 && a[0] == '-' && a[1] >= '0' && a[1] <= '9'
		if last := len(joined) - 1; negative && last >= 0 && strings.HasPrefix(joined[last], "--") && !strings.Contains(joined[last], "=") {
			joined[last] += "=" + a
			continue
		}
		joined = append(joined, a)
	}
	return joined
}

// What kong says of values that do not fit the type of an option.
var (
	notBool = regexp.MustCompile(`^bool value must be .* but got (".*")$`)
	noValue = regexp.MustCompile(`^missing value|^expected .* value but got `)
	guess   = regexp.MustCompile(`^(unknown flag -[^-]), did you mean .*$`)
)

// mentionsPassword reports whether text has the name of the option with the
// password in it, or of the one with its file. What is wrong next to it may be
// a part of the password, or all of it, and is not shown: stderr is often kept.
func mentionsPassword(text string) bool {
	return strings.Contains(strings.ToLower(text), "requirepass")
}

// strayWord matches what kong says of an argument that it has no use for.
var strayWord = regexp.MustCompile(`^un(expected|known) `)

// usageError turns what kong says of args into what a user reads: kong wraps
// errors of ours into the names of its nodes, and speaks of its own types.
func usageError(err error, args []string) error {
	var opt *optionError
	if errors.As(err, &opt) {
		return opt
	}
	text := err.Error()
	if flag, rest, ok := strings.Cut(text, ": "); ok && strings.HasPrefix(flag, "--") {
		flag = flag[2:]
		if m := notBool.FindStringSubmatch(rest); m != nil {
			return &optionError{flag, m[1] + " is neither true nor false"}
		}
		if noValue.MatchString(rest) {
			return &optionError{flag, "a value is missing after it"}
		}
		return err
	}
	if strayWord.MatchString(text) && slices.ContainsFunc(args, mentionsPassword) {
		return errors.New("an argument is unknown, and not shown as it may belong to the password: put a password into quotes, or into a file for --requirepass-file; stint --help shows what there is")
	}
	var parse *kong.ParseError
	if strings.HasPrefix(text, `expected "<`) && errors.As(err, &parse) {
		if node := parse.Context.Selected(); node != nil && len(node.Positional) > 0 {
			arg := node.Positional[0]
			return fmt.Errorf("%s wants a %s: stint %s %s", node.Name, strings.ToUpper(arg.Name), node.Name, arg.Tag.Get("example"))
		}
	}
	// A letter is near to any other: the guess helps nobody.
	return fmt.Errorf("%s; stint --help shows what there is", guess.ReplaceAllString(text, "$1"))
}
