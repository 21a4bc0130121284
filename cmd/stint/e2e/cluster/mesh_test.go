//go:build unix

package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// mesh is the network between the Raft ports of the nodes. Every node has a door
// in it, which is the address that it advertises; who connects there says who it
// is in its first bytes, so that each direction between each two nodes has a fate
// of its own.
type mesh struct {
	wg sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	fates   map[way]fate
	changed chan struct{} // closed when fates change
	spans   map[*span]struct{}
	doors   map[string]net.Listener // by the name of the node behind it
	failed  error                   // why a connection could not be carried, the first
}

// way is a direction between two nodes, by their names.
type way struct{ from, to string }

// fate is what happens to bytes on a way.
type fate struct {
	held     bool          // they wait until that is over, and arrive then
	requests bool          // held and lost are for what is no answer only
	lost     bool          // they are gone; connections that have lost some end when it is over
	delay    time.Duration // they arrive so much later
}

func newMesh(t *testing.T) *mesh {
	m := &mesh{fates: map[way]fate{}, changed: make(chan struct{}), spans: map[*span]struct{}{}, doors: map[string]net.Listener{}}
	t.Cleanup(func() {
		m.close()
		if m.failed != nil {
			t.Error(m.failed)
		}
	})
	return m
}

func (m *mesh) close() {
	m.mu.Lock()
	m.closed = true
	for _, d := range m.doors {
		_ = d.Close()
	}
	for s := range m.spans {
		s.end()
	}
	close(m.changed)
	m.changed = make(chan struct{})
	m.mu.Unlock()
	m.wg.Wait()
}

// door opens the way to the node called name, which listens at target.
func (m *mesh) door(t *testing.T, name, target string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	m.doors[name] = l
	m.mu.Unlock()
	m.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			m.wg.Go(func() { m.carry(c, name, target) })
		}
	})
	return l.Addr().String()
}

// set gives a way its fate.
func (m *mesh) set(from, to string, f fate) { m.change(func() { m.fates[way{from, to}] = f }) }

// cut loses what two nodes send to each other.
func (m *mesh) cut(a, b string) {
	m.set(a, b, fate{lost: true})
	m.set(b, a, fate{lost: true})
}

// isolate cuts a node off from others.
func (m *mesh) isolate(name string, others ...string) {
	for _, o := range others {
		if o != name {
			m.cut(name, o)
		}
	}
}

// heal lets everything pass.
func (m *mesh) heal() { m.change(func() { clear(m.fates) }) }

func (m *mesh) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	for s := range m.spans {
		if s.torn && !m.fates[way{s.from, s.to}].lost && !m.fates[way{s.to, s.from}].lost {
			s.end()
		}
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

// span is one connection between two nodes.
type span struct {
	from, to  string // who has connected to whom
	near, far net.Conn
	done      chan struct{}
	torn      bool // bytes of it were lost; under mesh.mu
	once      sync.Once
}

func (s *span) end() {
	s.once.Do(func() {
		close(s.done)
		_ = s.near.Close()
		_ = s.far.Close()
	})
}

// helloTimeout bounds how long who has connected may say nothing.
const helloTimeout = 5 * time.Second

// carry carries the bytes of a connection to the node called to.
func (m *mesh) carry(near net.Conn, to, target string) {
	_ = near.SetReadDeadline(time.Now().Add(helloTimeout))
	from, hello, err := readHello(near)
	if err == nil && !m.knows(from) {
		err = fmt.Errorf("%w: a node called %q is not known here", errHello, from)
	}
	if err != nil {
		_ = near.Close()
		if errors.Is(err, errHello) {
			m.fail(err)
		}
		return
	}
	_ = near.SetReadDeadline(time.Time{})
	far, err := net.Dial("tcp", target)
	if err != nil {
		_ = near.Close()
		return
	}
	s := &span{from: from, to: to, near: near, far: far, done: make(chan struct{})}
	m.mu.Lock()
	m.spans[s] = struct{}{}
	if m.closed {
		s.end()
	}
	m.mu.Unlock()
	var pumps sync.WaitGroup
	pumps.Go(func() { m.pump(s, way{from, to}, false, near, far, hello) })
	pumps.Go(func() { m.pump(s, way{to, from}, true, far, near, nil) })
	pumps.Wait()
	s.end()
	m.mu.Lock()
	delete(m.spans, s)
	m.mu.Unlock()
}

// knows says whether a node has a door. Cuts would have no effect on one that says
// its name in a way that is not understood here.
func (m *mesh) knows(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.doors[name] != nil
}

func (m *mesh) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == nil {
		m.failed = fmt.Errorf("the network of the tests does not carry a connection: %w", err)
	}
}

// chunk is bytes on their way.
type chunk struct {
	data []byte
	due  time.Time
}

// pump carries bytes of one direction, first those of hello; answer says that it
// is from whom the connection was made to.
func (m *mesh) pump(s *span, w way, answer bool, src, dst net.Conn, hello []byte) {
	queue := make(chan chunk, 1<<10)
	m.wg.Go(func() {
		defer s.end()
		for c := range queue {
			if !m.await(s, w, answer, c.due) {
				return
			}
			if m.lose(s, w, answer) {
				continue
			}
			if _, err := dst.Write(c.data); err != nil {
				return
			}
		}
	})
	defer close(queue)
	next := hello
	for {
		if len(next) > 0 {
			select {
			case queue <- chunk{next, time.Now().Add(m.fate(w).delay)}:
			case <-s.done:
				return
			}
		}
		buf := make([]byte, 32<<10)
		n, err := src.Read(buf)
		if next = buf[:n]; err != nil && n == 0 {
			return
		}
	}
}

func (m *mesh) fate(w way) fate {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fates[w]
}

// await waits until bytes of a way may arrive, and returns false if the
// connection has ended before.
func (m *mesh) await(s *span, w way, answer bool, due time.Time) bool {
	if wait := time.Until(due); wait > 0 {
		select {
		case <-time.After(wait):
		case <-s.done:
			return false
		}
	}
	for {
		m.mu.Lock()
		f, changed := m.fates[w], m.changed
		m.mu.Unlock()
		if !f.held || f.requests && answer {
			return true
		}
		select {
		case <-changed:
		case <-s.done:
			return false
		}
	}
}

// lose says whether bytes of a way are lost now.
func (m *mesh) lose(s *span, w way, answer bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.fates[w]
	lost := f.lost && !(f.requests && answer)
	s.torn = s.torn || lost
	return lost
}

var errHello = errors.New("not a handshake")

// readHello reads the first bytes on a connection to a Raft port, and no byte
// beyond them: the kind of the connection, "stint", two versions, the length of
// the rest, then cluster, sender and receiver, each with its length before it. name
// is the sender's, without its incarnation.
func readHello(r io.Reader) (name string, hello []byte, err error) {
	hello = make([]byte, 10)
	if _, err := io.ReadFull(r, hello); err != nil {
		return "", nil, err
	}
	if string(hello[1:6]) != "stint" {
		return "", nil, fmt.Errorf("%w: %q", errHello, hello)
	}
	rest := make([]byte, binary.LittleEndian.Uint16(hello[8:]))
	if _, err := io.ReadFull(r, rest); err != nil {
		return "", nil, err
	}
	hello = append(hello, rest...)
	var words [2]string
	for i := range words {
		if len(rest) == 0 || len(rest) <= int(rest[0]) {
			return "", nil, fmt.Errorf("%w: %q", errHello, hello)
		}
		words[i], rest = string(rest[1:1+rest[0]]), rest[1+rest[0]:]
	}
	name = words[1]
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		name = name[:i]
	}
	return name, hello, nil
}
