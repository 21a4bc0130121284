// Package admin is the HTTP server for operators: the figures of this node as
// Prometheus reads them, and whether it lives and can decide. It only reads: no
// request changes anything, none is about a key, and no key is ever shown.
//
// It knows no password. Whoever reaches the address learns how busy the server
// is and how its cluster stands, and can make it count its keys, so the address
// is of loopback or of a network of operators alone; to warn about another one
// is up to who chooses the address.
//
// A Server has one goroutine and one for each connection, of which there are
// MaxConns at most. The functions of a Source are called on those.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Bounds of what a client may take.
const (
	// MaxConns is how many connections are open at a time; more wait in the
	// system's queue. One Prometheus needs one, a prober one for a moment.
	MaxConns = 16

	headerTimeout = 5 * time.Second  // from the connection, or the first byte, to the end of the headers
	readTimeout   = 10 * time.Second // … to the end of a body nobody asked for
	writeTimeout  = 30 * time.Second // from the headers to the end of the answer
	idleTimeout   = 2 * time.Minute  // between two requests: longer than scrapes are usually apart
	maxHeader     = 16 << 10         // bytes
)

// Config is all a Server is made of. It is passed once and not changed.
type Config struct {
	// Source is asked for everything that is shown. Required.
	Source Source

	// Exactly one of the two: the address host:port that Start listens on, or
	// a listener, which is the Server's from New on.
	Addr     string
	Listener net.Listener

	// Log is required. What one client did wrong is of level debug.
	Log *slog.Logger
}

// Server serves Config.Source by HTTP. Make one with New; then Start and
// Shutdown, once each and in this order, from one goroutine.
type Server struct {
	cfg    Config
	http   *http.Server
	limit  *limitListener
	ended  chan struct{} // closed when nothing is served any more; nil before Start
	closed bool          // Shutdown was called
}

// New makes a server that does not listen yet, unless it is given a listener.
func New(cfg Config) (*Server, error) {
	if cfg.Source == nil || cfg.Log == nil {
		return nil, errors.New("admin: Source and Log are required")
	}
	if (cfg.Addr == "") == (cfg.Listener == nil) {
		return nil, errors.New("admin: exactly one of Addr and Listener is required")
	}
	s := &Server{cfg: cfg}
	h, err := newHandler(cfg.Source, cfg.Log, s.crowded)
	if err != nil {
		return nil, err
	}
	s.http = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Start listens and begins to serve; it does not wait. ctx ends the opening of
// the listener, not the serving. The error wraps that of net.Listen.
func (s *Server) Start(ctx context.Context) error {
	if s.ended != nil || s.closed {
		return errors.New("admin: a server starts once")
	}
	l := s.cfg.Listener
	if l == nil {
		var lc net.ListenConfig
		var err error
		if l, err = lc.Listen(ctx, "tcp", s.cfg.Addr); err != nil {
			return fmt.Errorf("admin: %w", err)
		}
	}
	s.limit = newLimitListener(l, MaxConns)
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		if err := s.http.Serve(s.limit); !errors.Is(err, http.ErrServerClosed) {
			s.cfg.Log.Error("metrics and health are no longer served", "error", err)
		}
	}()
	return nil
}

// Addr is where the server listens, with the port that the system chose if 0
// was asked for; nil before Start, if no listener was given.
func (s *Server) Addr() net.Addr {
	switch {
	case s.limit != nil:
		return s.limit.Addr()
	case s.cfg.Listener != nil:
		return s.cfg.Listener.Addr()
	}
	return nil
}

// Shutdown ends the server: no new connections; answers that are being made are
// sent, until ctx ends, which cuts them off and is the error. Nothing of the
// server asks the Source afterwards, unless one of its functions has not
// returned when ctx ends. A second call does nothing.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.ended == nil {
		if s.cfg.Listener != nil {
			return s.cfg.Listener.Close()
		}
		return nil
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
		err = fmt.Errorf("admin: answers were cut off: %w", err)
	}
	<-s.ended
	return err
}

// crowded reports whether connections are so many that none should be kept
// without a request.
func (s *Server) crowded() bool { return s.limit != nil && s.limit.open() > MaxConns/2 }
