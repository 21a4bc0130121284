package command

import (
	"flag"
	"os"
	"strings"
	"testing"
)

func TestCommandReplies(t *testing.T) {
	runSteps(t, newServer(), []step{
		{line: "COMMAND GETKEYS THROTTLE k 1 1", two: "*1\r\n$1\r\nk\r\n"},
		{line: "COMMAND GETKEYS del a b c", two: "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"},
		{line: "COMMAND GETKEYS PING", two: "-ERR The command has no key arguments\r\n"},
		{line: "COMMAND GETKEYS CLIENT ID", two: "-ERR The command has no key arguments\r\n"},
		{line: "COMMAND GETKEYS CLIENT NOPE", two: "-ERR Invalid command specified\r\n"},
		{line: "COMMAND GETKEYS NOPE a", two: "-ERR Invalid command specified\r\n"},
		{line: "COMMAND GETKEYS THROTTLE k", two: "-ERR Invalid number of arguments specified for command\r\n"},
		{line: "COMMAND GETKEYS DEL", two: "-ERR Invalid number of arguments specified for command\r\n"},
		{line: "COMMAND INFO nope", two: "*1\r\n*-1\r\n", three: "*1\r\n_\r\n"},
		{line: "COMMAND DOCS nope", two: "*0\r\n", three: "%0\r\n"},
		{line: "COMMAND LIST FILTERBY MODULE x", two: "*0\r\n"},
		{line: "COMMAND LIST FILTERBY PATTERN CLIENT|GETN*", two: "*1\r\n$14\r\nclient|getname\r\n"},
		{line: "COMMAND LIST FILTERBY NOPE x", two: "-ERR syntax error\r\n"},
		{line: "COMMAND LIST FILTERBY PATTERN", two: "-ERR syntax error\r\n"},
		{line: "COMMAND LIST x", two: "-ERR syntax error\r\n"},
		{line: "COMMAND INFO auth", two: "*1\r\n*10\r\n$4\r\nauth\r\n:-2\r\n*2\r\n+fast\r\n+no_auth\r\n:0\r\n:0\r\n:0\r\n*2\r\n+@connection\r\n+@fast\r\n*0\r\n*0\r\n*0\r\n",
			three: "*1\r\n*10\r\n$4\r\nauth\r\n:-2\r\n~2\r\n+fast\r\n+no_auth\r\n:0\r\n:0\r\n:0\r\n~2\r\n+@connection\r\n+@fast\r\n*0\r\n*0\r\n*0\r\n"},
		{line: "COMMAND DOCS echo", two: "*2\r\n$4\r\necho\r\n*8\r\n$7\r\nsummary\r\n$19\r\nReplies the message\r\n$5\r\nsince\r\n$5\r\n0.1.0\r\n$5\r\ngroup\r\n$10\r\nconnection\r\n" +
			"$9\r\narguments\r\n*1\r\n*6\r\n$4\r\nname\r\n$7\r\nmessage\r\n$4\r\ntype\r\n$6\r\nstring\r\n$12\r\ndisplay_text\r\n$7\r\nmessage\r\n",
			three: "%1\r\n$4\r\necho\r\n%4\r\n$7\r\nsummary\r\n$19\r\nReplies the message\r\n$5\r\nsince\r\n$5\r\n0.1.0\r\n$5\r\ngroup\r\n$10\r\nconnection\r\n" +
				"$9\r\narguments\r\n*1\r\n%3\r\n$4\r\nname\r\n$7\r\nmessage\r\n$4\r\ntype\r\n$6\r\nstring\r\n$12\r\ndisplay_text\r\n$7\r\nmessage\r\n"},
	})
}

