package port

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"
)

// accept is the goroutine that takes connections. An accept that fails is tried
// again: running out of file descriptors passes.
func (p *Port) accept() {
	pause := time.Duration(0)
	for {
		nc, err := p.o.Listener.Accept()
		if err == nil {
			pause = 0
			p.admit(nc)
			continue
		}
		if p.ctx.Err() != nil {
			return
		}
		if errors.Is(err, net.ErrClosed) {
			p.o.Log.Error("the listener of the Raft port was closed: no other node can reach this one any more", "error", err)
			return
		}
		pause = min(max(2*pause, backoffLeast), backoffMost)
		p.tell(slog.LevelWarn, "accept", "accepting a connection on the Raft port failed, trying again", "error", err, "pause", pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-p.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// admit gives a new connection its goroutine. When too many have not said hello,
// the one that has been silent longest leaves: a node needs a moment for it, so
// whoever holds connections open keeps no node out.
func (p *Port) admit(nc net.Conn) {
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetKeepAliveConfig(keepAlive)
	}
	c, ok := p.enter(nc, true, false)
	if !ok {
		_ = nc.Close()
		return
	}
	p.count.accepted.Add(1)
	p.mu.Lock()
	var oldest *conn
	if len(p.strangers) >= maxStrangers {
		oldest = p.strangers[0]
		p.strangers = slices.Delete(p.strangers, 0, 1)
	}
	p.strangers = append(p.strangers, c)
	p.mu.Unlock()
	if oldest != nil {
		p.count.refused[reasonCrowd].Add(1)
		_ = oldest.Close()
	}
	p.wg.Go(func() {
		h, s, err := p.welcome(c)
		p.known(c)
		if err != nil {
			_ = c.Close()
			p.turnedAway(c, h, err)
			return
		}
		p.reached("", h.From)
		if h.Raft {
			p.hand(s)
			return
		}
		p.serve(h, s)
	})
}

// known takes a connection off the list of strangers.
func (p *Port) known(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.strangers, c); i >= 0 {
		p.strangers = slices.Delete(p.strangers, i, i+1)
	}
}

// errTLS: the TLS handshake has failed.
type errTLS struct{ error }

func (e errTLS) Unwrap() error { return e.error }

// welcome does the handshake with who has connected.
func (p *Port) welcome(c *conn) (h Hello, s *stream, err error) {
	s = &stream{c, c}
	_ = c.SetDeadline(time.Now().Add(helloTimeout))
	if p.o.ServerTLS != nil {
		t := tls.Server(c, p.o.ServerTLS)
		if err := t.HandshakeContext(p.ctx); err != nil {
			if header := new(tls.RecordHeaderError); errors.As(err, header) && isHello(header.RecordHeader) {
				err = errors.New("a node speaks to this one without TLS: it needs the same settings for TLS as this one")
				_, _ = c.Write(appendAnswer(nil, 0, &RefusedError{NotServing, "TLS is needed here"}))
			}
			return h, nil, errTLS{err}
		}
		s.Conn = t
	}
	h, err = readHello(s)
	refused := new(RefusedError)
	switch {
	case err == nil:
		// First it counts as a stream of Raft, then it is checked, so that SetRaft
		// either finds it or is heeded by check.
		c.greeted(h.Raft)
		refused = p.check(h)
	case !errors.As(err, &refused):
		return h, nil, err
	}
	if refused != nil {
		_, _ = s.Write(appendAnswer(nil, 0, refused))
		return h, nil, refused
	}
	if _, err := s.Write(appendAnswer(nil, h.Version, nil)); err != nil {
		return h, nil, err
	}
	_ = c.SetDeadline(time.Time{})
	return h, s, nil
}

// check says why a node must not be let in, nil if it may.
func (p *Port) check(h Hello) *RefusedError {
	self := p.o.Self()
	switch {
	case h.To != "" && h.To != self.ID:
		return &RefusedError{WrongReceiver, fmt.Sprintf("%s is meant, and this is %s", h.To, self.ID)}
	case h.Cluster != "" && self.Cluster != "" && h.Cluster != self.Cluster:
		return &RefusedError{WrongCluster, fmt.Sprintf("%s belongs to cluster %s, and this is cluster %s", h.From, h.Cluster, self.Cluster)}
	case h.Raft && !p.open.Load():
		return &RefusedError{NotServing, fmt.Sprintf("%s takes no part in Raft", self.ID)}
	case h.Raft && h.Cluster != self.Cluster:
		return &RefusedError{WrongCluster, fmt.Sprintf("%s belongs to cluster %q, and this is cluster %q", h.From, h.Cluster, self.Cluster)}
	case !h.Raft && p.o.Serve == nil:
		return &RefusedError{NotServing, fmt.Sprintf("%s takes no calls", self.ID)}
	}
	if p.o.Check != nil {
		return p.o.Check(h)
	}
	return nil
}

// turnedAway counts and logs a connection that was not let in.
func (p *Port) turnedAway(c *conn, h Hello, err error) {
	if p.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return // it is counted where it was closed
	}
	what, key, r := "something that is no node of stint speaks to the Raft port", "stranger", reasonStranger
	refused := new(RefusedError)
	switch {
	case errors.As(err, &refused):
		what, key, r = "a node is refused on the Raft port", "refuse "+h.From+refused.Text, reasonOf(refused.Code)
	case errors.As(err, new(errTLS)):
		what, key, r = "TLS failed on the Raft port", "tls", reasonTLS
	case errors.Is(err, errNoTLS):
		what, key, r = "TLS failed on the Raft port", "no tls", reasonTLS
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		r = reasonSilent
	}
	p.count.refused[r].Add(1)
	level := slog.LevelInfo
	if r == reasonSilent {
		level = slog.LevelDebug // health checks and scanners
	}
	p.tell(level, key, what, "remote", c.RemoteAddr(), "node", h.From, "error", err)
}

// isHello says whether what TLS took for the head of a record begins a handshake of
// ours.
func isHello(head [5]byte) bool {
	return (head[0] == classRaft || head[0] == classCalls) && string(head[1:]) == magic[:4]
}
