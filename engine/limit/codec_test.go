package limit

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func logOf(entries ...int64) *Log {
	g := new(Log)
	for i := 0; i < len(entries); i += 2 {
		g.append(entries[i], entries[i+1])
	}
	return g
}

// entries is the content of a value with its log written out, for comparing.
func entries(v Value) (Value, []oracleEntry) {
	var out []oracleEntry
	for i := range v.Log.Len() {
		at, cost := v.Log.At(i)
		out = append(out, oracleEntry{at, cost})
	}
	v.Log = nil
	return v, out
}

func sameValue(a, b Value) bool {
	av, ae := entries(a)
	bv, be := entries(b)
	return av == bv && reflect.DeepEqual(ae, be)
}

// TestValueFormat pins the stored form: files hold it. A change of it needs a
// new ValueFormat and a decoder for both.
func TestValueFormat(t *testing.T) {
	for _, c := range []struct {
		v    Value
		want string
	}{
		{Value{Kind: KindBucket, Limit: Params{10, 20, second}, W: [3]int64{1_764_500_000_123_456_789, 7}},
			"01 0a 14 8094ebdc03 959aa48cececb0be18 07"},
		{Value{Kind: KindLeak, Limit: Params{MaxUnits, MaxUnits, 1 << 62}, W: [3]int64{1<<63 - 1, 0}},
			"02 ffffffffffffff0f ffffffffffffff0f 808080808080808040 ffffffffffffffff7f 00"},
		{Value{Kind: KindFixed, Limit: Params{100, 0, minute}, W: [3]int64{29_408_333 * minute, 5}},
			"03 64 80b09dc2df01 cdf8820e 05"},
		{Value{Kind: KindSliding, Limit: Params{100, 0, minute}, W: [3]int64{29_408_333 * minute, 300, 0}},
			"04 64 80b09dc2df01 cdf8820e ac02 00"},
		{Value{Kind: KindLog, Limit: Params{3, 0, second}, Log: logOf(1000, 1, 1001, 2, 1300, 200)},
			"05 03 8094ebdc03 03 e807 01 01 02 ab02 c801"},
	} {
		got := AppendValue([]byte{0xee}, &c.v)
		want := "ee" + strings.ReplaceAll(c.want, " ", "")
		if hex.EncodeToString(got) != want {
			t.Errorf("%+v is stored as %x, want %s", c.v, got, want)
		}
		b, _ := hex.DecodeString(want)
		v, rest, err := DecodeValue(append(b[1:], 1, 2))
		if err != nil || !sameValue(v, c.v) || !bytes.Equal(rest, []byte{1, 2}) {
			t.Errorf("%s is read as %+v, rest %x, %v", want, v, rest, err)
		}
	}
}

