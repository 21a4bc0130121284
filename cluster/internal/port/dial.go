package port

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// dial connects to a node and does the handshake, by the deadline of ctx. It
// returns who this node has said it is.
func (p *Port) dial(ctx context.Context, addr string, h Hello) (s *stream, self Identity, err error) {
	p.count.dials.Add(1)
	self = p.o.Self()
	h.Cluster, h.From = self.Cluster, self.ID
	s, err = p.greet(ctx, addr, h)
	if err == nil {
		p.reached(addr, h.To)
		return s, self, nil
	}
	p.count.dialsFailed.Add(1)
	if refused := new(RefusedError); errors.As(err, &refused) {
		p.tell(slog.LevelWarn, "refused by "+addr+refused.Text, "another node refuses this one on its Raft port",
			"addr", addr, "meant", h.To, "why", refused.Text)
	}
	return nil, self, err
}

func (p *Port) greet(ctx context.Context, addr string, h Hello) (*stream, error) {
	hello, err := appendHello(nil, h)
	if err != nil {
		return nil, fmt.Errorf("handshake with %s: %w", addr, err)
	}
	nc, err := p.dialer(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	sock, ok := p.enter(nc, false, h.Raft)
	if !ok {
		_ = nc.Close()
		return nil, net.ErrClosed
	}
	s := &stream{sock, sock}
	if deadline, ok := ctx.Deadline(); ok {
		_ = sock.SetDeadline(deadline)
	}
	if p.o.ClientTLS != nil {
		config := p.o.ClientTLS
		if config.ServerName == "" && !config.InsecureSkipVerify {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				_ = s.Close()
				return nil, fmt.Errorf("TLS with %s: %w", addr, err)
			}
			config = config.Clone()
			config.ServerName = host
		}
		t := tls.Client(sock, config)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = s.Close()
			return nil, fmt.Errorf("TLS with %s: %w", addr, err)
		}
		s.Conn = t
	}
	if _, err = s.Write(hello); err == nil {
		_, err = readAnswer(s)
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("handshake with %s: %w", addr, err)
	}
	_ = sock.SetDeadline(time.Time{})
	sock.greeted(h.Raft)
	return s, nil
}

// reached ends the rest of links to a node that has just been heard of: it is back.
func (p *Port) reached(addr, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t, l := range p.links {
		if addr != "" && t.addr == addr || id != "" && t.to == id {
			l.hope()
		}
	}
}
