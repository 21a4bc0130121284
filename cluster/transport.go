package cluster

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// inner is what a transport must be able to do for the wrapper below.
type inner interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

// transport wraps Raft's transport:
//
//   - Heartbeats take no short cut: handled beside Raft's main loop they change
//     its term and state from another goroutine, which is not safe.
//   - Every answered AppendEntries is noted, with the time it was sent.
//   - While this node's disk hangs nothing is sent: heartbeats would keep the
//     others loyal to a leader that cannot decide.
type transport struct {
	inner
	acks  *acks
	muted atomic.Bool
}

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil)
	_ raft.WithClose   = (*transport)(nil)
)

// errMuted: nothing is sent to other nodes while the disk hangs.
var errMuted = errors.New("nothing is sent while the disk of this node hangs")

// SetHeartbeatHandler ignores the handler: heartbeats go the way of all requests.
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}

func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if t.muted.Load() {
		return errMuted
	}
	sent := time.Now()
	*resp = raft.AppendEntriesResponse{} // Raft uses it again: an answer leaves out what is zero
	err := t.inner.AppendEntries(id, target, args, resp)
	if err == nil {
		t.acks.note(id, sent, args, resp)
	}
	return err
}

func (t *transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	if t.muted.Load() {
		return nil, errMuted
	}
	in, err := t.inner.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &pipeline{AppendPipeline: in, t: t, id: id, out: make(chan raft.AppendFuture), done: make(chan struct{})}
	go p.pass()
	return p, nil
}

// pipeline notes the answers that come through a pipeline of Raft's transport.
type pipeline struct {
	raft.AppendPipeline
	t    *transport
	id   raft.ServerID
	out  chan raft.AppendFuture
	done chan struct{}
	once sync.Once
}

func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.t.muted.Load() {
		return nil, errMuted
	}
	// The future's own Start is taken before it is sent.
	return p.AppendPipeline.AppendEntries(args, resp)
}

func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.out }

func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.done) })
	return p.AppendPipeline.Close()
}

// pass hands answers on, each noted first. It ends with the pipeline.
func (p *pipeline) pass() {
	in := p.AppendPipeline.Consumer()
	for {
		select {
		case f := <-in:
			if f.Error() == nil {
				p.t.acks.note(p.id, f.Start(), f.Request(), f.Response())
			}
			select {
			case p.out <- f:
			case <-p.done:
				return
			}
		case <-p.done:
			return
		}
	}
}

func (t *transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if t.muted.Load() {
		return errMuted
	}
	return t.inner.InstallSnapshot(id, target, args, resp, data)
}
