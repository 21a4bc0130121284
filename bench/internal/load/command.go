package load

import (
	"strconv"
	"strings"
)

// Placeholder stands for a key number in an argument, as in redis-benchmark:
// it becomes 12 digits.
const Placeholder = "__rand_int__"

const keyDigits = len(Placeholder)

// pipeline is a number of equal commands, encoded once. Only the digits of the
// key numbers change between sends.
type pipeline struct {
	bytes []byte
	size  int   // bytes of one command
	slots []int // where the digits of a command's key numbers begin
}

// encode makes a pipeline of depth commands.
func encode(args []string, depth int) *pipeline {
	one := []byte("*" + strconv.Itoa(len(args)) + "\r\n")
	var slots []int
	for _, arg := range args {
		one = append(one, "$"+strconv.Itoa(len(arg))+"\r\n"...)
		for from := 0; ; {
			at := strings.Index(arg[from:], Placeholder)
			if at < 0 {
				break
			}
			slots = append(slots, len(one)+from+at)
			from += at + keyDigits
		}
		one = append(one, arg+"\r\n"...)
	}
	p := &pipeline{size: len(one), slots: slots}
	for range depth {
		p.bytes = append(p.bytes, one...)
	}
	return p
}

// setKey writes number key into command i, its last 12 digits.
func (p *pipeline) setKey(i int, key uint64) {
	for _, slot := range p.slots {
		at := i*p.size + slot
		digits := p.bytes[at : at+keyDigits]
		for j, v := keyDigits-1, key; j >= 0; j-- {
			digits[j] = '0' + byte(v%10)
			v /= 10
		}
	}
}
