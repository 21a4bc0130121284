package command

import (
	"strings"

	"github.com/stint-dev/stint/server/resp"
)

// argument is one part of a command's syntax, as COMMAND DOCS replies it:
// redis-cli and libraries make their hints from it.
type argument struct {
	name     string
	kind     string // string, key, pattern, pure-token, oneof, block
	token    string // the word that stands before the value, or is all
	optional bool
	multiple bool
	inner    []argument // of oneof and block
}

// parseSyntax reads the syntax of a row of the table. Words in upper case stand
// for themselves, others for a value; a word followed by a value is its token;
// [a] may be left out, <a | b> and [a | b] are choices, [a ...] repeats what
// stands before it.
func parseSyntax(syntax string) []argument {
	syntax = strings.ReplaceAll(syntax, "…", "...")
	for _, mark := range []string{"[", "]", "<", ">", "|"} {
		syntax = strings.ReplaceAll(syntax, mark, " "+mark+" ")
	}
	p := syntaxParser{words: strings.Fields(syntax)}
	return p.list("")
}

type syntaxParser struct {
	words []string
	at    int
}

// next is the word at hand, "" after the last.
func (p *syntaxParser) next() string {
	if p.at < len(p.words) {
		return p.words[p.at]
	}
	return ""
}

// list reads arguments until the closing mark, which it takes.
func (p *syntaxParser) list(end string) []argument {
	var out, choices []argument
	for p.next() != "" && p.next() != end {
		switch word := p.next(); {
		case word == "|":
			p.at++
			choices = append(choices, group("block", out))
			out = nil
		case word == "[":
			p.at++
			inner := p.list("]")
			if n := len(inner); n > 0 && len(out) > 0 && inner[n-1].name == "..." {
				// What repeats is said before: "key [key ...]".
				out[len(out)-1].multiple = true
				continue
			}
			a := group("block", inner)
			a.optional = true
			out = append(out, a)
		case word == "<":
			p.at++
			out = append(out, group("block", p.list(">")))
		case word == "...":
			p.at++
			if end == "]" && len(choices) == 0 && len(out) == 1 && p.repeats(out[0]) {
				out[0].multiple = true // "[argument ...]"
				continue
			}
			out = append(out, argument{name: word})
		default:
			out = append(out, p.word())
		}
	}
	p.at++
	if choices == nil {
		return out
	}
	choices = append(choices, group("block", out))
	return []argument{group("oneof", choices)}
}

// repeats says whether "a ..." inside brackets stands for itself: the argument
// before the bracket is another one.
func (p *syntaxParser) repeats(a argument) bool {
	// The words are: … before "[" a "...". The one before the bracket is four
	// back from the one after the dots.
	before := p.at - 4
	return before < 0 || !strings.EqualFold(p.words[before], a.name)
}

// word reads a word that is no mark, and the value after it if it is a token.
func (p *syntaxParser) word() argument {
	word := p.words[p.at]
	p.at++
	if word != strings.ToUpper(word) {
		return value(word)
	}
	next := p.next()
	if next == "" || strings.ContainsAny(next, "[]<>|.") || next == strings.ToUpper(next) {
		return argument{name: strings.ToLower(word), kind: "pure-token", token: word}
	}
	p.at++
	a := value(next)
	a.token = word
	return a
}

// value is an argument that stands for what a user puts there.
func value(name string) argument {
	kind := "string"
	switch name {
	case "key", "pattern":
		kind = name
	}
	return argument{name: name, kind: kind}
}

// group makes one argument of several; of one, that one.
func group(kind string, inner []argument) argument {
	if len(inner) == 1 {
		return inner[0]
	}
	return argument{name: kind, kind: kind, inner: inner}
}

// writeArguments writes the list as COMMAND DOCS has it.
func writeArguments(w *resp.Writer, args []argument) {
	w.Array(len(args))
	for _, a := range args {
		var flags []string
		if a.optional {
			flags = append(flags, "optional")
		}
		if a.multiple {
			flags = append(flags, "multiple")
		}
		n := 2
		for _, has := range []bool{a.inner == nil && a.kind != "pure-token", a.kind == "key", a.token != "", flags != nil, a.inner != nil} {
			if has {
				n++
			}
		}
		w.Map(n)
		w.BulkString("name")
		w.BulkString(a.name)
		w.BulkString("type")
		w.BulkString(a.kind)
		if a.inner == nil && a.kind != "pure-token" {
			w.BulkString("display_text")
			w.BulkString(a.name)
		}
		if a.kind == "key" {
			w.BulkString("key_spec_index")
			w.Int(0)
		}
		if a.token != "" {
			w.BulkString("token")
			w.BulkString(a.token)
		}
		if flags != nil {
			w.BulkString("flags")
			words(w, flags)
		}
		if a.inner != nil {
			w.BulkString("arguments")
			writeArguments(w, a.inner)
		}
	}
}
