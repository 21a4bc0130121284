package command

import (
	"errors"
	"strings"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/server/resp"
)

// This file holds every error that a command replies. An error is one line.
// Its first word is a contract: programs match it, and some clients resend by
// themselves on certain words (LOADING, CLUSTERDOWN, TRYAGAIN, READONLY), so
// none of those may begin an error here but ErrDown's, which is sent only if
// nothing was applied. The rest is for people and says which
// argument is wrong and what is allowed. What a client sent is shown only
// through resp.Quote, which escapes and cuts it.

// Errors without arguments.
const (
	ErrSyntax     = "ERR syntax error"
	ErrInternal   = "ERR internal error: the command was not run"
	ErrWrongType  = "WRONGTYPE the key holds a limiter of another kind"
	ErrOOM        = "OOM the memory limit is reached: what needs more memory is refused until keys run out or --max-memory is raised"
	ErrLogFull    = "OOM a sliding log holds at most 2000000 entries"
	ErrEmptyKey   = "ERR invalid key '': want 1 to 4096 bytes"
	ErrNoAuth     = "NOAUTH Authentication required."
	ErrWrongPass  = "WRONGPASS invalid username-password pair or user is disabled."
	ErrNoProto    = "NOPROTO unsupported protocol version"
	ErrNoPassword = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"
	ErrNoCluster  = "ERR This instance has cluster support disabled"
	ErrNoDebug    = "ERR DEBUG command not allowed: start the server with --enable-debug-command"
)

// maxShownArgs is how many arguments of an unknown command its error shows.
const maxShownArgs = 8

// ErrDown is the error for what could not be decided and surely was not applied.
// Some clients send the whole pipeline again by themselves.
func ErrDown(why string) string { return "CLUSTERDOWN no decision can be made: " + why }

// ErrIndeterminate is the error for what may have been applied. No client sends
// anything again for it.
func ErrIndeterminate(why string) string { return "INDETERMINATE outcome unknown: " + why }

// ErrArity is the error for too few or too many arguments. name is the full
// name of a command of the table.
func ErrArity(name string) string {
	return "ERR wrong number of arguments for '" + name + "' command"
}

// ErrUnknown is the error for a command that is not in the table.
func ErrUnknown(args [][]byte) string {
	if len(args) == 0 {
		return "ERR empty command"
	}
	var b strings.Builder
	b.WriteString("ERR unknown command " + resp.Quote(args[0]) + ", with args beginning with: ")
	for i := 1; i < len(args) && i <= maxShownArgs; i++ {
		b.WriteString(resp.Quote(args[i]) + " ")
	}
	return b.String() + unknownHints[strings.ToLower(string(args[0]))]
}

// unknownHints say what to do instead of what Redis has and this server does
// not.
var unknownHints = func() map[string]string {
	hints := map[string]string{}
	for hint, names := range map[string]string{
		"(SCAN walks the keys)":                                                           "keys randomkey",
		"(limiters run out by themselves; TTL tells when)":                                "expire pexpire expireat pexpireat persist",
		"(THROTTLE and WINDOW decide in one command; see COMMAND LIST for what there is)": "get set setex incr incrby decr eval evalsha script fcall zadd hset",
		"(SIGTERM stops the server and loses nothing)":                                    "shutdown",
		"(INFO tells what the server does)":                                               "monitor memory object",
		"(there is one user, default; --requirepass-file sets the password)":              "acl",
	} {
		for _, name := range strings.Fields(names) {
			hints[name] = hint
		}
	}
	return hints
}()

// Errors of transactions, which there are none of. What stands between MULTI
// and EXEC is not run: a caller who sees an error must not have been charged.
const (
	ErrMulti      = "ERR MULTI is not supported: each command is atomic by itself. Send a pipeline without a transaction"
	ErrAfterMulti = "ERR not run, because it stands after MULTI, which is not supported"
	ErrExec       = "EXECABORT transaction discarded: MULTI is not supported, nothing of it was run"
)

// Transaction is the error for a command called name if it begins or ends a
// transaction, or stands inside of one, and whether what follows is inside;
// "" if the command is to be run.
func Transaction(name []byte, inside bool) (after bool, line string) {
	switch {
	case len(name) == 5 && foldEqual(name, "MULTI"):
		return true, ErrMulti
	case !inside, foldEqual(name, "QUIT"):
		return inside, ""
	case foldEqual(name, "RESET"):
		return false, ""
	case foldEqual(name, "EXEC"), foldEqual(name, "DISCARD"):
		return false, ErrExec
	}
	return true, ErrAfterMulti
}

