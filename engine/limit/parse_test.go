package limit

import (
	"math/big"
	"regexp"
	"strings"
	"testing"
)

func TestParseRate(t *testing.T) {
	const most = "9007199254740991" // 2^53−1
	for _, c := range []struct {
		in   string
		want Rate // zero: refused
	}{
		{"5", Rate{5, second}},
		{"005", Rate{5, second}},
		{"100/m", Rate{100, minute}},
		{"100/60s", Rate{100, minute}},
		{"7/250ms", Rate{7, 250 * millisecond}},
		{"3/7w", Rate{3, 7 * week}},
		{"1/d", Rate{1, day}},
		{"1/2h", Rate{1, 2 * hour}},
		{"0.1", Rate{1, 10 * second}},
		{"1.50", Rate{150, 100 * second}}, // never reduced
		{"2/2s", Rate{2, 2 * second}},
		{"0.000000001", Rate{1, 1_000_000_000 * second}},
		{"0.123456789/ms", Rate{123456789, 1_000_000_000 * millisecond}},
		{most, Rate{MaxUnits, second}},
		{"000000000000000000000000" + most, Rate{MaxUnits, second}},
		{"9007199254740992", Rate{}},
		{"900719925474099.1", Rate{MaxUnits, 10 * second}},
		{"900719925474099.2", Rate{}},
		{"9007199254740990.1", Rate{}},
		{"99999999999999999999999999", Rate{}},
		{"1/9223372036854ms", Rate{1, 9223372036854 * millisecond}},
		{"1/9223372036855ms", Rate{}}, // 2^63 ns and more
		{"1/9223372036854775807ms", Rate{}},
		{"1/9223372036854775808ms", Rate{}},
		{"1/99999999999999999999999999ms", Rate{}},
		{"0.1/922337203685ms", Rate{1, 9_223_372_036_850 * millisecond}},
		{"0.1/922337203686ms", Rate{}},
		{"0.000000001/9s", Rate{1, 9_000_000_000 * second}},
		{"0.000000001/10s", Rate{}},
		{"0.000000001/9223372036s", Rate{}},
		{"0.000000001/20000ms", Rate{}}, // a little above 2^64, so that its low word is in bounds
		{"", Rate{}}, {"0", Rate{}}, {"0.0", Rate{}}, {"0/s", Rate{}},
		{"1/", Rate{}}, {"1/0s", Rate{}}, {"/m", Rate{}}, {"1/60", Rate{}},
		{"1/1.5s", Rate{}}, {"1/-1s", Rate{}}, {"1/S", Rate{}}, {"1/us", Rate{}},
		{"1/sm", Rate{}}, {"1/mss", Rate{}}, {"1/ s", Rate{}}, {"1//s", Rate{}},
		{"1.", Rate{}}, {".1", Rate{}}, {"1./s", Rate{}}, {"1.0000000000", Rate{}}, {"1.0000000000/ms", Rate{}},
		{"1.2.3", Rate{}}, {"-1", Rate{}}, {"+1", Rate{}}, {" 1", Rate{}}, {"1 ", Rate{}},
		{"NaN", Rate{}}, {"inf", Rate{}}, {"1e3", Rate{}}, {"0x10", Rate{}}, {"1_000", Rate{}},
		{"5/x", Rate{}}, {"1\x00", Rate{}}, {"１", Rate{}},
	} {
		got, ok := ParseRate([]byte(c.in))
		if got != c.want || ok != (c.want != Rate{}) {
			t.Errorf("ParseRate(%q) = %v, %v, want %v", c.in, got, ok, c.want)
		}
	}
}

func TestParsePeriod(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64 // 0: refused
	}{
		{"60", minute}, {"1", second}, {"007", 7 * second},
		{"30s", 30 * second}, {"250ms", 250 * millisecond}, {"m", minute}, {"ms", millisecond},
		{"1h", hour}, {"1d", day}, {"1w", week}, {"w", week}, {"s", second},
		{"1ms", MinPeriod},
		{"2305843009", 2305843009 * second},
		{"2305843010", 0}, // above 2^61 ns
		{"2305843009213ms", 2305843009213 * millisecond},
		{"2305843009214ms", 0},
		{"9223372036854775807", 0}, {"18446744073710", 0}, {"99999999999999999999", 0},
		{"", 0}, {"0", 0}, {"0s", 0}, {"0ms", 0}, {"-1s", 0}, {"+1s", 0}, {"1.5s", 0}, {"1 s", 0},
		{" 1s", 0}, {"1S", 0}, {"1us", 0}, {"1ns", 0}, {"1y", 0}, {"s1", 0}, {"1sm", 0}, {"0x1s", 0},
	} {
		got, ok := ParsePeriod([]byte(c.in))
		if got != c.want || ok != (c.want != 0) {
			t.Errorf("ParsePeriod(%q) = %d, %v, want %d", c.in, got, ok, c.want)
		}
	}
}

