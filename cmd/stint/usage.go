package main

import (
	"errors"
	"fmt"
	"regexp"
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
	notInt  = regexp.MustCompile(`^expected a valid \d+ bit u?int but got (".*")$`)
	notBool = regexp.MustCompile(`^bool value must be .* but got (".*")$`)
	noValue = regexp.MustCompile(`^missing value|^expected .* value but got `)
	guess   = regexp.MustCompile(`^(unknown flag -[^-]), did you mean .*$`)
)

// usageError turns what kong says into what a user reads: kong wraps errors of
// ours into the names of its nodes, and speaks of its own types.
func usageError(err error) error {
	var opt *optionError
	if errors.As(err, &opt) {
		return opt
	}
	text := err.Error()
	if flag, rest, ok := strings.Cut(text, ": "); ok && strings.HasPrefix(flag, "--") {
		flag = flag[2:]
		if m := notInt.FindStringSubmatch(rest); m != nil {
			return &optionError{flag, m[1] + " is not a whole number"}
		}
		if m := notBool.FindStringSubmatch(rest); m != nil {
			return &optionError{flag, m[1] + " is neither true nor false"}
		}
		if noValue.MatchString(rest) {
			return &optionError{flag, "a value is missing after it"}
		}
		return err
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
