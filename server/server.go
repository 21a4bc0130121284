// Package server speaks the Redis protocol in front of a keyspace: listeners,
// connections, sessions, the command table and the store of a single node,
// wired together. The parts are in the folders below; this package only joins
// them, runs what has to happen now and then, and stops it all in order.
package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/store"
	"github.com/stint-dev/stint/server/command"
	"github.com/stint-dev/stint/server/local"
	"github.com/stint-dev/stint/server/resp"
	"github.com/stint-dev/stint/server/session"
	"github.com/stint-dev/stint/server/transport"
)

// Persister saves the keyspace: what SAVE, BGSAVE, LASTSAVE and INFO use.
type Persister = command.Persister

// PersistInfo is the state of saving.
type PersistInfo = command.PersistInfo

// Certificates are what addresses that begin with tls: show to clients, and
// ask them for.
type Certificates = transport.Certificates

// CertificateFiles are where Certificates come from.
type CertificateFiles = transport.CertificateFiles

// CertificateInfo describes Certificates.
type CertificateInfo = transport.CertificateInfo

// CertificateError says which of the files cannot be used, and why.
type CertificateError = transport.CertificateError

// LoadCertificates reads the files. The error is a *CertificateError.
func LoadCertificates(files CertificateFiles) (*Certificates, error) {
	return transport.LoadCertificates(files)
}

// Config is all a Server is made of. It is passed once and not changed.
type Config struct {
	// Keyspace is what the commands work on; its state is loaded already.
	Keyspace *engine.Keyspace
	// Persist saves it; nil if nothing does.
	Persist Persister

	// Store decides on it; nil: this server itself, in this process's memory. With
	// one, EventLoops must be 0, because a batch is not decided at once. Cluster is
	// what it is part of, and Tester moves its clock, for DEBUG; nil: none.
	Store   store.Store
	Cluster command.Cluster
	Fail    command.FailMode // how decisions are answered that Store cannot make
	Tester  command.Debugger

	Addrs         []string      // host:port, tls:host:port or unix:/path, at least one
	TLS           *Certificates // for those with tls:; nil if there are none
	MaxClients    int           // connections at a time, at least 1
	EventLoops    int           // that serve plain connections; 0: each has a goroutine
	IdleTimeout   time.Duration // a connection silent for longer is closed; 0: never
	MaxOutput     int           // bytes of the largest single reply
	MaxArgument   int           // bytes of one argument
	Password      string        // clients must give it; empty: none
	ProtectedMode bool          // without a password, only this machine may connect

	// SLOWLOG keeps the last SlowLog commands that took SlowerThan or longer;
	// below 0: none. LATENCY notes what takes LatencyThreshold or longer; 0:
	// nothing.
	SlowLog                      int
	SlowerThan, LatencyThreshold time.Duration

	// CheckClients, if not nil, returns a sentence about why there cannot be so
	// many connections, for CONFIG SET maxclients.
	CheckClients func(n int) error

	// Debug allows the DEBUG command. DebugClock, if not nil, is the unix
	// time in ns at which the clock of decisions stands from the start.
	Debug      bool
	DebugClock *int64

	Version string // of the program, for HELLO and INFO

	// Settings that CONFIG GET only shows.
	Dir, File, Durability, LogFormat string
	Interval                         time.Duration

	// Log is required. LogLevel is what CONFIG SET loglevel changes; nil if
	// it cannot be.
	Log      *slog.Logger
	LogLevel *slog.LevelVar
}

// Server is a running server. Make one with New; then Listen, Serve and
// Shutdown, in this order.
type Server struct {
	cfg       Config
	info      *command.Server
	clock     *local.Clock
	store     store.Store
	transport *transport.Server
	protected atomic.Bool

	maxClients  atomic.Int64
	idleTimeout atomic.Int64 // ns
	base        atomic.Pointer[transport.Stats]

	listeners []net.Listener
	tlsPort   int // of the first TLS listener, 0 if there is none; set by Listen
	stop      chan struct{}
	running   sync.WaitGroup // the upkeep goroutine

	mu      sync.Mutex
	stopped bool // Shutdown was called; stop is closed
}

