//go:build unix

package cluster

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// history collects operations. Its methods may be called from any goroutine.
type history struct {
	begun time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
	count [3]int // by outcome
	wrong []string
}

func newHistory() *history { return &history{begun: time.Now()} }

func (h *history) now() int64 { return int64(time.Since(h.begun)) }

// do makes a call through a node and notes it. What surely did not happen is left
// out: had it happened after all, the others would not fit together.
func (h *history) do(client int, w *wire, c call) (o outcome) {
	before := h.now()
	replies, o, err := w.do(callTimeout, c.on.command(c.verb, c.cost), []string{"DEBUG", "STAMP"})
	op := porcupine.Operation{ClientId: client, Input: c, Call: before, Return: h.now()}
	var r result
	if o == decided {
		var ok bool
		if r, ok = parse(c, replies); !ok {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.wrong = append(h.wrong, fmt.Sprintf("%s: unexpected replies %v", describe(c, result{}), replies))
			return o
		}
	}
	if o == unknown {
		op.Return = math.MaxInt64
	}
	op.Output, op.Metadata = r, meta(w.addr, err)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count[o]++
	if o != notApplied {
		h.ops = append(h.ops, op)
	}
	return o
}

func meta(addr string, err error) string {
	if err == nil {
		return addr
	}
	return addr + ": " + err.Error()
}
