package transport

import (
	"slices"
	"strings"
	"testing"
)

// cuts notes what every Flush was told.
type cuts struct {
	five
	told []bool
}

func (c *cuts) Flush(out []byte, cut bool) ([]byte, bool, error) {
	c.told = append(c.told, cut)
	return c.five.Flush(out, cut)
}

// TestASessionLearnsThatAPipelineWasCut: what it answers to the first part of a
// pipeline may decide whether the client sends all of it again.
func TestASessionLearnsThatAPipelineWasCut(t *testing.T) {
	many := strings.Repeat("EXISTS"+strings.Repeat(" a", 60)+"\r\n", 600)
	for _, c := range []struct {
		name  string
		input string
		room  int // bytes of the buffer that stay empty
		want  []bool
	}{
		{"one command", "PING\r\n", 8, []bool{false}},
		{"two commands", "PING\r\nPING\r\n", 8, []bool{false}},
		{"a part of a command follows", "PING\r\n*1\r\n$4\r\nPI", 8, []bool{true}},
		{"the buffer is full", "PING\r\nPING\r\n", 0, []bool{true}},
		{"more commands than a batch has", strings.Repeat("PING\r\n", batchCommands+1), 8, []bool{true, false}},
		{"more bytes than a batch has", many, 8, []bool{true, false}},
	} {
		sess := &cuts{}
		conn := &conn{s: newServer(t, Options{}), nc: &memory{}, sess: sess, buf: make([]byte, len(c.input)+c.room)}
		conn.w = copy(conn.buf, c.input)
		if conn.round() || !slices.Equal(sess.told, c.want) {
			t.Errorf("%s: told %v, want %v", c.name, sess.told, c.want)
		}
	}
}
