package port

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func raftAddress(addr, id string) raft.ServerAddress { return raft.ServerAddress(addr + "#" + id) }

// provider gives the transport addresses with IDs, as a node does.
type provider map[raft.ServerID]string

func (p provider) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	addr, ok := p[id]
	if !ok {
		return "", fmt.Errorf("no node %s", id)
	}
	return raftAddress(addr, string(id)), nil
}

// transport opens Raft's own transport over a port.
func transport(t *testing.T, p *Port, addr string, known provider) *raft.NetworkTransport {
	t.Helper()
	p.SetRaft(true)
	trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: known, Stream: p.Layer(addr), MaxPool: 3, Timeout: patience, Logger: hclog.NewNullLogger(),
	})
	t.Cleanup(func() { _ = trans.Close() })
	return trans
}

// follow answers Raft's requests until stop.
func follow(trans *raft.NetworkTransport, stop chan struct{}) (wait func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case rpc := <-trans.Consumer():
				switch c := rpc.Command.(type) {
				case *raft.AppendEntriesRequest:
					rpc.Respond(&raft.AppendEntriesResponse{Term: c.Term, Success: true, LastLog: c.PrevLogEntry + uint64(len(c.Entries))}, nil)
				case *raft.InstallSnapshotRequest:
					n, err := io.Copy(io.Discard, rpc.Reader)
					rpc.Respond(&raft.InstallSnapshotResponse{Success: n == c.Size}, err)
				default:
					rpc.Respond(nil, errors.New("not expected"))
				}
			case <-stop:
				return
			}
		}
	})
	return wg.Wait
}

func TestRaftsTransportRunsOverThePort(t *testing.T) {
	ca := newAuthority(t)
	server, client := ca.configs(t, ca)
	for name, with := range map[string]struct{ server, client *tls.Config }{"plain": {}, "TLS": {server, client}} {
		t.Run(name, func(t *testing.T) {
			b, addr := open(t, Options{Self: self("c", "b.2"), ServerTLS: with.server, ClientTLS: with.client})
			a, aAddr := open(t, Options{ServerTLS: with.server, ClientTLS: with.client})
			known := provider{"b.2": addr, "a.1": aAddr, "b.1": addr}
			leader := transport(t, a, aAddr, known)
			follower := transport(t, b, addr, known)
			stop := make(chan struct{})
			wait := follow(follower, stop)
			defer wait()
			defer close(stop)
			if got := follower.LocalAddr(); got != raft.ServerAddress(addr) {
				t.Errorf("the address that is advertised is %s", got)
			}

			entries := []*raft.Log{{Index: 8, Term: 3, Data: bytes.Repeat([]byte("x"), 1<<20)}}
			request := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, Entries: entries}
			var r raft.AppendEntriesResponse
			if err := leader.AppendEntries("b.2", "elsewhere", request, &r); err != nil || !r.Success || r.LastLog != 8 {
				t.Errorf("AppendEntries: %+v, %v", r, err)
			}

			// A replaced node's address leads to the new one, which must not get
			// what was meant for the old.
			refused := new(RefusedError)
			err := leader.AppendEntries("b.1", "elsewhere", request, &r)
			if !errors.As(err, &refused) || refused.Code != WrongReceiver {
				t.Errorf("the old incarnation was meant: %v", err)
			}

			pipeline, err := leader.AppendEntriesPipeline("b.2", "elsewhere")
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for range 50 {
					if _, err := pipeline.AppendEntries(request, new(raft.AppendEntriesResponse)); err != nil {
						t.Error(err)
					}
				}
			}()
			for range 50 {
				select {
				case f := <-pipeline.Consumer():
					if err := f.Error(); err != nil || !f.Response().Success {
						t.Errorf("pipeline: %+v, %v", f.Response(), err)
					}
				case <-time.After(patience):
					t.Fatal("the pipeline stands still")
				}
			}
			_ = pipeline.Close()

			state := bytes.Repeat([]byte("state"), 1<<20)
			var installed raft.InstallSnapshotResponse
			err = leader.InstallSnapshot("b.2", "elsewhere", &raft.InstallSnapshotRequest{Term: 3, Size: int64(len(state))}, &installed, bytes.NewReader(state))
			if err != nil || !installed.Success {
				t.Errorf("InstallSnapshot: %+v, %v", installed, err)
			}
			if s := a.Stats(); s.BytesOut < uint64(len(state)+51<<20) {
				t.Errorf("figures: %+v", s)
			}
		})
	}
}

