package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// profiler serves net/http/pprof on a listener of its own, for whoever looks
// into a running server.
type profiler struct {
	server *http.Server
	ended  chan struct{}
}

// checkPprofAddr accepts host:port of this machine alone. Who can ask for
// profiles can keep a processor busy, stop all goroutines for a moment, and
// read names and arguments of the program, and there is no password.
func checkPprofAddr(a string) error {
	if a == "" {
		return nil
	}
	if err := checkHostPort(a); err != nil {
		return err
	}
	if host, _, _ := net.SplitHostPort(a); !loopback(host) {
		return fmt.Errorf("%q can be reached by other machines, and profiles know no password: want a loopback address like 127.0.0.1:6060; from elsewhere, ssh -L 6060:127.0.0.1:6060 leads there", a)
	}
	return nil
}

// startProfiler listens on addr and serves, nil for no address.
func startProfiler(addr string, log *slog.Logger) (*profiler, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, listenError(err, "pprof-addr")
	}
	// Not http.DefaultServeMux: what a library adds to that is not served.
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	p := &profiler{
		server: &http.Server{
			Handler: localHosts(mux), ReadHeaderTimeout: 10 * time.Second,
			ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
		ended: make(chan struct{}),
	}
	go func() {
		defer close(p.ended)
		if err := p.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("profiles are no longer served", "error", err)
		}
	}()
	log.Info("serving profiles", "url", "http://"+l.Addr().String()+"/debug/pprof/")
	return p, nil
}

// localHosts refuses requests that name another host than this machine: those
// of a web page whose name was made to lead here.
func localHosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if !loopback(host) {
			http.Error(w, "profiles are served to localhost and loopback addresses by these names only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// stop ends it and waits. A profile that is being made is cut off after within.
func (p *profiler) stop(within time.Duration) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close()
	}
	<-p.ended
}
