package server

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// unit is a unit of sizes and its bytes.
type unit struct {
	name  string // lower case
	bytes int64
}

// sizeUnits are those of the options: with an i a power of 1,024, without a
// power of 1,000.
var sizeUnits = []unit{
	{"tib", 1 << 40}, {"gib", 1 << 30}, {"mib", 1 << 20}, {"kib", 1 << 10},
	{"tb", 1e12}, {"gb", 1e9}, {"mb", 1e6}, {"kb", 1e3},
	{"t", 1e12}, {"g", 1e9}, {"m", 1e6}, {"k", 1e3},
	{"b", 1}, {"", 1},
}

// redisUnits are looked at before sizeUnits where a program or a person that
// knows Redis speaks: there, kb, mb and gb are powers of 1,024.
var redisUnits = []unit{{"gb", 1 << 30}, {"mb", 1 << 20}, {"kb", 1 << 10}}

// maxDecimals bounds the digits after the point of a size, so that they,
// times a unit, fit: 10^6 TiB is below 2^60.
const maxDecimals = 6

// ParseSize reads a number of bytes as the options have it: 1048576, 512MiB,
// 1.5GiB, 1GB, 2g, in any case. Part of a byte is dropped. The error is a
// sentence that says what is allowed.
func ParseSize(text string) (int64, error) { return parseSize(text, nil) }

// parseSize is ParseSize with units that come before those of the options.
func parseSize(text string, more []unit) (int64, error) {
	written := strings.TrimSpace(text)
	wrong := fmt.Errorf("%q is not a size: want bytes (1048576) or a number with a unit (512MiB, 1.5GiB, 1GB)", written)
	number := strings.TrimRight(written, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	name := strings.ToLower(strings.TrimSpace(written[len(number):]))
	factor := int64(0)
	for _, units := range [][]unit{more, sizeUnits} {
		for _, u := range units {
			if factor == 0 && u.name == name {
				factor = u.bytes
			}
		}
	}
	whole, decimals, point := strings.Cut(number, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || factor == 0 || int64(n) > math.MaxInt64/factor {
		return 0, wrong
	}
	size := int64(n) * factor
	if !point {
		return size, nil
	}
	part, err := strconv.ParseUint(decimals, 10, 63)
	if err != nil || len(decimals) > maxDecimals || factor == 1 {
		return 0, wrong
	}
	scale := int64(1)
	for range decimals {
		scale *= 10
	}
	rest := int64(part) * factor / scale // less than factor
	if size > math.MaxInt64-rest {
		return 0, wrong
	}
	return size + rest, nil
}

// ParseDuration reads a length of time as the options have it: 250ms, 30s, 5m,
// 1h30m, or plain seconds as in Redis's own configuration. The error is a
// sentence that says what is allowed.
func ParseDuration(text string) (time.Duration, error) {
	written := strings.TrimSpace(text)
	if n, err := strconv.ParseUint(written, 10, 32); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	d, err := time.ParseDuration(written)
	if err != nil || d < 0 || written[0] == '+' {
		return 0, fmt.Errorf("%q is not a duration: want a number with a unit (250ms, 30s, 5m, 1h) or plain seconds (30)", written)
	}
	return d, nil
}

// formatSeconds writes a duration as ParseDuration reads it: in plain seconds
// where it can be, for tools that expect a number.
func formatSeconds(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10)
	}
	return d.String()
}