func TestWhoTakesNoPartTakesNoStream(t *testing.T) {
	b, addr := open(t, Options{Self: self("c", "b.2")})
	layer := b.Layer(addr)
	a, _ := open(t, Options{})
	out := a.Layer("a")
	notServing := func() {
		t.Helper()
		refused := new(RefusedError)
		if _, err := out.Dial(raftAddress(addr, "b.2"), patience); !errors.As(err, &refused) || refused.Code != NotServing {
			t.Errorf("it takes no part in Raft: %v", err)
		}
	}
	notServing()
	if _, err := a.Call(t.Context(), addr, "b.2", 1, nil); err != nil {
		t.Errorf("but calls: %v", err)
	}
	b.SetRaft(true)
	c, err := out.Dial(raftAddress(addr, "b.2"), patience)
	if err != nil {
		t.Fatal(err)
	}
	in, err := layer.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = in.Close(), c.Close() }()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(in, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	b.SetRaft(false)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("streams must end when it takes no part any more: %v", err)
	}
	notServing()
}

func TestClosingTheLayerEndsRaftAndNotThePort(t *testing.T) {
	b, addr := open(t, Options{Self: self("c", "b.2")})
	a, aAddr := open(t, Options{})
	known := provider{"b.2": addr, "a.1": aAddr}
	leader, follower := transport(t, a, aAddr, known), transport(t, b, addr, known)
	stop := make(chan struct{})
	wait := follow(follower, stop)
	var r raft.AppendEntriesResponse
	if err := leader.AppendEntries("b.2", "", &raft.AppendEntriesRequest{Term: 1}, &r); err != nil {
		t.Fatal(err)
	}
	close(stop)
	wait()
	// Neither end of the stream is closed by the transports themselves, whose
	// goroutines would hang on them.
	_ = leader.Close()
	_ = follower.Close()
	eventually(t, "the streams are closed", func() bool { return a.Stats().RaftOut == 0 && b.Stats().RaftIn == 0 })
	if _, err := a.Call(t.Context(), addr, "b.2", 1, nil); err != nil {
		t.Errorf("calls go on: %v", err)
	}

	// Raft can be started again.
	again := b.Layer(addr)
	c, err := a.Layer(aAddr).Dial(raftAddress(addr, "b.2"), patience)
	if err != nil {
		t.Fatal(err)
	}
	in, err := again.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = in.Close(), c.Close()
	_ = again.Close()
	if _, err := again.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept of a closed layer: %v", err)
	}
	if _, err := again.Dial(raftAddress(aAddr, "a.1"), patience); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Dial of a closed layer: %v", err)
	}
}

// The time for the handshake is none for what follows.
func TestAStreamMayBeSilent(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *pipes) {
		b := netPort(t, n, "b", Options{Self: self("c", "b.2")})
		b.SetRaft(true)
		layer := b.Layer("b")
		out, err := netPort(t, n, "a", Options{}).Layer("a").Dial("b#b.2", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		in, err := layer.Accept()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		for _, c := range [][2]net.Conn{{out, in}, {in, out}} {
			go func() { _, _ = c[0].Write([]byte("x")) }()
			if _, err := c[1].Read(make([]byte, 1)); err != nil {
				t.Errorf("after an hour: %v", err)
			}
		}
		_, _ = in.Close(), out.Close()
	})
}

func TestClosingTheLayerEndsAnAcceptThatWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *pipes) {
		layer := netPort(t, n, "b", Options{}).Layer("b")
		var err error
		ended := make(chan struct{})
		go func() {
			_, err = layer.Accept()
			close(ended)
		}()
		synctest.Wait()
		_ = layer.Close()
		select {
		case <-ended:
		case <-time.After(time.Second):
		}
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: %v", err)
		}
	})
}

func TestClosingThePortEndsAccept(t *testing.T) {
	b, addr := open(t, Options{Self: self("c", "b.2")})
	layer := b.Layer(addr)
	accepted := make(chan error, 1)
	go func() {
		_, err := layer.Accept()
		accepted <- err
	}()
	_ = b.Close()
	select {
	case err := <-accepted:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: %v", err)
		}
	case <-time.After(patience):
		t.Error("Accept hangs")
	}
	if _, err := layer.Dial("127.0.0.1:1#x", patience); err == nil {
		t.Error("a closed port dials nobody")
	}
}