// TestDamagedValues fails when a value that no decision can have made is
// accepted.
func TestDamagedValues(t *testing.T) {
	bucket := func(a, b, c, fullAt, rem int64) Value {
		return Value{Kind: KindBucket, Limit: Params{a, b, c}, W: [3]int64{fullAt, rem}}
	}
	window := func(k Kind, a, c, x, y, z int64) Value {
		return Value{Kind: k, Limit: Params{A: a, C: c}, W: [3]int64{x, y, z}}
	}
	for name, v := range map[string]Value{
		"no kind":               {},
		"unknown kind":          {Kind: 6, Limit: Params{1, 1, second}},
		"capacity 0":            bucket(0, 1, second, 5, 0),
		"count 0":               bucket(1, 0, second, 5, 0),
		"period 0":              bucket(1, 1, 0, 5, 0),
		"fills too slowly":      bucket(1, 1, 1<<62+1, 5, 0),
		"capacity too large":    bucket(MaxUnits+1, MaxUnits, 1, 5, 0),
		"remainder = count":     bucket(1, 7, second, 5, 7),
		"remainder negative":    bucket(1, 7, second, 5, -1),
		"full before time":      bucket(1, 7, second, -5, 0),
		"full after all time":   bucket(1, 7, second, 1<<63-1, 1),
		"bucket with a third":   {Kind: KindBucket, Limit: Params{1, 1, 1}, W: [3]int64{0, 0, 1}},
		"bucket with a log":     {Kind: KindLeak, Limit: Params{1, 1, 1}, Log: new(Log)},
		"limit 0":               window(KindFixed, 0, second, 0, 1, 0),
		"period short":          window(KindFixed, 1, MinPeriod-1, 0, 1, 0),
		"period long":           window(KindSliding, 1, MaxPeriod+1, 0, 1, 0),
		"start off the grid":    window(KindFixed, 1, second, 5, 1, 0),
		"start negative":        window(KindFixed, 1, second, -second, 1, 0),
		"start after all time":  window(KindFixed, 1, MaxPeriod, 1<<62, 1, 0),
		"count negative":        window(KindFixed, 1, second, 0, -1, 0),
		"count too large":       window(KindFixed, 1, second, 0, maxCount+1, 0),
		"previous negative":     window(KindSliding, 1, second, 0, -1, 5),
		"current negative":      window(KindSliding, 1, second, 0, 5, -1),
		"current too large":     window(KindSliding, 1, second, 0, 5, maxCount+1),
		"fixed with two counts": window(KindFixed, 1, second, 0, 1, 1),
		"window with a rate":    {Kind: KindFixed, Limit: Params{1, 1, second}},
		"window with a log":     {Kind: KindFixed, Limit: Params{1, 0, second}, Log: new(Log)},
		"log limit":             {Kind: KindLog, Limit: Params{MaxLogLimit + 1, 0, second}, Log: logOf(1, 1)},
		"log with counts":       {Kind: KindLog, Limit: Params{1, 0, second}, W: [3]int64{1, 0, 0}, Log: logOf(1, 1)},
		"entry before time":     {Kind: KindLog, Limit: Params{1, 0, second}, Log: logOf(-1, 1)},
		"entry after all time":  {Kind: KindLog, Limit: Params{1, 0, second}, Log: logOf(MaxTime+1, 1)},
		"entry of 0 units":      {Kind: KindLog, Limit: Params{1, 0, second}, Log: logOf(1, 1, 2, 0)},
		"negative entry":        {Kind: KindLog, Limit: Params{1, 0, second}, Log: logOf(1, 5, 2, -1)},
		"entries sum too large": {Kind: KindLog, Limit: Params{1, 0, second}, Log: logOf(1, MaxLogSum, 2, 1)},
		"entries that overflow": {Kind: KindLog, Limit: Params{1, 0, second}, Log: logOf(1, 1<<62, 2, 1<<62)},
		"entries of one time": {Kind: KindLog, Limit: Params{1, 0, second},
			Log: &Log{ring: []LogEntry{{1, 1}, {1, 2}}, n: 2}},
		"too many entries": {Kind: KindLog, Limit: Params{1, 0, second}, Log: &Log{n: MaxLogEntries + 1}},
	} {
		if err := v.Valid(); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, v := range map[string]Value{
		"largest log":     {Kind: KindLog, Limit: Params{1, 0, second}, Log: logOf(0, 1, MaxTime, MaxLogSum-1)},
		"largest counts":  window(KindSliding, MaxUnits, MaxPeriod, MaxPeriod, maxCount, maxCount),
		"largest bucket":  bucket(MaxUnits, MaxUnits, 1<<62, 1<<63-2, MaxUnits-1),
		"latest bucket":   bucket(1, 1, 1<<62, 1<<63-1, 0),
		"empty log":       {Kind: KindLog, Limit: Params{1, 0, second}},
		"full bucket":     bucket(1, 1, 1, 0, 0),
		"as new window":   window(KindFixed, 1, MinPeriod, 0, 0, 0),
		"window at start": window(KindSliding, 1, MinPeriod, 0, 1, 1),
	} {
		if err := v.Valid(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, rest, err := DecodeValue(AppendValue(nil, &v))
		if err != nil || !sameValue(got, v) || len(rest) != 0 {
			t.Errorf("%s: read as %+v, rest %x, %v", name, got, rest, err)
		}
	}
}

// TestDamagedBytes fails when a cut or a foreign encoding is read as a value.
func TestDamagedBytes(t *testing.T) {
	v := Value{Kind: KindLog, Limit: Params{3, 0, second}, Log: logOf(1000, 1, 1001, 200)}
	whole := AppendValue(nil, &v)
	for n := range whole {
		if _, _, err := DecodeValue(whole[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	for name, b := range map[string][]byte{
		"a multiple past 2^63": binary.AppendUvarint([]byte{3, 1, 0x80, 0x94, 0xeb, 0xdc, 0x03}, 1<<40),
		"a multiple past 2^64": append(binary.AppendUvarint(binary.AppendUvarint([]byte{3, 1}, 1<<30), 1<<40), 1),
		"entries past 2^63":    binary.AppendUvarint([]byte{5, 1, 0x80, 0x94, 0xeb, 0xdc, 0x03}, 1<<63+5),
		"a number past 2^63":   binary.AppendUvarint([]byte{1, 1, 1}, 1<<63),
		"a time past all":      append(binary.AppendUvarint([]byte{5, 1, 0x80, 0x94, 0xeb, 0xdc, 0x03, 1}, 1<<62), 1),
		"times that overflow":  append(binary.AppendUvarint(append(binary.AppendUvarint([]byte{5, 1, 0x80, 0x94, 0xeb, 0xdc, 0x03, 2}, MaxTime), 1), 1<<63-1), 1),
	} {
		if _, _, err := DecodeValue(b); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	whole[0] |= 1 << 4
	if _, _, err := DecodeValue(whole); !errors.Is(err, ErrVersion) {
		t.Errorf("another format: %v", err)
	}
}

// TestDecodeAllocatesLittle fails when a few bytes that claim two million
// entries get the memory for them.
func TestDecodeAllocatesLittle(t *testing.T) {
	b := binary.AppendUvarint([]byte{5, 1, 0x80, 0x94, 0xeb, 0xdc, 0x03}, MaxLogEntries)
	b = append(b, make([]byte, 100)...)
	if allocated := testing.Benchmark(func(b2 *testing.B) {
		b2.ReportAllocs()
		for b2.Loop() {
			if _, _, err := DecodeValue(b); err == nil {
				b2.Fatal("accepted")
			}
		}
	}).AllocedBytesPerOp(); allocated > 1000 {
		t.Errorf("%d bytes were allocated for a value of %d bytes", allocated, len(b))
	}
}

// drawValue draws any value that is Valid, also ones no time could see.
func drawValue(t *rapid.T) Value {
	v := Value{Kind: Kind(rapid.IntRange(1, 5).Draw(t, "kind"))}
	count := func(name string) int64 { return around(0, maxCount).Draw(t, name) }
	if v.Kind == KindBucket || v.Kind == KindLeak {
		v.Limit = drawBucketLimit(t)
		v.W[0] = around(0, 1<<63-2, MaxTime).Draw(t, "FullAt")
		v.W[1] = around(0, v.Limit.B-1).Draw(t, "Rem")
		return v
	}
	v.Limit = drawWindowLimit(t, v.Kind)
	if v.Kind == KindLog {
		v.Log = new(Log)
		at, total := int64(-1), int64(0)
		for range rapid.IntRange(0, 20).Draw(t, "entries") {
			at += around(1, MaxTime, second).Draw(t, "at")
			cost := around(1, MaxUnits).Draw(t, "cost")
			if at < 0 || at > MaxTime || cost > MaxLogSum-total {
				break
			}
			total += cost
			v.Log.append(at, cost)
		}
		return v
	}
	v.W[0] = around(0, MaxTime/v.Limit.C).Draw(t, "window") * v.Limit.C
	v.W[1] = count("count")
	if v.Kind == KindSliding {
		v.W[2] = count("current")
	}
	return v
}

// TestValuesComeBack fails when a value is not read as it was written.
func TestValuesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t)
		if err := v.Valid(); err != nil {
			t.Fatalf("generator: %+v: %v", v, err)
		}
		got, rest, err := DecodeValue(AppendValue(nil, &v))
		if err != nil || !sameValue(got, v) || len(rest) != 0 {
			t.Fatalf("%+v is read as %+v, rest %x, %v", v, got, rest, err)
		}
	})
}

// decideAnything makes every kind of request on a valid value, at any time; it
// is for finding panics and state that is not valid afterwards.
func decideAnything(t interface {
	Fatalf(string, ...any)
}, v Value, r request, now int64) {
	before := AppendValue(nil, &v)
	v.Look(now)
	v.Expiry()
	r.kind = v.Kind
	if v.Kind == KindLog && v.Log == nil {
		v.Log = new(Log)
	}
	if v.Kind == KindLog && v.Log.Len() > 0 {
		// Logs are only decided on at times not before their newest entry:
		// the engine's latest time is restored with them.
		at, _ := v.Log.At(v.Log.Len() - 1)
		now = max(now, at)
	}
	if r.refund {
		refund(&v, r.cost, now)
	} else {
		decide(&v, r, now)
	}
	if v.Kind == KindSliding || v.Kind == KindFixed {
		if v.W[0] > now {
			return // a window of the future, which stays as it is
		}
	}
	if err := v.Valid(); err != nil {
		t.Fatalf("%x, %+v at %d left %+v: %v", before, r, now, v, err)
	}
}

// TestNoValueBreaksADecision fails when a value that loads makes a decision
// panic or leaves state that would not load: damaged files must not.
func TestNoValueBreaksADecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t)
		r := request{limit: v.Limit, refund: rapid.IntRange(0, 4).Draw(t, "refund") == 0}
		r.cost = around(0, MaxUnits).Draw(t, "cost")
		r.mode = rapid.SampledFrom([]Mode{Consume, Peek, Force}).Draw(t, "mode")
		if rapid.Bool().Draw(t, "another limit") {
			if v.Kind == KindBucket || v.Kind == KindLeak {
				r.limit = drawBucketLimit(t)
			} else {
				r.limit = drawWindowLimit(t, v.Kind)
			}
		}
		decideAnything(t, v, r, around(0, MaxTime, v.W[0]&MaxTime).Draw(t, "now"))
	})
}

