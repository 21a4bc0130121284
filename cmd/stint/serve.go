package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/persist"
	"github.com/stint-dev/stint/server"
	"github.com/stint-dev/stint/server/command"
)

// Time limits of an ordered stop. Together they stay below stopLimit, after
// which the process ends whatever it is doing.
const (
	stopLead    = 1 * time.Second         // the leadership is handed over
	stopClients = 3 * time.Second         // batches at hand are decided and answered
	stopFlush   = 4500 * time.Millisecond // the last flush; it is tried again if it fails
	stopProfile = 500 * time.Millisecond  // profiles that are being made
	stopReload  = 500 * time.Millisecond  // files that a SIGHUP has read again
	stopLimit   = 9500 * time.Millisecond // service managers kill after 10 s
)

// state is what keeps the keyspace: a state file, or a node's log.
type state struct {
	file    *persist.State
	flusher *persist.Flusher // nil until the server is about to serve
	node    *node
	fatal   chan error // takes one: the node must not go on
}

// serve runs the server until it is told to stop, and returns the exit code.
func (p *process) serve(cfg *Config, with secrets, log *slog.Logger, level *slog.LevelVar) int {
	w := p.signals(log)
	m := p.manager(log)
	r := hangups(cfg, with.certs, m, log)
	took, err := p.operate(w, r, m, cfg, with, log, level)
	// Whoever reads that it has stopped finds nothing that a signal could
	// still change.
	r.stop(stopReload)
	w.stop()
	if err != nil {
		return p.fail(exitFailure, err)
	}
	log.Info("stopped", "took", took.Round(time.Millisecond))
	return exitOK
}

// operate starts the server, waits and stops it. took is how long the stop
// took.
//
// It starts from the inside out: the lock on the folder, the state, the
// listeners. Nobody can connect before all that was kept is there again.
func (p *process) operate(w *watch, r *reloader, m *manager, cfg *Config, with secrets, log *slog.Logger, level *slog.LevelVar) (took time.Duration, err error) {
	warn(cfg, log)
	if with.certs != nil {
		warnCertificate(with.certs.Info(), time.Now(), log)
	}
	// From the first to the last: what takes long at a start or a stop is as
	// much worth a profile as what does so in between.
	prof, err := startProfiler(cfg.PprofAddr, log)
	if err != nil {
		return 0, err
	}
	defer prof.stop(stopProfile)
	ks, err := engine.New(engine.Options{MaxMemory: int64(cfg.MaxMemory), Track: cfg.Durability == "interval"})
	if err != nil {
		return 0, err
	}
	st := state{fatal: make(chan error, 1)}
	switch cfg.Durability {
	case "strict":
		m.loading()
		st.node, err = openNode(cfg, ks, log, func(err error) {
			log.Error("this node must not go on", "error", err)
			st.fatal <- err
			// A disk that hangs may keep even the stop from ending.
			time.AfterFunc(stopLimit, func() { os.Exit(p.fail(exitFailure, err)) })
		})
		if err != nil {
			return 0, err
		}
	case "interval":
		m.loading()
		if st.file, err = p.load(w.asked, cfg, ks, log); err != nil {
			return 0, err
		}
		if w.asked.Err() != nil {
			// Loading may still go on, but it only reads, and the lock ends
			// with the process.
			log.Info("stopped before the state was loaded; it was not changed")
			return 0, nil
		}
	}
	srv, err := st.begin(w.asked, cfg, with, ks, log, level)
	if st.flusher != nil {
		failing := func() bool { return st.flusher.Info().Failing > 0 }
		w.failing.Store(&failing)
	}
	if err != nil {
		if w.asked.Err() != nil {
			err = nil // the listeners were not opened because of the signal
		}
		return 0, errors.Join(listenError(err, "addr"), st.end(log))
	}
	announce(cfg, srv, ks, with, log)
	operators, err := startAdmin(w.asked, cfg, srv, &st, log)
	if err != nil {
		_, stopped := shutdown(w.hurry, srv, &st, nil, log)
		return 0, errors.Join(listenError(err, "admin-addr"), stopped)
	}
	defer operators.stop()

	ended := make(chan error, 1)
	go func() { ended <- srv.Serve() }()
	m.ready()
	r.run(srv.SetPassword)
	var failure error
	select {
	case <-w.asked.Done():
	case failure = <-ended:
	case failure = <-st.fatal:
	}
	m.stopping()
	operators.stopping()
	return shutdown(w.hurry, srv, &st, failure, log)
}