func TestParseUnits(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64 // −1: refused
	}{
		{"0", 0}, {"1", 1}, {"0010", 10},
		{"9007199254740991", MaxUnits}, {"9007199254740992", -1},
		{"0000000000000000000009007199254740991", MaxUnits},
		{"90071992547409910", -1}, {"18446744073709551617", -1},
		{"", -1}, {"-1", -1}, {"+1", -1}, {" 1", -1}, {"1 ", -1}, {"1.0", -1}, {"1e1", -1},
		{"0x1", -1}, {"a", -1}, {"1/", -1}, {"1:", -1},
	} {
		got, ok := ParseUnits([]byte(c.in))
		if ok != (c.want >= 0) || ok && got != c.want {
			t.Errorf("ParseUnits(%q) = %d, %v, want %d", c.in, got, ok, c.want)
		}
	}
}

var unitNs = map[string]int64{
	"ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9, "d": 86400e9, "w": 7 * 86400e9,
}

// spanOf is N of the unit in ns, N being 1 where there is no number.
func spanOf(n, unit string) *big.Int {
	v := big.NewInt(1)
	if n != "" {
		v.SetString(n, 10)
	}
	return v.Mul(v, big.NewInt(unitNs[unit]))
}

var rateGrammar = regexp.MustCompile(`\A([0-9]+)(?:\.([0-9]{1,9}))?(?:/([0-9]*)(ms|s|m|h|d|w))?\z`)

// FuzzParseRate compares with the grammar as a regular expression and big
// numbers.
func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"5", "100/m", "7/250ms", "0.000000001/9s", "1/0s", "9007199254740991/w", "1.0000000000", "1/9223372036855ms"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var want Rate
		ok := false
		if m := rateGrammar.FindSubmatch(b); m != nil {
			count, _ := new(big.Int).SetString(string(m[1])+string(m[2]), 10)
			unit := string(m[4])
			if unit == "" {
				unit = "s"
			}
			period := spanOf(string(m[3]), unit)
			period.Mul(period, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(m[2]))), nil))
			if count.Sign() > 0 && count.BitLen() <= 53 && period.Sign() > 0 && period.BitLen() <= 63 {
				want, ok = Rate{count.Int64(), period.Int64()}, true
			}
		}
		if got, gotOK := ParseRate(b); got != want || gotOK != ok {
			t.Fatalf("ParseRate(%q) = %v, %v, want %v, %v", b, got, gotOK, want, ok)
		}
	})
}

var periodGrammar = regexp.MustCompile(`\A(?:([0-9]+)|([0-9]*)(ms|s|m|h|d|w))\z`)

// FuzzParsePeriod compares with the grammar as a regular expression and big
// numbers, and reads units by the way.
func FuzzParsePeriod(f *testing.F) {
	for _, s := range []string{"60", "m", "250ms", "2305843010", "0s", "1w", "9007199254740992"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		want, ok := int64(0), false
		if m := periodGrammar.FindSubmatch(b); m != nil {
			unit := string(m[3])
			if unit == "" {
				unit = "s"
			}
			ns := spanOf(string(m[1])+string(m[2]), unit)
			if ns.Cmp(big.NewInt(MinPeriod)) >= 0 && ns.Cmp(big.NewInt(MaxPeriod)) <= 0 {
				want, ok = ns.Int64(), true
			}
		}
		if got, gotOK := ParsePeriod(b); got != want || gotOK != ok {
			t.Fatalf("ParsePeriod(%q) = %v, %v, want %v, %v", b, got, gotOK, want, ok)
		}
		want, ok = 0, false
		if len(b) > 0 && strings.Trim(string(b), "0123456789") == "" {
			if v, _ := new(big.Int).SetString(string(b), 10); v.BitLen() <= 53 {
				want, ok = v.Int64(), true
			}
		}
		if got, gotOK := ParseUnits(b); got != want || gotOK != ok {
			t.Fatalf("ParseUnits(%q) = %v, %v, want %v, %v", b, got, gotOK, want, ok)
		}
	})
}
