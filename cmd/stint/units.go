package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/server"
)

// Integer is a number from 0 on, written in decimal digits and nothing else:
// what a type of Go's would also take for a number, 010 as 8 or 1_0, is a slip.
type Integer int64

// UnmarshalText parses an integer; the error says what is allowed.
func (i *Integer) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 63)
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%q is too large a number", text)
	}
	if err != nil {
		return fmt.Errorf("%q is not a whole number: want decimal digits only", text)
	}
	*i = Integer(n)
	return nil
}

// Size is a number of bytes as people write it: 1048576, 512MiB, 1.5GiB, 1GB.
type Size int64

// sizeUnits are those that String writes, from the largest to the smallest.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9},
	{"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"KB", 1e3},
}

// UnmarshalText parses a size; the error says what is allowed.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := server.ParseSize(string(text))
	if err != nil {
		return err
	}
	*s = Size(n)
	return nil
}

// String writes the size with the largest unit that divides it.
func (s Size) String() string {
	if s == 0 {
		return "0"
	}
	for _, u := range sizeUnits {
		if int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Duration is a length of time as people write it: 1s, 250ms, 1h30m, or plain
// seconds as in Redis's own configuration.
type Duration time.Duration

// UnmarshalText parses a duration; the error says what is allowed.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := server.ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = Duration(parsed)
	return nil
}

// String writes the duration in Go's notation without trailing zero units:
// 1s, 5m, 1h30m.
func (d Duration) String() string {
	if d == 0 {
		return "0"
	}
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
