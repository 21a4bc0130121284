package load

import (
	"math"
	"testing"
	"time"
)

func TestReplyIsMeasuredExactly(t *testing.T) {
	for _, tc := range []struct {
		in      string
		first   int64
		has     bool
		failure string
	}{
		{in: "+OK\r\n"},
		{in: ":7\r\n", first: 7, has: true},
		{in: ":-1\r\n", first: -1, has: true},
		{in: "$5\r\na\r\nbc\r\n"},
		{in: "$0\r\n\r\n"},
		{in: "$-1\r\n"},
		{in: "*-1\r\n"},
		{in: "*0\r\n"},
		{in: "*5\r\n:0\r\n:20\r\n:3\r\n:-1\r\n:50\r\n", first: 0, has: true},
		{in: "*2\r\n:1\r\n*2\r\n:9\r\n+x\r\n", first: 1, has: true},
		{in: "*2\r\n+x\r\n:9\r\n"},
		{in: "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n"},
		{in: "%1\r\n:1\r\n:2\r\n"},
		{in: ":999999999999999999\r\n", first: 999999999999999999, has: true},
		{in: "|1\r\n+k\r\n:1\r\n:5\r\n"},
		{in: "~1\r\n,1.5\r\n"},
		{in: "_\r\n"},
		{in: "-ERR no\r\n", failure: "ERR no"},
		{in: "!6\r\nERR no\r\n", failure: "ERR no"},
		{in: "*2\r\n:1\r\n-OOM full\r\n", first: 1, has: true, failure: "OOM full"},
	} {
		r, n := nextReply([]byte(tc.in + ":99\r\n"))
		if n != len(tc.in) || r.hasFirst != tc.has || r.first != tc.first || string(r.failure) != tc.failure {
			t.Errorf("%q: %d bytes, %+v", tc.in, n, r)
		}
		for cut := range len(tc.in) {
			if _, n := nextReply([]byte(tc.in[:cut])); n != 0 {
				t.Errorf("%q cut to %q: %d bytes, want incomplete", tc.in, tc.in[:cut], n)
			}
		}
	}
	for _, in := range []string{"\r\n", "OK\r\n", ":x\r\n", ":\r\n", ":1\n", "$-2\r\n", "$99999999\r\n", "*-2\r\n", ":9999999999999999999\r\n", "*1234567890123456789\r\n", "?\r\n"} {
		if _, n := nextReply([]byte(in)); n != -1 {
			t.Errorf("%q: %d, want it refused", in, n)
		}
	}
	in := []byte("*5\r\n:1\r\n:20\r\n:19\r\n:0\r\n:50\r\n")
	if allocs := testing.AllocsPerRun(100, func() { nextReply(in) }); allocs != 0 {
		t.Errorf("%v allocations a reply", allocs)
	}
}

func TestCommandIsEncodedWithItsKeyInPlace(t *testing.T) {
	p := encode([]string{"SET", "k:" + Placeholder, "<" + Placeholder + ">" + Placeholder}, 2)
	p.setKey(0, 7)
	p.setKey(1, 123456789012)
	want := "*3\r\n$3\r\nSET\r\n$14\r\nk:000000000007\r\n$26\r\n<000000000007>000000000007\r\n" +
		"*3\r\n$3\r\nSET\r\n$14\r\nk:123456789012\r\n$26\r\n<123456789012>123456789012\r\n"
	if string(p.bytes) != want || p.size*2 != len(want) {
		t.Fatalf("%q", p.bytes)
	}
}

func TestSharesAddUpToTheWhole(t *testing.T) {
	for total := range int64(20) {
		for n := 1; n < 7; n++ {
			next := int64(0)
			for i := range n {
				from, part := share(total, i, n)
				if from != next || part < total/int64(n) || part > total/int64(n)+1 {
					t.Fatalf("share %d of %d of %d: from %d, %d", i, n, total, from, part)
				}
				next += part
			}
			if next != total {
				t.Fatalf("%d shares of %d add up to %d", n, total, next)
			}
		}
	}
}

func TestConfigThatMakesNoSenseIsRefused(t *testing.T) {
	good := Config{Command: []string{"PING"}, Conns: 2, Pipeline: 1, Loops: 2, Keys: 1, Requests: 1}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Config){
		"no command":          func(c *Config) { c.Command = nil },
		"no connection":       func(c *Config) { c.Conns = 0 },
		"no pipeline":         func(c *Config) { c.Pipeline = 0 },
		"no loop":             func(c *Config) { c.Loops = 0 },
		"too many loops":      func(c *Config) { c.Loops = 3 },
		"no keys":             func(c *Config) { c.Keys = 0 },
		"too many keys":       func(c *Config) { c.Keys = maxKeys + 1 },
		"no bound":            func(c *Config) { c.Requests = 0 },
		"two bounds":          func(c *Config) { c.Duration = time.Second },
		"keys past 12 digits": func(c *Config) { c.First = maxKeys },
		"negative first":      func(c *Config) { c.First = -1 },
		"negative zipf":       func(c *Config) { c.Zipf = -1 },
		"zipf in turn":        func(c *Config) { c.Zipf, c.Sequential = 1, true },
		"zipf of too many":    func(c *Config) { c.Zipf, c.Keys = 1, maxZipfKeys+1 },
		"negative rate":       func(c *Config) { c.Rate = -1 },
		"no rate at all":      func(c *Config) { c.Rate = math.NaN() },
		"open pipeline":       func(c *Config) { c.Rate, c.Pipeline = 1, 2 },
		"negative time":       func(c *Config) { c.Timeout = -1 },
		"negative bounds":     func(c *Config) { c.Requests = -1; c.Duration = time.Second },
	} {
		c := good
		spoil(&c)
		if err := c.Validate(); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
