package command

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/store"
)

// split cuts a line into the words of a command.
func split(line string) [][]byte { return bytes.Fields([]byte(line)) }

func TestEveryCommandIsDescribed(t *testing.T) {
	for _, c := range commands.all {
		if c.full == "" || c.Name != strings.ToLower(c.Name) || len(c.Name) > maxName {
			t.Errorf("%q: the name must be in lower case and not longer than %d", c.full, maxName)
		}
		if c.Summary == "" || strings.HasSuffix(c.Summary, ".") || c.Since == "" || !slices.Contains(Groups, c.Group) {
			t.Errorf("%s: summary %q, since %q, group %q", c.full, c.Summary, c.Since, c.Group)
		}
		n := 0
		for _, has := range []bool{c.Run != nil, c.Conn != nil, c.Sub != nil} {
			if has {
				n++
			}
		}
		if n != 1 && !(n == 2 && c.Conn != nil && c.Sub != nil) {
			t.Errorf("%s: what it does is not said once", c.full)
		}
		if c.Run != nil && c.Flags&(Write|ReadOnly) == 0 {
			t.Errorf("%s: a store command either writes or only reads", c.full)
		}
		if c.Flags&Write != 0 && c.Flags&ReadOnly != 0 || c.Flags&DenyOOM != 0 && c.Flags&Write == 0 {
			t.Errorf("%s: flags %v contradict each other", c.full, c.Flags.names())
		}
		if (c.FirstKey == 0) != (c.Step == 0) || (c.FirstKey == 0) != (c.LastKey == 0) {
			t.Errorf("%s: keys at %d, %d, %d", c.full, c.FirstKey, c.LastKey, c.Step)
		}
	}
}

// The syntax is for people and the arity for the machine: they must say the
// same, and the first key must be what the syntax calls so.
func TestSyntaxAgreesWithArityAndKeys(t *testing.T) {
	for _, c := range commands.all {
		if c.Sub != nil {
			continue
		}
		least, open := 1, false
		if c.outer != nil {
			least = 2
		}
		words := least
		for i, a := range parseSyntax(c.Syntax) {
			if a.kind == "key" && c.FirstKey == 0 && c.outer == nil {
				t.Errorf("%s: the syntax has a key, the row has none", c.full)
			}
			if i == c.FirstKey-words && a.kind != "key" {
				t.Errorf("%s: argument %d is no key in %q", c.full, i, c.Syntax)
			}
			if a.optional || a.multiple {
				open = true
			}
			if !a.optional {
				least += a.least()
			}
		}
		want := least
		if open {
			want = -least
		}
		if c.Arity != want {
			t.Errorf("%s %s: arity %d, the syntax says %d", c.full, c.Syntax, c.Arity, want)
		}
	}
}

// least is the smallest number of words that the argument can be.
func (a argument) least() int {
	n := 0
	switch a.kind {
	case "oneof":
		n = 1 << 30
		for _, inner := range a.inner {
			n = min(n, inner.least())
		}
	case "block":
		for _, inner := range a.inner {
			if !inner.optional {
				n += inner.least()
			}
		}
	default:
		n = 1
		if a.token != "" && a.kind != "pure-token" {
			n = 2
		}
	}
	return n
}

func TestFindIgnoresCase(t *testing.T) {
	for _, c := range commands.all {
		args := bytes.Split([]byte(c.full), []byte("|"))
		for len(args) < c.Arity || len(args) < -c.Arity {
			args = append(args, []byte("x"))
		}
		if c.Sub != nil && c.outer == nil && c.Conn == nil {
			continue
		}
		for _, change := range []func([]byte) []byte{bytes.ToLower, bytes.ToUpper, mixedCase} {
			for i := range strings.Count(c.full, "|") + 1 {
				args[i] = change(args[i])
			}
			if got, line := Find(args); got != c {
				t.Errorf("%q: found %v, %s", args, got, line)
			}
		}
		if At(c.Index()) != c {
			t.Errorf("%s: its index is another's", c.full)
		}
	}
}

