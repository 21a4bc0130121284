package table

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-dev/stint/engine/limit"
)

var seed = maphash.MakeSeed()

func goodHash(b []byte) uint64 { return maphash.Bytes(seed, b) }

// hashes the table has to live with. All but the first are bad on purpose.
var hashes = map[string]func([]byte) uint64{
	"good":  goodHash,
	"equal": func([]byte) uint64 { return 0x12345678 },
	"few":   func(b []byte) uint64 { return goodHash(b) & 0xC0000003 },
	"low":   func(b []byte) uint64 { return goodHash(b) & 0xFFF },
	"high":  func(b []byte) uint64 { return goodHash(b) & 0xFFF00000 },
	"lone": func(b []byte) uint64 {
		if h := goodHash(b); h&7 != 0 {
			return h & 0x1F
		}
		return 1 << 9
	},
}

// model is a table, and a map that does what the table should.
type model struct {
	*Table
	now  int64
	live map[string]state
	most int // that putMany puts

	draining bool
	cut      map[string]state // at the last cut
	cutAt    int64
	shown    map[string]bool   // put by this drain
	file     map[string]string // what the drains told of, encoded values

	scanning bool
	cursor   uint64
	awaited  map[string]bool // what the scan must show still

	view view
}

type state struct {
	kind   limit.Kind
	value  string // encoded
	expiry int64
}

func stateOf(v *limit.Value) state {
	return state{v.Kind, string(limit.AppendValue(nil, v)), v.Expiry()}
}

func copyOf(value string) limit.Value {
	v, rest, err := limit.DecodeValue([]byte(value))
	if err != nil || len(rest) > 0 {
		panic(fmt.Sprint(err, len(rest)))
	}
	return v
}

const second = int64(1e9)

var params = rapid.Custom(func(t *rapid.T) limit.Params {
	p := limit.Params{A: 10, B: 3, C: second}
	if rapid.IntRange(0, 3).Draw(t, "another limit") == 0 {
		p.A = rapid.Int64Range(1, 40).Draw(t, "capacity")
		p.C = second * rapid.Int64Range(1, 3).Draw(t, "period")
	}
	return p
})

func (m *model) drawValue(t *rapid.T) limit.Value {
	v := limit.Value{Kind: limit.Kind(rapid.IntRange(1, 4).Draw(t, "kind")), Limit: params.Draw(t, "limit")}
	ahead := rapid.Int64Range(-1, 3).Draw(t, "ahead") * second
	switch v.Kind {
	case limit.KindBucket, limit.KindLeak:
		v.W = [3]int64{m.now + ahead, rapid.Int64Range(0, 2).Draw(t, "rem")}
	case limit.KindFixed, limit.KindSliding:
		v.Limit.B = 0
		v.W = [3]int64{(m.now + ahead) / v.Limit.C * v.Limit.C, rapid.Int64Range(0, 9).Draw(t, "count")}
		if v.Kind == limit.KindSliding {
			v.W[2] = rapid.Int64Range(0, 9).Draw(t, "current")
		}
	}
	return v
}

func drawKey(t *rapid.T) []byte {
	n := rapid.IntRange(0, 60).Draw(t, "key")
	switch n % 20 {
	case 0:
		return []byte(strings.Repeat(string(rune('A'+n/20)), MaxKey-n/20))
	case 1:
		return []byte(strings.Repeat(string(rune('A'+n/20)), rapid.IntRange(1, 600).Draw(t, "length")))
	}
	return fmt.Appendf(nil, "k%d\x00", n)
}

// gone says that a record may have left its place.
func (m *model) gone(key string) { delete(m.awaited, key) }

// freed says that what has expired may be gone.
func (m *model) freed(now int64) {
	for k, s := range m.live {
		if s.expiry <= now {
			m.gone(k)
		}
	}
}

// get compares one key and returns where it is.
func (m *model) get(t *rapid.T, key string) Ref {
	var v limit.Value
	ref := m.Get(m.hash([]byte(key)), []byte(key), &v)
	was, ok := m.live[key]
	switch {
	case v.Kind == limit.None:
		if ref != NoRef || ok && was.expiry > m.now {
			t.Fatalf("%.20q is lost", key)
		}
		delete(m.live, key)
	case !ok || stateOf(&v) != was:
		t.Fatalf("%.20q is %v, should be %v", key, v, was)
	}
	return ref
}

func (m *model) stored(t *rapid.T, key string, v *limit.Value, err error) {
	m.freed(m.now)
	if err != nil {
		if !errors.Is(err, ErrFull) || m.acct.budget.Max() == 0 {
			t.Fatal(err)
		}
		m.get(t, key)
		return
	}
	if m.live[key].kind != v.Kind {
		m.gone(key)
	}
	m.live[key] = stateOf(v)
}