// FuzzDecodeValue fails when bytes make the decoder panic, when what it
// accepts is not written back as a value that is read the same, or breaks a
// decision.
func FuzzDecodeValue(f *testing.F) {
	for _, v := range []Value{
		{Kind: KindBucket, Limit: Params{10, 20, second}, W: [3]int64{1_764_500_000_123_456_789, 7}},
		{Kind: KindLeak, Limit: Params{MaxUnits, MaxUnits, 1 << 62}, W: [3]int64{1<<63 - 1, 0}},
		{Kind: KindFixed, Limit: Params{100, 0, minute}, W: [3]int64{29_408_333 * minute, 5}},
		{Kind: KindSliding, Limit: Params{100, 0, minute}, W: [3]int64{29_408_333 * minute, 300, 5}},
		{Kind: KindLog, Limit: Params{3, 0, second}, Log: logOf(1000, 1, 1001, 2, 1300, 200)},
	} {
		f.Add(AppendValue(nil, &v), int64(5), int64(1300))
	}
	f.Fuzz(func(t *testing.T, b []byte, cost, now int64) {
		v, rest, err := DecodeValue(b)
		if err != nil {
			return
		}
		again, more, err := DecodeValue(AppendValue(nil, &v))
		if err != nil || len(more) != 0 || !sameValue(again, v) {
			t.Fatalf("%x is %+v, but comes back as %+v, rest %x, %v", b, v, again, more, err)
		}
		if len(rest) >= len(b) {
			t.Fatalf("%x: nothing was read", b)
		}
		r := request{limit: v.Limit, cost: cost & MaxUnits, mode: Mode(cost>>60) & 1 * Force, refund: cost < 0}
		decideAnything(t, v, r, now&MaxTime)
	})
}
