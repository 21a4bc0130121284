package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/server/resp"
)

// ErrStopped is returned by Serve when the Server was stopped before.
var ErrStopped = errors.New("transport: the server has been stopped")

// Server serves connections over net.Conn and event loops. Its goroutines: one
// for each running Serve, one for each connection that no event loop has, one
// for each event loop, one that watches the silent, and for a moment one for a
// connection that is turned away. Shutdown stops them all and waits. Its methods
// may be called from any goroutine.
type Server struct {
	o    Options
	tick time.Duration  // how often connections are looked at
	stay int            // rounds of a new connection before an event loop may have it
	back int            // the same, at least, of one that an event loop had
	done chan struct{}  // closed when Shutdown begins
	wg   sync.WaitGroup // goroutines, and connections until they have left

	loops loops

	maxClients  atomic.Int64
	idleTimeout atomic.Int64 // ns

	draining    atomic.Bool  // set with mu held, before done is closed
	held        atomic.Int64 // bytes of large input buffers
	heldReplies atomic.Int64 // bytes of large output buffers
	turning     atomic.Int64 // connections being turned away with care

	rejected, denied, acceptErrors, protocolErrors atomic.Uint64
	panics, idleClosed, slowClosed, tlsClosed      atomic.Uint64

	garbage   atomic.Int64 // bytes, about, that connections have given up since the last collection
	collected time.Time    // when that was; the watch's
	gc        func()

	tlsLogged atomic.Int64 // ns since made, when a TLS handshake was last logged; 0: never
	made      time.Time

	tlsFailed       atomic.Uint64
	tlsFailedLogged atomic.Int64 // as tlsLogged, of a handshake that failed

	mu        sync.Mutex // guards what follows; never held while anything waits
	watching  bool
	lastID    uint64
	conns     map[uint64]*conn
	listeners map[net.Listener]struct{}
	gone      tally // of connections that have ended
}

// tally is what one connection has counted.
type tally struct{ bytesIn, bytesOut, commands, batches uint64 }

// New returns a Server that serves nothing yet.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		o:         o,
		tick:      watchEvery,
		stay:      stayFirst,
		back:      stayLeast,
		gc:        runtime.GC,
		made:      time.Now(),
		done:      make(chan struct{}),
		conns:     make(map[uint64]*conn),
		listeners: make(map[net.Listener]struct{}),
	}
	s.loops.s = s
	s.maxClients.Store(int64(o.MaxClients))
	s.idleTimeout.Store(int64(o.IdleTimeout))
	return s, nil
}

// Serve accepts connections until Shutdown, and then returns nil; the listener
// is closed by then. An accept that fails is tried again after a pause, for as
// long as it takes: running out of file descriptors passes when clients leave.
func (s *Server) Serve(l net.Listener) error {
	if !s.begin(l) {
		_ = l.Close()
		return ErrStopped
	}
	defer s.wg.Done()
	var pause time.Duration
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.welcome(nc)
			continue
		case s.draining.Load():
			return nil
		case errors.Is(err, net.ErrClosed):
			s.forget(l)
			return fmt.Errorf("accept on %s: %w", l.Addr(), err)
		}
		s.acceptErrors.Add(1)
		pause = min(max(2*pause, backoffMin), backoffMax)
		s.o.Log.Warn("accepting a connection failed, trying again", "listener", l.Addr().String(), "error", err, "pause", pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.done:
			timer.Stop()
			return nil
		}
	}
}

// begin enters a listener and starts the watch with the first one.
func (s *Server) begin(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		return false
	}
	s.listeners[l] = struct{}{}
	s.wg.Add(1)
	if !s.watching {
		s.watching = true
		s.wg.Go(s.watch)
	}
	return true
}