func TestFindRefuses(t *testing.T) {
	long := strings.Repeat("x", 300)
	cases := []struct {
		args []string
		line string
	}{
		{nil, "ERR empty command"},
		{[]string{""}, "ERR unknown command '', with args beginning with: "},
		{[]string{"nope", "a", "b"}, "ERR unknown command 'nope', with args beginning with: 'a' 'b' "},
		{[]string{"pin"}, "ERR unknown command 'pin', with args beginning with: "},
		{[]string{"pingg"}, "ERR unknown command 'pingg', with args beginning with: "},
		{[]string{"client|id"}, "ERR unknown command 'client|id', with args beginning with: "},
		{[]string{"a\r\n+OK\r\n", "b'\x00"}, `ERR unknown command 'a\r\n+OK\r\n', with args beginning with: 'b\'\x00' `},
		{[]string{long}, "ERR unknown command '" + long[:64] + "'..., with args beginning with: "},
		{[]string{"x", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, "ERR unknown command 'x', with args beginning with: '1' '2' '3' '4' '5' '6' '7' '8' "},
		{[]string{"ECHO"}, "ERR wrong number of arguments for 'echo' command"},
		{[]string{"ECHO", "a", "b"}, "ERR wrong number of arguments for 'echo' command"},
		{[]string{"AUTH"}, "ERR wrong number of arguments for 'auth' command"},
		{[]string{"CLIENT"}, "ERR wrong number of arguments for 'client' command"},
		{[]string{"CLIENT", "ID", "x"}, "ERR wrong number of arguments for 'client|id' command"},
		{[]string{"CLIENT", "SETNAME"}, "ERR wrong number of arguments for 'client|setname' command"},
		{[]string{"CLIENT", "bad\n"}, `ERR unknown subcommand 'bad\n'. Try CLIENT HELP.`},
		{[]string{"CONFIG", "SET", "a"}, "ERR wrong number of arguments for 'config|set' command"},
		{[]string{"COMMAND", "NOPE"}, "ERR unknown subcommand 'NOPE'. Try COMMAND HELP."},
		{[]string{"CLUSTER", "COUNTKEYSINSLOT", "1"}, "ERR unknown subcommand 'COUNTKEYSINSLOT'. Try CLUSTER HELP."},
	}
	for _, c := range cases {
		var args [][]byte
		for _, a := range c.args {
			args = append(args, []byte(a))
		}
		if cmd, line := Find(args); cmd != nil || line != c.line {
			t.Errorf("%q: %v, %q, want %q", c.args, cmd, line, c.line)
		}
	}
}

func TestTwoCommandsOfOneNameAreRefused(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the table takes a name twice")
		}
	}()
	newTable([]Command{{Name: "a"}, {Name: "b"}}, []Command{{Name: "a"}})
}

func TestExecutorRunsOnTheRequestsDatabase(t *testing.T) {
	ks, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tx := ks.Begin(1)
	defer tx.End()
	var e Executor
	run := func(db uint8, line string) string {
		args := split(line)
		cmd, wire := Find(args)
		if cmd == nil {
			t.Fatal(wire)
		}
		return string(e.Execute(tx, []store.Request{{Args: args, Cmd: cmd.Index(), DB: db, Proto: 2}}, []byte("x")))
	}
	run(3, "THROTTLE k 10 1 4")
	if got := run(3, "EXISTS k"); got != "x:1\r\n" {
		t.Errorf("in database 3: %q", got)
	}
	if got := run(0, "EXISTS k"); got != "x:0\r\n" {
		t.Errorf("in database 0: %q", got)
	}
}

func TestExecutorRefusesWhatIsNoStoreCommand(t *testing.T) {
	var e Executor
	ping, _ := Find(split("PING"))
	for _, index := range []int32{-1, ping.Index(), int32(len(commands.all)), 1 << 30} {
		got := e.Execute(nil, []store.Request{{Args: split("x"), Cmd: index}}, nil)
		if string(got) != "-"+ErrInternal+"\r\n" {
			t.Errorf("index %d: %q", index, got)
		}
	}
}

// mixedCase puts every other byte in upper case.
func mixedCase(name []byte) []byte {
	out := bytes.ToLower(name)
	for i := 0; i < len(out); i += 2 {
		copy(out[i:], bytes.ToUpper(out[i:i+1]))
	}
	return out
}