// load locks the folder and loads its state, or returns early when ctx ends.
func (p *process) load(ctx context.Context, cfg *Config, ks *engine.Keyspace, log *slog.Logger) (*persist.State, error) {
	if _, raftLog, err := persist.Holds(cfg.stateDir()); err == nil && raftLog {
		return nil, fmt.Errorf("the folder %s is that of a node with durability strict: start it with --durability strict, or choose another folder with --dir", cfg.stateDir())
	}
	st, err := persist.Open(cfg.stateDir(), persist.Options{
		Interval: time.Duration(cfg.Interval), Logger: log, Version: buildVersion(),
	})
	if err != nil {
		return nil, err
	}
	type outcome struct {
		info persist.LoadInfo
		err  error
	}
	loaded := make(chan outcome, 1)
	go func() {
		info, err := st.Load(ks)
		loaded <- outcome{info, err}
	}()
	select {
	case <-ctx.Done():
		return st, nil
	case o := <-loaded:
		if o.err != nil {
			return nil, errors.Join(o.err, st.Close())
		}
		if o.info.Created {
			log.Info("a new state file was made", "dir", cfg.stateDir())
			return st, nil
		}
		log.Info("the state is loaded", "dir", cfg.stateDir(), "keys", keys(cfg, ks), "bytes", o.info.Bytes,
			"took", o.info.Took.Round(time.Millisecond), "last_flush", o.info.Saved.UTC().Format(time.RFC3339))
		return st, nil
	}
}

// roomForLoops has Go's scheduler run one goroutine more at a time for each event
// loop, unless GOMAXPROCS says how many it is to be. A loop mostly waits in the
// kernel, and gives its place away meanwhile; when clients have sent something it
// must not wait for a place that a flush or the collector has taken: which of
// them gets a processor is better decided by the kernel, which knows priorities.
func roomForLoops(loops int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + loops)
	}
}

// begin starts flushing and opens the listeners.
func (st *state) begin(ctx context.Context, cfg *Config, with secrets, ks *engine.Keyspace, log *slog.Logger, level *slog.LevelVar) (*server.Server, error) {
	var persister server.Persister
	if st.file != nil {
		var err error
		if st.flusher, err = st.file.Start(); err != nil {
			return nil, err
		}
		persister = &saver{st.flusher, cfg}
	}
	loops := cfg.eventLoops()
	if st.node != nil {
		loops = 0 // answers come later
	}
	roomForLoops(loops)
	conf := server.Config{
		Keyspace:      ks,
		Persist:       persister,
		Addrs:         cfg.Addr,
		MaxClients:    int(cfg.MaxClients),
		EventLoops:    loops,
		IdleTimeout:   time.Duration(cfg.IdleTimeout),
		MaxOutput:     int(cfg.MaxOutput),
		MaxArgument:   int(cfg.MaxArgument),
		Password:      with.password,
		TLS:           with.certs,
		ProtectedMode: cfg.ProtectedMode == "yes",
		Debug:         cfg.EnableDebugCommand,
		DebugClock:    (*int64)(cfg.DebugClock),
		Version:       buildVersion(),
		Dir:           cfg.stateDir(),
		File:          persist.FileName,
		Durability:    cfg.Durability,
		Interval:      time.Duration(cfg.Interval),
		LogFormat:     cfg.LogFormat,
		Log:           log,
		LogLevel:      level,

		SlowLog:          int(cfg.SlowlogMaxLen),
		SlowerThan:       time.Duration(cfg.SlowlogSlowerThan),
		LatencyThreshold: time.Duration(cfg.LatencyThreshold),
		CheckClients:     func(n int) error { return clientsFit(openFiles(), n, len(cfg.Addr)) },
	}
	if st.node != nil {
		part := raftPart{st.node.group, cfg}
		conf.Fail = command.FailMode(slices.Index(command.FailModes, cfg.Fail))
		conf.Store, conf.Cluster, conf.Tester, conf.File = st.node.group, part, part, persist.LogFileName
	}
	srv, err := server.New(conf)
	if err != nil {
		return nil, err
	}
	return srv, srv.Listen(ctx)
}

