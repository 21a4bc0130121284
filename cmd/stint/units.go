package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes as people write it: 1048576, 512MiB, 1GB. The
// units with an i are powers of 1,024, those without are powers of 1,000.
type Size int64

// sizeUnits is ordered from the largest to the smallest, so that String finds
// the largest unit that divides a size.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// UnmarshalText parses a size; the error says what is allowed.
func (s *Size) UnmarshalText(text []byte) error {
	written := strings.TrimSpace(string(text))
	digits := strings.TrimRight(written, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.TrimSpace(written[len(digits):])
	factor := int64(1)
	if unit != "" {
		factor = 0
		for _, u := range sizeUnits {
			if strings.EqualFold(u.name, unit) {
				factor = u.bytes
			}
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || factor == 0 || int64(n) > math.MaxInt64/factor {
		return fmt.Errorf("%q is not a size: want bytes (1048576) or a number with a unit (512MiB, 1GB)", written)
	}
	*s = Size(int64(n) * factor)
	return nil
}

// String writes the size with the largest unit that divides it.
func (s Size) String() string {
	if s == 0 {
		return "0"
	}
	for _, u := range sizeUnits {
		if int64(s)%u.bytes == 0 && u.bytes > 1 {
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
	written := strings.TrimSpace(string(text))
	if n, err := strconv.ParseUint(written, 10, 32); err == nil {
		*d = Duration(time.Duration(n) * time.Second)
		return nil
	}
	parsed, err := time.ParseDuration(written)
	if err != nil || parsed < 0 {
		return fmt.Errorf("%q is not a duration: want a number with a unit (250ms, 30s, 5m, 1h) or plain seconds (30)", written)
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
