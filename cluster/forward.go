package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint/cluster/internal/port"
	"github.com/stint-dev/stint/engine/store"
)

// Kinds of calls between nodes. They are part of the protocol of the Raft port.
const (
	callForward  = uint8(1) // a batch for the leader
	callProbe    = uint8(2) // who are you
	callJoin     = uint8(3) // take me in
	callAnnounce = uint8(4) // a Member for the log
	callClock    = uint8(5) // what do your clocks say
	callAdmin    = uint8(6) // a change of the membership, for the leader
	callIndex    = uint8(7) // how far everything is committed that was answered, for the leader
)

// send forwards a batch to the leader. It is sent once: whoever reads it may run
// it, so when no answer comes nobody can say whether it was.
func (g *Group) send(t *ticket, r route) {
	if !t.claim() {
		return
	}
	frame := appendBatch(nil, t.batch)
	t.effects = true // for all that is known here
	t.state.Store(pending)
	g.count.forwarded.Add(1)
	g.calls.Go(r.addr, string(r.peer), callForward, frame, func(reply []byte, err error) {
		g.forwarded(t, reply, err)
	})
}

// forwarded takes the leader's answer.
func (g *Group) forwarded(t *ticket, reply []byte, err error) {
	switch {
	case errors.Is(err, port.ErrNotSent) && errors.Is(err, port.ErrTooLarge):
		if t.finish(pending, store.NotApplied, whyTooLarge) {
			g.count.notApplied.Add(1)
		}
	case errors.Is(err, port.ErrNotSent):
		// The leader cannot be reached, but was not asked: the batch waits for
		// another one, or for this one to come back.
		if t.undo() {
			g.later(t)
		}
	case err != nil:
		g.count.forwardLost.Add(1)
		g.giveUp(t, whyLost)
	default:
		g.answer(t, reply)
	}
}

// later sends a batch again after a moment, unless its time is over.
func (g *Group) later(t *ticket) {
	time.AfterFunc(leadPause, func() {
		g.mu.Lock()
		if t.state.Load() != queued {
			g.mu.Unlock()
			return
		}
		r, closing := g.route, g.closing
		if closing || r.self || r.peer == "" {
			g.mu.Unlock()
			if closing {
				t.finish(queued, store.NotApplied, whyStopped)
				return
			}
			g.again(t)
			return
		}
		g.mu.Unlock()
		g.send(t, r)
	})
}

// again puts a batch that surely was not run among those that wait.
func (g *Group) again(t *ticket) {
	g.mu.Lock()
	g.waiting = append(g.waiting, t)
	g.mu.Unlock()
	select {
	case g.work <- struct{}{}:
	default:
	}
}

// answer ends a ticket with what the leader has said about it.
func (g *Group) answer(t *ticket, reply []byte) {
	if len(reply) == 0 {
		g.giveUp(t, whyLost)
		return
	}
	o, rest := store.Outcome(reply[0]), reply[1:]
	switch o {
	case store.Decided:
		if t.state.CompareAndSwap(pending, running) {
			t.batch.Out = append(t.batch.Out[:t.before], rest...)
			t.finish(running, store.Decided, "")
		}
	case store.NotApplied:
		if t.finish(pending, store.NotApplied, string(rest)) {
			g.count.notApplied.Add(1)
		}
	default:
		g.giveUp(t, string(rest))
	}
}

// relay runs a batch that another node has sent.
func (g *Group) relay(payload []byte, reply func([]byte)) {
	g.count.relayed.Add(1)
	b, err := g.parseBatch(payload)
	if err != nil {
		reply(append([]byte{byte(store.NotApplied)}, err.Error()...))
		return
	}
	b.Out = []byte{0} // where the outcome comes
	b.Done = func(b *store.Batch) {
		if b.Outcome == store.Decided {
			b.Out[0] = byte(store.Decided)
			reply(b.Out)
			return
		}
		reply(append([]byte{byte(b.Outcome)}, b.Why...))
	}
	g.enter(&ticket{batch: b, arrived: time.Now(), before: 1, slow: g.isSlow(b), relayed: true})
}

// appendBatch encodes the requests of a batch: how many, then for each database,
// version of the protocol, number of words, and the words with their lengths.
func appendBatch(dst []byte, b *store.Batch) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b.Requests)))
	for i := range b.Requests {
		r := &b.Requests[i]
		dst = append(dst, r.DB, r.Proto)
		dst = binary.AppendUvarint(dst, uint64(len(r.Args)))
		for _, a := range r.Args {
			dst = binary.AppendUvarint(dst, uint64(len(a)))
			dst = append(dst, a...)
		}
	}
	return dst
}

var errBatch = errors.New("a forwarded batch cannot be read")

// parseBatch reads what appendBatch wrote. The words share payload's memory.
func (g *Group) parseBatch(payload []byte) (*store.Batch, error) {
	n, w := binary.Uvarint(payload)
	if w <= 0 || n > uint64(len(payload)) {
		return nil, errBatch
	}
	payload = payload[w:]
	b := &store.Batch{Requests: make([]store.Request, 0, n)}
	for range n {
		if len(payload) < 2 {
			return nil, errBatch
		}
		r := store.Request{DB: payload[0], Proto: payload[1]}
		payload = payload[2:]
		words, w := binary.Uvarint(payload)
		if w <= 0 || words < 1 || words > uint64(len(payload)) {
			return nil, errBatch
		}
		payload = payload[w:]
		r.Args = make([][]byte, 0, words)
		for range words {
			size, w := binary.Uvarint(payload)
			if w <= 0 || size > uint64(len(payload)-w) {
				return nil, errBatch
			}
			r.Args = append(r.Args, payload[w:w+int(size):w+int(size)])
			payload = payload[w+int(size):]
		}
		var ok bool
		if r.Cmd, ok = g.cfg.Lookup(r.Args); !ok {
			return nil, fmt.Errorf("the leader does not know the command %.64q: do all nodes run the same version?", r.Args[0])
		}
		b.Requests = append(b.Requests, r)
	}
	if len(payload) > 0 {
		return nil, errBatch
	}
	return b, nil
}

// hostOf is the address without the ID that Raft's transport carries with it.
func hostOf(addr string) string {
	host, _, _ := strings.Cut(addr, "#")
	return host
}
