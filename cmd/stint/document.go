package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/stint-dev/stint/server"
)

// configurationDoc is docs/configuration.md: a table of every option.
func configurationDoc(app *kong.Application) string {
	var b strings.Builder
	b.WriteString(`# Configuration

Made from the struct Config in cmd/stint/config.go and the settings in server/settings.go by
` + "`make docs`" + `; a test compares them.

An option is set by its flag, by its environment variable, or by its key in the YAML file that
` + "`--config`" + ` names; the first of these that has it wins. An empty environment variable is an unset
one. Keys are the flags without the dashes, lists are YAML lists. An unknown key or a value that
does not fit ends the process with exit code 2 and a sentence that names the flag, the variable or
the file's line.

The commands ` + "`status`, `backup` and `inspect`" + ` read the variables of their own options alone (` + "`STINT_DIR`" + ` and
` + "`STINT_CONFIG`" + ` for backup, ` + "`STINT_KEYS`" + ` for inspect; for status see [below](#status)). A variable STINT_… that no command knows is
ignored, with a warning in the server's log.

Sizes are bytes (` + "`1048576`" + `) or have a unit, in any case: KiB, MiB, GiB, TiB are powers of 1,024;
KB, MB, GB, TB, or K, M, G, T alone, powers of 1,000. Up to six decimals may come before a unit:
` + "`1.5GiB`" + `. Durations have a unit (` + "`250ms`, `30s`, `5m`, `1h`" + `); a plain number is seconds.
Other numbers are decimal digits and nothing else.

The column CONFIG is the name that ` + "`CONFIG GET`" + ` and ` + "`CONFIG SET`" + ` have for an option: Redis's, where
Redis has it. What has SET can be changed while the server runs; the rest needs a restart. What was
SET is not kept: after a restart, flags, environment and file count again.
`)
	group := ""
	for _, f := range serverFlags(app) {
		if f.Group != nil && f.Group.Title != group {
			group = f.Group.Title
			fmt.Fprintf(&b, "\n## %s\n\n| flag | environment | CONFIG | default | meaning |\n| --- | --- | --- | --- | --- |\n", group)
		}
		def := "`" + f.Default + "`"
		if f.Default == "" {
			def = "–"
			if f.IsBool() {
				def = "`false`"
			}
		}
		cell := strings.NewReplacer("|", `\|`).Replace
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", cell(flagUsage(f)), envName(f.Name), configName(f.Name), def, cell(f.Help))
	}
	b.WriteString(`
## CONFIG

Sizes and durations are given to ` + "`CONFIG SET`" + ` as above, with one exception for the sake of what
knows Redis: kb, mb and gb are powers of 1,024 there, so that ` + "`CONFIG SET maxmemory 100mb`" + ` is
104,857,600 bytes and ` + "`--max-memory 100MB`" + ` is 100,000,000. KiB, MiB and GiB are the same in both.
` + "`CONFIG GET`" + ` replies bytes and, for ` + "`timeout`" + `, seconds. ` + "`CONFIG SET loglevel`" + ` takes Redis's notice
and warning too.

These are the same in every server, for tools that ask: ` + strings.Join(fixedNames(), ", ") + `.

## Signals

SIGTERM or SIGINT (Ctrl-C) stops the server in order, within 10 s: no new connections, what has
arrived is decided and answered (for 3 s at most), the last flush is written, the exit code is 0.
Nothing that was answered is lost, but with --durability none everything is; and when the last
flush is not done after 4.5 s, what it would have written may be, and the exit code is 1.

Repeated signals are noted in the log and otherwise ignored: supervisors often send one twice, to
the process and to its group. Only a SIGINT, a second or more after the first signal, is heard:
clients are not waited for any longer. The last flush is written all the same, unless writing has
failed: then the process ends at once with exit code 1, and what was decided since the last flush
is lost.

SIGHUP reads the files of ` + "`--tls-cert`, `--tls-key` and `--tls-ca`" + ` again, and that of
` + "`--requirepass-file`" + `. The log says until when the new certificate is valid and for which names. If
anything is wrong with one of the three files, all three stay as they were, and the log says what it
is; the same goes for the password. What is new holds for connections and for AUTH from then on:
nobody who is connected is cut off. Other options need a restart. Without such files SIGHUP does
nothing. On Windows there is no such signal.

A certificate that has expired, or does so within 14 days, is a warning in the log at the start, at
each SIGHUP and once a day.

## Status

` + "`stint status`" + ` asks a running server and shows how it is, problems first; ` + "`--json`" + ` writes one
object for programs. Its exit code is for a monitor or a container's health check:

| exit code | means |
| --- | --- |
| 0 | healthy |
| 1 | it answers, and has a problem: flushes fail or are far behind, more than 90 % of memory or clients are used, the clock was set back, the certificate expires within 14 days, or the answer is an error (a wrong password, too many clients) |
| 2 | it does not answer, or the flags are wrong |

With ` + "`--alive`" + ` it is 0 instead of 1: for health checks that restart what is not healthy, as a restart
makes no memory, no disk and no certificate.

` + "`--addr`, `--requirepass-file` (also as `--password-file`), `--requirepass` and `--config`" + ` are those of
the server, with the same variables: where the server was started, status finds it without flags. Of
several addresses it asks the first.

| flag | environment | default | meaning |
| --- | --- | --- | --- |
`)
	for _, f := range commandFlags(app, "status") {
		def := "–"
		if f.Default != "" {
			def = "`" + f.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", flagUsage(f), envName(f.Name), def, f.Help)
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

// commandFlags are the flags of a command, without --help.
func commandFlags(app *kong.Application, name string) (flags []*kong.Flag) {
	for _, c := range app.Children {
		for _, f := range c.Flags {
			if c.Name == name && f.Name != "help" {
				flags = append(flags, f)
			}
		}
	}
	return flags
}

// configName is the cell that says how CONFIG names an option.
func configName(flag string) string {
	cell := "–"
	for _, s := range server.Settings() {
		// The file that holds a value is another way to give it.
		if s.Flag != flag && s.Flag+"-file" != flag {
			continue
		}
		name := "`" + s.Name + "`: GET"
		if s.Changeable {
			name += ", SET"
		}
		if cell != "–" {
			name = cell + "; " + name
		}
		cell = name
	}
	return cell
}

// fixedNames are the settings of CONFIG that no option gives.
func fixedNames() []string {
	var names []string
	for _, s := range server.Settings() {
		if s.Flag == "" {
			names = append(names, "`"+s.Name+"`")
		}
	}
	return names
}
