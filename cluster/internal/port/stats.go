package port

import (
	"sort"
	"sync/atomic"
	"time"
)

// reason is why a connection was not let in, as it is counted.
type reason int

const (
	reasonCluster reason = iota
	reasonReceiver
	reasonServing
	reasonVersion
	reasonTLS
	reasonStranger // it speaks something else
	reasonSilent   // it has said nothing, or not enough, in time
	reasonCrowd    // it had to make room for others before it had said hello
	reasonOther    // a Code of the caller's own
	reasons
)

var reasonNames = [reasons]string{"wrong_cluster", "wrong_receiver", "not_serving", "wrong_version", "tls", "stranger", "silent", "crowd", "other"}

func reasonOf(c Code) reason {
	switch c {
	case WrongCluster:
		return reasonCluster
	case WrongReceiver:
		return reasonReceiver
	case NotServing:
		return reasonServing
	case WrongVersion:
		return reasonVersion
	}
	return reasonOther
}

type counters struct {
	accepted, dials, dialsFailed atomic.Uint64
	bytesIn, bytesOut            atomic.Uint64
	served                       atomic.Uint64
	sent, replied, notSent, lost atomic.Uint64
	refused                      [reasons]atomic.Uint64
}

// Stats are figures of a Port; counts are since it was made.
type Stats struct {
	RaftIn, RaftOut   int // streams now
	CallsIn, CallsOut int // connections for calls now
	Strangers         int // connections now that have not said hello

	Accepted           uint64
	Dials, DialsFailed uint64
	BytesIn, BytesOut  uint64            // of all connections, as they are on the wire
	Refused            map[string]uint64 // connections that were not let in, by reason

	CallsServed  uint64 // calls of other nodes
	CallsSent    uint64 // calls that were, or may have been, written
	CallsReplied uint64
	CallsNotSent uint64 // ended with ErrNotSent
	CallsLost    uint64 // ended with ErrLost
	CallsPending int    // calls now that wait to be written or answered
	BytesPending int    // of those
	Peers        []PeerStats
}

// PeerStats are figures of the connection for calls to one node.
type PeerStats struct {
	Addr, To  string
	Connected bool
	Pending   int           // calls
	RoundTrip time.Duration // of the last ping; 0: none yet
	Err       error         // why there is no connection, nil if nothing is wrong
}

// Stats returns the figures as they are now. Those of different lines may be of
// slightly different moments.
func (p *Port) Stats() Stats {
	s := Stats{
		Accepted: p.count.accepted.Load(), Dials: p.count.dials.Load(), DialsFailed: p.count.dialsFailed.Load(),
		BytesIn: p.count.bytesIn.Load(), BytesOut: p.count.bytesOut.Load(),
		CallsServed: p.count.served.Load(), CallsSent: p.count.sent.Load(), CallsReplied: p.count.replied.Load(),
		CallsNotSent: p.count.notSent.Load(), CallsLost: p.count.lost.Load(),
		Refused: make(map[string]uint64, reasons),
	}
	for r, name := range reasonNames {
		s.Refused[name] = p.count.refused[r].Load()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Strangers = len(p.strangers)
	for c := range p.conns {
		switch {
		case !c.welcome:
		case c.raft && c.in:
			s.RaftIn++
		case c.raft:
			s.RaftOut++
		case c.in:
			s.CallsIn++
		default:
			s.CallsOut++
		}
	}
	for _, l := range p.links {
		peer, bytes := l.stats()
		s.CallsPending += peer.Pending
		s.BytesPending += bytes
		s.Peers = append(s.Peers, peer)
	}
	sort.Slice(s.Peers, func(i, j int) bool {
		a, b := &s.Peers[i], &s.Peers[j]
		return a.Addr < b.Addr || a.Addr == b.Addr && a.To < b.To
	})
	return s
}