func (m *model) put(t *rapid.T) {
	key := drawKey(t)
	v := m.drawValue(t)
	ref := m.get(t, string(key))
	same := ref != NoRef && m.live[string(key)].kind == v.Kind
	err := m.Put(m.hash(key), key, ref, &v)
	if err != nil && same {
		t.Fatal("a record that is there was refused:", err)
	}
	m.stored(t, string(key), &v, err)
}

func (m *model) putLog(t *rapid.T) {
	key := drawKey(t)
	p := params.Draw(t, "limit")
	p.B = 0
	ref := m.get(t, string(key))
	g := new(limit.Log)
	if s := m.live[string(key)]; s.kind == limit.KindLog {
		if v := copyOf(s.value); v.Log != nil {
			g = v.Log
		}
	}
	var c limit.LogChange
	n := g.Len()
	c.Drop = rapid.IntRange(0, n).Draw(t, "drop")
	c.Pop = rapid.IntRange(0, n-c.Drop).Draw(t, "pop")
	if rapid.IntRange(0, 2).Draw(t, "append") > 0 || n == 0 {
		c.At, c.Cost = m.now, 1
		for i := range n {
			at, _ := g.At(i)
			c.At = max(c.At, at+1)
		}
	}
	err := m.PutLog(m.hash(key), key, ref, p, c)
	if err == nil {
		g.Apply(c)
	}
	m.stored(t, string(key), &limit.Value{Kind: limit.KindLog, Limit: p, Log: g}, err)
}

// putMany makes the index grow, split and shrink again.
func (m *model) putMany(t *rapid.T) {
	n := rapid.IntRange(500, m.most).Draw(t, "many")
	for i := range n {
		key := fmt.Appendf(nil, "many-%d", i)
		v := limit.Value{Kind: limit.KindBucket, Limit: limit.Params{A: int64(i%50 + 1), B: 3, C: second}, W: [3]int64{m.now + second, 1}}
		m.stored(t, string(key), &v, m.Put(m.hash(key), key, m.get(t, string(key)), &v))
	}
}

func (m *model) removeMany(t *rapid.T) {
	for k := range m.live {
		if strings.HasPrefix(k, "many-") {
			m.remove(t, k)
		}
	}
}

func (m *model) remove(t *rapid.T, key string) {
	if ref := m.get(t, key); ref != NoRef {
		m.Delete(m.hash([]byte(key)), ref, true)
		m.gone(key)
		delete(m.live, key)
	}
	m.get(t, key)
}

func (m *model) sweep(t *rapid.T) {
	m.freed(m.now)
	before := m.Len()
	if n := m.SweepPage(m.now); n != before-m.Len() {
		t.Fatalf("swept %d of %d, %d are left", n, before, m.Len())
	}
}

func (m *model) sweepAll(t *rapid.T) {
	m.freed(m.now)
	for m.due(m.now) != 0 {
		m.SweepPage(m.now)
	}
	maps.DeleteFunc(m.live, func(_ string, s state) bool { return s.expiry <= m.now })
	if m.Len() != len(m.live) {
		t.Fatalf("%d records, should be %d", m.Len(), len(m.live))
	}
}

func (m *model) drain(t *rapid.T) {
	if !m.draining {
		m.draining = true
		m.Cut()
		m.cut, m.cutAt = maps.Clone(m.live), m.now
		m.shown = map[string]bool{}
		return
	}
	saved := func(key, value []byte) {
		if m.shown[string(key)] {
			t.Fatalf("%.20q is drained twice", key)
		}
		m.shown[string(key)] = true
		m.file[string(key)] = string(value)
	}
	more := m.DrainSome(rapid.SampledFrom([]int{1, 5, 50, 5000}).Draw(t, "visits"),
		func(key []byte, v *limit.Value) { saved(key, limit.AppendValue(nil, v)) }, saved,
		func(key []byte) {
			if m.shown[string(key)] {
				t.Fatalf("%.20q is deleted after it was put", key)
			}
			delete(m.file, string(key))
		})
	if more != (m.Pending() > 0) {
		t.Fatal("more and Pending disagree")
	}
	if more {
		return
	}
	m.draining = false
	// Whoever loads the file drops what has expired at the cut.
	for key, value := range m.file {
		v := copyOf(value)
		if s := stateOf(&v); s.expiry <= m.cutAt {
			delete(m.file, key)
		} else if s != m.cut[key] {
			t.Fatalf("%.20q is drained as %v, was %v", key, s, m.cut[key])
		}
	}
	for key, s := range m.cut {
		if _, ok := m.file[key]; !ok && s.expiry > m.cutAt {
			t.Fatalf("%.20q is not drained", key)
		}
	}
}