// New makes a server that does not listen yet.
func New(cfg Config) (*Server, error) {
	if cfg.Store != nil && cfg.EventLoops != 0 {
		return nil, errors.New("server: event loops need a store that decides at once")
	}
	if cfg.Keyspace == nil || cfg.Log == nil || len(cfg.Addrs) == 0 {
		return nil, errors.New("server: Keyspace, Log and Addrs are required")
	}
	id := make([]byte, 20)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("server: make a run id: %w", err)
	}
	s := &Server{cfg: cfg, stop: make(chan struct{})}
	s.protected.Store(cfg.ProtectedMode)
	s.maxClients.Store(int64(cfg.MaxClients))
	s.idleTimeout.Store(int64(cfg.IdleTimeout))
	s.base.Store(&transport.Stats{})
	s.clock = local.NewClock(cfg.Keyspace.Latest())
	if cfg.DebugClock != nil {
		s.clock.Freeze(*cfg.DebugClock)
	}
	s.info = &command.Server{
		Version:      cfg.Version,
		RunID:        hex.EncodeToString(id),
		Started:      time.Now(),
		Clock:        s.clock.Now,
		ClockAhead:   s.clock.Ahead,
		Keyspace:     func() engine.Stats { return cfg.Keyspace.Stats(s.clock.Now()) },
		Traffic:      s.traffic,
		ResetTraffic: func() { t := s.transport.Stats(); s.base.Store(&t) },
		ConnTraffic:  s.connTraffic,
		Kill:         func(id uint64) bool { return s.transport.Kill(id) },
		Killed:       s.killed,
		Persist:      cfg.Persist,
	}
	s.info.SetSlowLog(cfg.SlowLog)
	s.info.SetSlowerThan(cfg.SlowerThan.Microseconds())
	s.info.SetLatencyThreshold(cfg.LatencyThreshold.Milliseconds())
	decides := local.New(cfg.Keyspace, s.clock, &command.Executor{Failed: s.info.Failed, Debug: cfg.Debug})
	s.store = decides
	if cfg.Store != nil {
		s.store = cfg.Store
		s.info.Clock, s.info.ClockAhead = nil, nil
		s.info.Keyspace = func() engine.Stats { return cfg.Keyspace.Stats(cfg.Keyspace.Latest()) }
		s.info.Cluster = cfg.Cluster
		f := &s.info.Fallback
		f.Mode, f.State, f.Clock, f.Changed = cfg.Fail, cfg.Keyspace, func() int64 { return time.Now().UnixNano() }, s.failing
		f.Voters = func() int { return cfg.Cluster.Status().Voters }
	}
	if cfg.TLS != nil {
		s.info.TLS = func() command.TLSInfo {
			i := cfg.TLS.Info()
			return command.TLSInfo{ValidFrom: i.NotBefore, ValidUntil: i.NotAfter, ClientCertificates: i.ClientCAs > 0}
		}
	}
	s.info.Password.Set([]byte(cfg.Password))
	if cfg.Debug {
		s.info.Debug = decides
		if cfg.Store != nil {
			s.info.Debug = cfg.Tester
		}
	}
	s.settings()

	limits := resp.DefaultLimits()
	if cfg.MaxArgument > 0 {
		limits.MaxArgument = cfg.MaxArgument
		limits.MaxCommand = max(limits.MaxCommand, 2*cfg.MaxArgument)
	}
	var err error
	s.transport, err = transport.New(transport.Options{
		NewSession:  s.newSession,
		Admit:       s.admit,
		Limits:      limits,
		MaxClients:  cfg.MaxClients,
		Loops:       cfg.EventLoops,
		IdleTimeout: cfg.IdleTimeout,
		MaxOutput:   cfg.MaxOutput,
		Log:         cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// failing logs the begin and the end of a failure mode: a limiter that is silently
// open is no limiter.
func (s *Server) failing(active bool, why string, answered int64) {
	if active {
		s.cfg.Log.Error("no decision can be made", "why", why, "answered_by", s.cfg.Fail.String())
		return
	}
	s.cfg.Log.Info("decisions are made again", "answered_meanwhile", answered, "answered_by", s.cfg.Fail.String())
}

// Info is what commands know of the server, for who shows it elsewhere.
func (s *Server) Info() *command.Server { return s.info }

func (s *Server) newSession(c transport.ConnInfo) transport.Session {
	return session.New(s.info, s.store, session.Info{
		ID: c.ID, Addr: addrString(c.Remote, c.Local), LocalAddr: c.Local.String(), Unix: c.Unix,
		MaxOutput: s.cfg.MaxOutput,
	})
}

// addrString is the client's address. A client of a unix socket has none: the
// socket's path stands for it, as in Redis.
func addrString(remote, local net.Addr) string {
	if _, ok := local.(*net.UnixAddr); ok {
		return local.String() + ":0"
	}
	return remote.String()
}

// errProtected is what a client reads that protected mode turns away.
const errProtected = "DENIED stint is in protected mode: it has no password and serves clients of its own machine only. " +
	"To be reachable from elsewhere, start it with --requirepass-file FILE (or --requirepass), with a tls: address and --tls-ca, " +
	"or, where everyone who can reach it may use it, with --protected-mode no."

// admit is protected mode: with no password, who is not on this machine is
// turned away. Where clients must show a certificate, that says who they are.
func (s *Server) admit(nc net.Conn) string {
	if !s.protected.Load() || s.info.Password.Required() || transport.Verifies(nc) {
		return ""
	}
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		return errProtected
	}
	return ""
}

// traffic is the transport's counters since the last CONFIG RESETSTAT.
func (s *Server) traffic() command.Traffic {
	t, base := s.transport.Stats(), s.base.Load()
	return command.Traffic{
		Clients:        int64(t.Current),
		MaxClients:     s.maxClients.Load(),
		Accepted:       int64(t.Accepted - base.Accepted),
		Rejected:       int64(t.Rejected + t.Denied - base.Rejected - base.Denied),
		BytesIn:        int64(t.BytesIn - base.BytesIn),
		BytesOut:       int64(t.BytesOut - base.BytesOut),
		ProtocolErrors: int64(t.ProtocolErrors - base.ProtocolErrors),
		OutputClosed:   int64(t.SlowClosed - base.SlowClosed),
		Panics:         int64(t.Panics - base.Panics),
		IdleClosed:     int64(t.IdleClosed - base.IdleClosed),
		TLSClosed:      int64(t.TLSClosed - base.TLSClosed),
		TLSFailed:      int64(t.TLSFailed - base.TLSFailed),
		AcceptErrors:   int64(t.AcceptErrors - base.AcceptErrors),
		HeldInput:      t.Held,
		HeldReplies:    t.HeldReplies,
	}
}

// connTraffic is what one connection has moved.
func (s *Server) connTraffic(id uint64) (command.ConnTraffic, bool) {
	t, ok := s.transport.Traffic(id)
	return command.ConnTraffic(t), ok
}

// killed logs a CLIENT KILL, whose reply its caller alone has seen.
func (s *Server) killed(n int64, which, by string) {
	s.cfg.Log.Info("connections are closed by CLIENT KILL", "count", n, "which", which, "by", by)
}

// Listen opens the listeners: all or none.
func (s *Server) Listen(ctx context.Context) error {
	for _, addr := range s.cfg.Addrs {
		l, err := s.listen(ctx, addr)
		if err != nil {
			for _, open := range s.listeners {
				_ = open.Close()
			}
			s.listeners = nil
			return err
		}
		s.listeners = append(s.listeners, l)
		switch a := l.Addr().(type) {
		case *net.TCPAddr:
			if s.info.Port == 0 {
				s.info.Port = a.Port
			}
		case transport.TLSAddr:
			if s.tlsPort == 0 {
				s.tlsPort = a.Port
			}
		}
	}
	return nil
}

func (s *Server) listen(ctx context.Context, addr string) (net.Listener, error) {
	if transport.IsTLS(addr) {
		return transport.ListenTLS(ctx, addr, s.cfg.TLS)
	}
	return transport.Listen(ctx, addr)
}

// SetPassword makes plain the password that clients must give from now on, and
// reports whether it is another one than before. Clients that have given the
// former one stay. plain is not empty.
func (s *Server) SetPassword(plain string) (changed bool) {
	if s.info.Password.Required() && s.info.Password.Check([]byte(plain)) {
		return false
	}
	s.info.Password.Set([]byte(plain))
	return true
}

// Addrs is where the server listens, after Listen: with the port that the
// system chose where the configuration says 0. The network of one with TLS is
// "tls".
func (s *Server) Addrs() []net.Addr {
	addrs := make([]net.Addr, len(s.listeners))
	for i, l := range s.listeners {
		addrs[i] = l.Addr()
	}
	return addrs
}

// Serve serves until Shutdown, and then returns nil. It returns earlier, with
// an error, if a listener fails for good; Shutdown must be called then too.
func (s *Server) Serve() error {
	if !s.begin() {
		return nil
	}
	failed := make(chan error, len(s.listeners))
	for _, l := range s.listeners {
		go func() { failed <- s.transport.Serve(l) }()
	}
	for range s.listeners {
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}

// Shutdown stops the server: first the transport (no new connections, running
// batches end and their replies are sent, the rest is closed when ctx ends),
// because it is what changes the keyspace; then the upkeep. Afterwards nothing
// of the server touches the keyspace any more, so that a last save is complete.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.transport.Shutdown(ctx)
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stop)
		// Those that Serve did not get to.
		for _, l := range s.listeners {
			_ = l.Close()
		}
	}
	s.mu.Unlock()
	s.running.Wait()
	return err
}

// begin starts what runs beside the listeners, unless Shutdown came first.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.running.Go(s.upkeep)
	}
	return !s.stopped
}