// shutdown stops everything in this order, each step for the next one's sake:
//
//  0. A node that leads hands that over: the others need no election, and what
//     comes until the end is forwarded.
//  1. The listeners close: nobody new comes while the rest is ended.
//  2. Each connection's batch at hand is decided and answered, then the
//     connection is closed: afterwards nothing changes the keyspace any more.
//  3. The last flush: every answer that was given is on disk. A node's log is
//     already.
//  4. The folder is unlocked: the next server may have it, and finds all of it.
//
// failure is why the server stopped by itself, nil if it was told to. When hurry
// ends, step 2 no longer waits.
func shutdown(hurry context.Context, srv *server.Server, st *state, failure error, log *slog.Logger) (took time.Duration, err error) {
	begun := time.Now()
	if st.node != nil {
		st.node.handOver(stopLead, log)
	}
	ctx, cancel := context.WithTimeout(hurry, stopClients)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		log.Warn("some connections were cut off", "error", err)
	}
	err = errors.Join(failure, st.end(log))
	return time.Since(begun), err
}

// end writes what is not yet on disk and gives the folder back.
func (st *state) end(log *slog.Logger) error {
	switch {
	case st.node != nil:
		ctx, cancel := context.WithTimeout(context.Background(), stopFlush)
		defer cancel()
		return st.node.close(ctx)
	case st.flusher != nil:
		ctx, cancel := context.WithTimeout(context.Background(), stopFlush)
		defer cancel()
		if err := st.flusher.Close(ctx); err != nil {
			return err
		}
		log.Debug("everything is on disk")
	case st.file != nil:
		return st.file.Close()
	}
	return nil
}

// announce is the banner: one line for each listener, and one for the server.
func announce(cfg *Config, srv *server.Server, ks *engine.Keyspace, with secrets, log *slog.Logger) {
	attrs := []any{
		"version", buildVersion(), "pid", os.Getpid(), "durability", cfg.Durability,
		"keys", keys(cfg, ks), "protected_mode", cfg.ProtectedMode, "password", with.password != "",
		"max_memory", cfg.MaxMemory.String(), "max_clients", int64(cfg.MaxClients),
	}
	switch cfg.Durability {
	case "interval":
		attrs = append(attrs, "dir", cfg.stateDir(), "interval", cfg.Interval.String())
	case "strict":
		attrs = append(attrs, "dir", cfg.stateDir())
		if cfg.clustered() {
			attrs = append(attrs, "node", cfg.NodeID, "raft_addr", cfg.RaftAddr)
		}
	}
	log.Info("stint is ready", attrs...)
	if with.certs != nil {
		describeCertificate("the TLS certificate", with.certs.Info(), log)
	}
	for _, a := range srv.Addrs() {
		text := a.String()
		if n := a.Network(); n == "unix" || n == "tls" {
			text = n + ":" + text
		}
		log.Info("listening", "addr", text)
	}
}

// warn logs what is allowed but may surprise.
func warn(cfg *Config, log *slog.Logger) {
	if cfg.EnableDebugCommand || cfg.DebugClock != nil {
		log.Warn("this server is for tests: DEBUG is allowed or the clock is frozen", "enable-debug-command", cfg.EnableDebugCommand, "frozen", cfg.DebugClock != nil)
	}
	warnFiles(openFiles(), cfg, log)
	open := cfg.ProtectedMode == "no" && cfg.Requirepass == "" && cfg.RequirepassFile == ""
	for _, a := range cfg.Addr {
		bare := strings.TrimPrefix(a, tlsPrefix)
		if bare != a && cfg.TLSCa != "" {
			continue // only clients with a certificate may
		}
		if host, _, err := net.SplitHostPort(bare); open && err == nil && !loopback(host) {
			log.Warn("everyone who can reach this address may use the server: there is no password and protected mode is off", "addr", a)
		}
	}
	warnPassword(cfg, log)
	warnKey(cfg, log)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// keys counts the keys of all databases at the time the server begins with.
func keys(cfg *Config, ks *engine.Keyspace) (n int64) {
	now := time.Now().UnixNano()
	if cfg.DebugClock != nil {
		now = int64(*cfg.DebugClock)
	}
	for _, k := range ks.Stats(now).Keys {
		n += k
	}
	return n
}

// saver shows a persist.Flusher to the server, which does not know package
// persist.
type saver struct {
	*persist.Flusher
	cfg *Config
}

// Info is the state of saving, for INFO.
func (s *saver) Info() server.PersistInfo {
	i := s.Flusher.Info()
	return server.PersistInfo{
		Durability:   s.cfg.Durability,
		Interval:     i.Interval,
		Saving:       i.Saving,
		LastDuration: i.LastDuration,
		LastKeys:     i.LastKeys,
		LastBytes:    i.LastBytes,
		Flushes:      i.Flushes,
		Failures:     i.Failures,
		Failing:      i.Failing,
		LastError:    i.LastError,
		FileBytes:    i.FileBytes,
		Changed:      i.Changed,
		Compacting:   i.Compacting,
		Compactions:  i.Compactions,
	}
}