func (s *Server) forget(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

// welcome gives a new connection its goroutine, or turns it away. It does not
// wait: others may be behind it in the queue.
func (s *Server) welcome(nc net.Conn) {
	c := &conn{s: s, nc: nc, rounds: s.stay}
	refusal := ""
	if s.o.Admit != nil {
		refusal = s.o.Admit(nc)
	}
	s.mu.Lock()
	if s.draining.Load() {
		s.mu.Unlock()
		_ = nc.Close()
		return
	}
	if most := s.maxClients.Load(); refusal != "" {
		s.denied.Add(1)
	} else if most >= 0 && int64(len(s.conns)) >= most {
		s.rejected.Add(1)
		refusal = "ERR max number of clients reached"
	}
	if refusal == "" {
		s.lastID++
		c.info = ConnInfo{ID: s.lastID, Remote: nc.RemoteAddr(), Local: nc.LocalAddr(), Kill: c.kill}
		_, c.info.Unix = c.info.Local.(*net.UnixAddr)
		_, c.info.TLS = nc.(*tlsConn)
		s.conns[c.info.ID] = c
		s.wg.Add(1)
		go c.serve()
		s.mu.Unlock()
		return
	}
	careful := s.turning.Add(1) <= lingerMost
	if careful {
		s.wg.Go(func() {
			defer s.turning.Add(-1)
			turnAway(nc, refusal, true)
		})
	}
	s.mu.Unlock()
	if !careful {
		s.turning.Add(-1)
		turnAway(nc, refusal, false)
	}
}

// turnAway tells a client why it is not let in and closes the connection. A
// socket that has just been opened takes a line without waiting. Over TLS the
// client has to do its part first, which without care is not waited for.
func turnAway(nc net.Conn, refusal string, careful bool) {
	if t, ok := nc.(*tlsConn); ok && (!careful || t.handshake(lingerFor) != nil) {
		_ = nc.Close()
		return
	}
	w := resp.Writer{}
	w.Error(refusal)
	_ = nc.SetWriteDeadline(time.Now().Add(lingerFor))
	if _, err := nc.Write(w.B); err == nil && careful {
		linger(nc, make([]byte, 512), lingerFor)
	}
	_ = nc.Close()
}

// linger lets a client read the last reply. Closing a socket while input is
// unread makes TCP drop what the client has not yet received; so the server's
// side is closed first, and for a moment what still comes is thrown away: until
// nothing has come for quiet, the client has closed too, or lingerFor is over;
// but, up to lingerLongest, not before its system has taken all replies.
func linger(nc net.Conn, buf []byte, quiet time.Duration) {
	half, ok := nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	begin := time.Now()
	end, until := begin.Add(lingerFor), begin.Add(quiet)
	for total := 0; ; {
		_ = nc.SetReadDeadline(until)
		n, err := nc.Read(buf)
		total += n
		now := time.Now()
		switch {
		case n == 0 && !errors.Is(err, os.ErrDeadlineExceeded):
			return
		case n == 0 && now.Before(until):
			// A deadline that Shutdown has set to wake this connection may
			// arrive late; only our own ends the wait.
			continue
		case n == 0 || !now.Before(end) || total >= lingerBytes:
			// What the client's system has, the client can still read.
			if unacknowledged(nc) == 0 || now.Sub(begin) >= lingerLongest {
				return
			}
			end = now.Add(quiet)
		}
		if until = now.Add(quiet); until.After(end) {
			until = end
		}
	}
}

// hog is the connection that holds the most replies while it waits for its
// client to take them, c if there is none but c.
func (s *Server) hog(c *conn) *conn {
	most := c
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.conns {
		if o.beat.Load()&(1<<phaseBits-1) == writing && (most == c || o.owed.Load() > most.owed.Load()) && o.owed.Load() > 0 {
			most = o
		}
	}
	return most
}

// SetMaxClients changes how many connections there may be at a time; below 0
// is no limit. Those that exist stay.
func (s *Server) SetMaxClients(n int) { s.maxClients.Store(int64(n)) }

// SetIdleTimeout changes after how long a silent connection is closed; 0 is
// never.
func (s *Server) SetIdleTimeout(d time.Duration) { s.idleTimeout.Store(int64(d)) }

// Each calls f with every connection of this moment, in no order, until f
// returns false. f may do anything but wait for a connection to end.
func (s *Server) Each(f func(ConnInfo) bool) {
	for _, c := range s.all() {
		if !f(c.info) {
			return
		}
	}
}

// Kill closes the connection of that ID and reports whether there was one.
func (s *Server) Kill(id uint64) bool {
	s.mu.Lock()
	c := s.conns[id]
	s.mu.Unlock()
	if c == nil {
		return false
	}
	c.kill()
	return true
}

// all returns the connections of this moment.
func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		list = append(list, c)
	}
	return list
}

