package command

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"sync"
)

// maxErrorKinds bounds the first words of errors that are counted apart. There
// are about ten; more would mean that a client's text begins an error.
const maxErrorKinds = 64

// errorKinds counts the errors that were replied, by their first word. The
// zero value is ready; any number of goroutines may use one.
type errorKinds struct {
	mu    sync.Mutex
	kinds map[string]int64
}

// add counts an error; line is the reply without its sign.
func (e *errorKinds) add(line []byte) {
	word := line
	if i := bytes.IndexAny(line, " \r\n"); i >= 0 {
		word = line[:i]
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.kinds == nil {
		e.kinds = map[string]int64{}
	}
	if _, known := e.kinds[string(word)]; !known && len(e.kinds) >= maxErrorKinds {
		return
	}
	e.kinds[string(word)]++
}

func (e *errorKinds) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.kinds)
}

// total is how many errors were counted.
func (e *errorKinds) total() (n int64) {
	for _, kind := range e.list() {
		n += kind.n
	}
	return n
}

// kindCount is how often errors began with a word.
type kindCount struct {
	word string
	n    int64
}

// list is the counts by word, in the order of the alphabet.
func (e *errorKinds) list() []kindCount {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []kindCount
	for _, word := range slices.SortedFunc(maps.Keys(e.kinds), strings.Compare) {
		out = append(out, kindCount{word, e.kinds[word]})
	}
	return out
}

// Failed counts a command that was run and replied an error. reply begins with
// the error's sign.
func (s *Server) Failed(cmd int32, reply []byte) {
	s.errors.add(reply[1:])
	if cmd >= 0 && int(cmd) < len(commands.all) {
		s.usage.shard(0).use(cmd).failed.Add(1)
	}
}

// Refused counts a command that a session refuses with the error line without
// running it: unknown, of wrong arity, or before authentication.
func (s *Server) Refused(args [][]byte, line string) {
	s.errors.add([]byte(line))
	if len(args) == 0 {
		return
	}
	c := commands.find(args[0])
	if c != nil && c.Sub != nil && len(args) > 1 {
		c = c.sub(args[1])
	}
	if c != nil {
		s.usage.shard(0).use(c.index).rejected.Add(1)
	}
}