func TestCommandInfoTellsWhereKeysAre(t *testing.T) {
	s := newServer()
	conn := newConn(s)
	conn.Proto = 3
	for _, c := range []struct{ name, want string }{
		{"throttle", "[[throttle :-4 <+write +denyoom +fast> :1 :1 :1 <+@limiter +@write +@fast> [] [{flags <+RW +access +update> begin_search {type index spec {index :1}} find_keys {type range spec {lastkey :0 keystep :1 limit :0}}}] []]]"},
		{"EXISTS", "[[exists :-2 <+readonly +fast> :1 :-1 :1 <+@keyspace +@read +@fast> [] [{flags <+RO +access> begin_search {type index spec {index :1}} find_keys {type range spec {lastkey :-1 keystep :1 limit :0}}}] []]]"},
		{"client|id", "[[client|id :2 <+fast> :0 :0 :0 <+@connection +@fast> [] [] []]]"},
	} {
		if got := callFlat(t, s, conn, "COMMAND", "INFO", c.name); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestCommandCountsAndListsTheSame(t *testing.T) {
	s := newServer()
	conn := newConn(s)
	count := callFlat(t, s, conn, "COMMAND", "COUNT")
	for _, args := range [][]string{{"COMMAND"}, {"COMMAND", "INFO"}, {"COMMAND", "LIST"}} {
		reply := call(t, s, conn, args...)
		if want := "*" + count[1:] + "\r\n"; !strings.HasPrefix(reply, want) {
			t.Errorf("%q begins with %.8q, want %q", args, reply, want)
		}
	}
	conn.Proto = 3
	if docs := call(t, s, conn, "COMMAND", "DOCS"); !strings.HasPrefix(docs, "%"+count[1:]+"\r\n") {
		t.Errorf("COMMAND DOCS begins with %.8q, want %s entries", docs, count)
	}
	if got := callFlat(t, s, conn, "COMMAND", "DOCS", "client", "CLIENT", "nope"); strings.Count(got, "client|setname {summary") != 1 {
		t.Errorf("docs of a container, asked for twice: %s", got)
	}
	if got := callFlat(t, s, conn, "COMMAND", "LIST", "FILTERBY", "ACLCAT", "dangerous"); !strings.Contains(got, "config|set") || strings.Contains(got, "ping") {
		t.Errorf("dangerous commands: %s", got)
	}
}

func TestQuestionsAboutCommandsAreBounded(t *testing.T) {
	s := newServer()
	for _, sub := range []string{"INFO", "DOCS"} {
		args := append([]string{"COMMAND", sub}, strings.Fields(strings.Repeat("client ", maxNames))...)
		if got := call(t, s, newConn(s), args...); got[0] != '*' {
			t.Errorf("%s of %d names: %.80q", sub, maxNames, got)
		}
		if got := call(t, s, newConn(s), append(args, "client")...); got != "-ERR too many command names: want at most 1024\r\n" {
			t.Errorf("%s of one name more: %.80q", sub, got)
		}
	}
}

func TestHelpListsTheSubcommands(t *testing.T) {
	s := newServer()
	got := call(t, s, newConn(s), "DEBUG", "HELP")
	const want = "*7\r\n+DEBUG <subcommand> [<arg> ...]. Subcommands are:\r\n+CLOCK <ns | REAL>\r\n" +
		"+    Freezes the clock at a time in unix ns from the next command on, or lets it run again.\r\n" +
		"+STAMP\r\n+    Shows the time, unix ns, that the commands of its batch are decided at.\r\n" +
		"+RESET\r\n+    Empties everything and forgets the latest time seen.\r\n"
	if got != want {
		t.Errorf("got %q", got)
	}
}

// describeArgs writes arguments so that a test can read them.
func describeArgs(args []argument) string {
	var parts []string
	for _, a := range args {
		text := a.name + ":" + a.kind
		if a.token != "" {
			text = a.token + "=" + text
		}
		if a.inner != nil {
			text = a.kind + "(" + describeArgs(a.inner) + ")"
		}
		if a.optional {
			text += "?"
		}
		if a.multiple {
			text += "*"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

func TestParseSyntax(t *testing.T) {
	for _, c := range []struct{ syntax, want string }{
		{"", ""},
		{"key", "key:key"},
		{"key capacity rate [cost] [PEEK | FORCE | ATMOST]",
			"key:key capacity:string rate:string cost:string? oneof(PEEK=peek:pure-token FORCE=force:pure-token ATMOST=atmost:pure-token)?"},
		{"key [key ...]", "key:key*"},
		{"key [key …]", "key:key*"},
		{"[section ...]", "section:string?*"},
		{"pattern [pattern ...]", "pattern:pattern*"},
		{"parameter value [parameter value ...]", "parameter:string value:string*"},
		{"subcommand [argument ...]", "subcommand:string argument:string?*"},
		{"cursor [MATCH pattern] [COUNT count]", "cursor:string MATCH=pattern:pattern? COUNT=count:string?"},
		{"<ON | OFF> [OPTIN]", "oneof(ON=on:pure-token OFF=off:pure-token) OPTIN=optin:pure-token?"},
		{"[username] password", "username:string? password:string"},
		{"[protover [AUTH username password] [SETNAME clientname]]",
			"block(protover:string block(AUTH=username:string password:string)? SETNAME=clientname:string?)?"},
		{"<ns | REAL>", "oneof(ns:string REAL=real:pure-token)"},
		{"[FILTERBY <MODULE name | PATTERN pattern>]", "block(FILTERBY=filterby:pure-token oneof(MODULE=name:string PATTERN=pattern:pattern))?"},
	} {
		if got := describeArgs(parseSyntax(c.syntax)); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.syntax, got, c.want)
		}
	}
}

var update = flag.Bool("update", false, "write docs/commands.md anew from the table")

const documented = "../../docs/commands.md"

// The documentation is made from the table. When this fails, run
// go test ./server/command -run Documentation -update
func TestDocumentationIsUpToDate(t *testing.T) {
	want := Markdown()
	if *update {
		if err := os.WriteFile(documented, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(documented)
	if err != nil {
		t.Fatalf("%v: make it with go test ./server/command -run Documentation -update", err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the table says: go test ./server/command -run Documentation -update", documented)
	}
	for _, c := range commands.all {
		if !strings.Contains(want, strings.ToUpper(strings.ReplaceAll(c.full, "|", " "))) {
			t.Errorf("%s is not documented", c.full)
		}
	}
}