// leave takes a connection that has ended out of the books. Its counts move to
// the sum at the same moment, so that Stats never goes backwards.
func (s *Server) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.info.ID)
	s.gone.add(c)
}

func (t *tally) add(c *conn) {
	t.bytesIn += c.bytesIn.Load()
	t.bytesOut += c.bytesOut.Load()
	t.commands += c.commands.Load()
	t.batches += c.batches.Load()
}

// Stats returns what has been counted so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	sum, current, accepted := s.gone, len(s.conns), s.lastID
	for _, c := range s.conns {
		sum.add(c)
	}
	s.mu.Unlock()
	return Stats{
		Current:        current,
		Accepted:       accepted,
		Rejected:       s.rejected.Load(),
		Denied:         s.denied.Load(),
		AcceptErrors:   s.acceptErrors.Load(),
		BytesIn:        sum.bytesIn,
		BytesOut:       sum.bytesOut,
		Commands:       sum.commands,
		Batches:        sum.batches,
		ProtocolErrors: s.protocolErrors.Load(),
		Panics:         s.panics.Load(),
		IdleClosed:     s.idleClosed.Load(),
		SlowClosed:     s.slowClosed.Load(),
		TLSClosed:      s.tlsClosed.Load(),
		TLSFailed:      s.tlsFailed.Load(),
		Held:           s.held.Load(),
		HeldReplies:    s.heldReplies.Load(),
	}
}

// countTLS counts a connection that was closed because it began with a TLS
// handshake, and tells the operator, to whom it means a client with the wrong
// settings: the first time and then at most once in tlsLogEvery.
func (s *Server) countTLS(id uint64, remote net.Addr) {
	n := s.tlsClosed.Add(1)
	now, last := int64(time.Since(s.made))+1, s.tlsLogged.Load()
	if last != 0 && now-last < int64(tlsLogEvery) || !s.tlsLogged.CompareAndSwap(last, now) {
		return
	}
	s.o.Log.Info("a client speaks TLS, which this address does not: it has to connect without, or to an address that was given as tls:host:port; the connection is closed",
		"id", id, "client", remote, "closed_so_far", n)
}

// graceAfterForce is how long Shutdown still waits after closing connections
// under their goroutines.
const graceAfterForce = time.Second

// Shutdown stops the Server. First the listeners, so that nobody new comes;
// then each connection after the commands it has already read are decided and
// their replies written. When ctx ends before that, the connections left are
// closed as they are, and the error says so. No goroutine of the Server is left
// then, but for a Session whose Flush does not return within a second more;
// the error names how many. A second call waits as the first does.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.draining.Load() {
		s.draining.Store(true)
		close(s.done)
	}
	for l := range s.listeners {
		_ = l.Close()
	}
	clear(s.listeners)
	s.mu.Unlock()
	// A connection that has not yet begun to read sees draining before it does.
	for _, c := range s.all() {
		c.wake()
	}
	s.loops.drain()
	finished := make(chan struct{})
	go func() {
		s.wg.Wait()
		s.loops.stop()
		close(finished)
	}()
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
	}
	left := s.all()
	for _, c := range left {
		c.kill()
	}
	timer := time.NewTimer(graceAfterForce)
	defer timer.Stop()
	select {
	case <-finished:
		return fmt.Errorf("transport: %d connections were closed before their commands were done: %w", len(left), ctx.Err())
	case <-timer.C:
		return fmt.Errorf("transport: %d connections still wait for a decision: %w", len(s.all()), ctx.Err())
	}
}