// ErrUnknownSub is the error for a subcommand that the container does not have.
func ErrUnknownSub(container string, arg []byte) string {
	return "ERR unknown subcommand " + resp.Quote(arg) + ". Try " + strings.ToUpper(container) + " HELP."
}

// What the arguments of limits allow, for errors and only there: the parsers
// of package limit decide.
const (
	wantUnits    = "a whole number from 1 to 9007199254740991"
	wantBurst    = "a whole number from 0 to 9007199254740990"
	wantSeconds  = "whole seconds from 1 to 9223372036"
	wantCost     = "a whole number from 0 to 9007199254740991"
	wantRate     = "N or N/P with P like 30s, m, 1h"
	wantPeriod   = "seconds or a number with ms, s, m, h, d or w, from 1ms to 2^61 ns"
	wantKey      = "1 to 4096 bytes"
	wantPattern  = "at most 4096 bytes, all patterns of a command together"
	wantLogLimit = "a whole number from 1 to 1000000 for LOG"
)

// ErrInvalid is the error for an argument that is not what it has to be: what
// names it, want says what is allowed.
func ErrInvalid(what string, arg []byte, want string) string {
	return "ERR invalid " + what + " " + resp.Quote(arg) + ": want " + want
}

// ErrKey is the error for a key that is empty or too long.
func ErrKey(key []byte) string { return ErrInvalid("key", key, wantKey) }

// ErrCapacity is the error for a bucket's capacity.
func ErrCapacity(arg []byte) string { return ErrInvalid("capacity", arg, wantUnits) }

// ErrLimit is the error for a window's limit.
func ErrLimit(arg []byte) string { return ErrInvalid("limit", arg, wantUnits) }

// ErrLogLimit is the error for a limit that is too large for a sliding log.
func ErrLogLimit(arg []byte) string { return ErrInvalid("limit", arg, wantLogLimit) }

// ErrCost is the error for a cost.
func ErrCost(arg []byte) string { return ErrInvalid("cost", arg, wantCost) }

// ErrUnits is the error for the units of a refund.
func ErrUnits(arg []byte) string { return ErrInvalid("units", arg, wantCost) }

// ErrRate is the error for a rate.
func ErrRate(arg []byte) string { return ErrInvalid("rate", arg, wantRate) }

// ErrFill is the error for a capacity and a rate that are each allowed but
// together take too long to fill.
func ErrFill(capacity, rate []byte) string {
	return "ERR capacity " + resp.Quote(capacity) + " at rate " + resp.Quote(rate) +
		" takes too long to fill: want at most 2^62 ns (146 years)"
}

// ErrFillSeconds is ErrFill for the arguments of CL.THROTTLE.
func ErrFillSeconds(burst, count, seconds []byte) string {
	return "ERR max_burst " + resp.Quote(burst) + " at count " + resp.Quote(count) + " per period " + resp.Quote(seconds) +
		" takes too long to fill: want at most 2^62 ns (146 years)"
}

// ErrPeriod is the error for a window's period.
func ErrPeriod(arg []byte) string { return ErrInvalid("period", arg, wantPeriod) }

// ErrCursor is the error for a cursor of SCAN, in Redis's words.
const ErrCursor = "ERR invalid cursor"

// ErrPattern is the error for a pattern that is too long.
func ErrPattern(arg []byte) string { return ErrInvalid("pattern", arg, wantPattern) }

// ErrOption is the error for a word that is no option here: want lists those
// that are, as in "PEEK, FORCE or ATMOST".
func ErrOption(arg []byte, want string) string { return ErrInvalid("option", arg, want) }

// ErrOptionTwice is the error for an option given more than once.
func ErrOptionTwice(option string) string { return "ERR option " + option + " is given twice" }

// ErrOptionsExclude is the error for two options that do not go together.
func ErrOptionsExclude(a, b string) string {
	return "ERR options " + a + " and " + b + " exclude each other"
}

// ErrEngine is the error for what the engine refused.
func ErrEngine(err error) string {
	switch {
	case errors.Is(err, engine.ErrWrongType):
		return ErrWrongType
	case errors.Is(err, engine.ErrOOM):
		return ErrOOM
	}
	return "ERR " + err.Error()
}