func (m *model) scan(t *rapid.T) {
	if !m.scanning {
		m.scanning, m.cursor, m.awaited = true, 0, map[string]bool{}
		for k := range m.live {
			if m.get(t, k) != NoRef {
				m.awaited[k] = true
			}
		}
	}
	next, done := m.Scan(m.cursor, rapid.SampledFrom([]int{1, 7, 400}).Draw(t, "slots"), func(key []byte, v *limit.Value) {
		if stateOf(v) != m.live[string(key)] {
			t.Fatalf("scan shows %.20q as %v, is %v", key, *v, m.live[string(key)])
		}
		delete(m.awaited, string(key))
	})
	if !done && next <= m.cursor {
		t.Fatalf("cursor %d after %d", next, m.cursor)
	}
	m.cursor = next
	if done {
		m.scanning = false
		if len(m.awaited) > 0 {
			t.Fatalf("scan does not show %d records", len(m.awaited))
		}
	}
}

// load is what a restart does: everything as the last drain left it.
func (m *model) load(t *rapid.T) {
	if m.draining {
		return
	}
	m.Close()
	if used := m.acct.budget.Used(); used != 0 {
		t.Fatalf("%d bytes reserved after Close", used)
	}
	m.Table = New(Options{Budget: m.acct.budget, Track: true, Hash: m.hash})
	m.SetNow(m.now)
	m.live, m.scanning, m.awaited = map[string]state{}, false, nil
	for key, value := range m.file {
		for range 2 { // a file may tell a thing twice
			v := copyOf(value)
			if err := m.Load(m.hash([]byte(key)), []byte(key), &v); err != nil {
				t.Fatal(err)
			}
			m.live[key] = stateOf(&v)
		}
	}
	if m.Dirty() != 0 {
		t.Fatal("what was loaded counts as changed")
	}
}

func TestAgainstModel(t *testing.T) {
	for name, hash := range hashes {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := &model{now: 1000 * second, live: map[string]state{}, file: map[string]string{}}
				m.Table = New(Options{Budget: NewBudget(0), Track: true, Hash: hash})
				m.SetNow(m.now)
				if m.most = 3000; name == "equal" {
					m.most = segmentFull * 5 / 4 // every search takes as long
				}
				budget := m.acct.budget
				atBound := func(f func(*rapid.T)) func(*rapid.T) {
					return func(t *rapid.T) {
						budget.SetMax(budget.Used())
						f(t)
						budget.SetMax(0)
					}
				}
				actions := map[string]func(*rapid.T){
					"put":          m.put,
					"put again":    m.put,
					"putLog":       m.putLog,
					"put at bound": atBound(m.put),
					"log at bound": atBound(m.putLog),
					"delete":       func(t *rapid.T) { m.remove(t, string(drawKey(t))) },
					"sweep":        m.sweep,
					"sweepAll":     m.sweepAll,
					"drain":        m.drain,
					"drain on":     m.drain,
					"view":         m.freeze,
					"view on":      m.freeze,
					"give up view": m.thaw,
					"scan":         m.scan,
					"scan on":      m.scan,
					"load":         m.load,
					"wait": func(t *rapid.T) {
						m.now += rapid.Int64Range(0, second).Draw(t, "wait")
						m.SetNow(m.now)
					},
					"": func(t *rapid.T) {
						if err := m.check(); err != nil {
							t.Fatal(err)
						}
						live := 0
						for _, s := range m.live {
							if s.expiry > m.now {
								live++
							}
						}
						if n := m.CountLive(m.now); n != live {
							t.Fatalf("%d live records, should be %d", n, live)
						}
					},
				}
				if rapid.IntRange(0, 3).Draw(t, "large") == 0 {
					actions["put many"] = m.putMany
					actions["many at bound"] = atBound(m.putMany)
					actions["remove many"] = m.removeMany
				}
				t.Repeat(actions)
				if m.view.t != nil {
					m.thaw(t)
				}
				m.sweepAll(t)
				for k := range maps.Clone(m.live) {
					m.remove(t, k)
				}
				for m.draining {
					m.drain(t)
				}
				m.drain(t)
				for m.draining {
					m.drain(t)
				}
				if len(m.file) != 0 {
					t.Fatalf("%d records drained that are gone", len(m.file))
				}
				if err := m.check(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
