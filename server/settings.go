package server

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/server/command"
)

// Bounds of settings, for CONFIG SET and for whoever makes a Config.
const (
	// MinMaxMemory is the least limit of memory, in bytes, besides 0 for none:
	// below it, what an empty keyspace holds is a large part of the limit.
	MinMaxMemory = 1 << 20
	// MaxMaxClients is the most connections that can be allowed at a time.
	MaxMaxClients = 1 << 20
	// MaxSlowLog is the most entries that SLOWLOG can be asked to keep.
	MaxSlowLog = command.MaxSlowLog
	// maxIdleTimeout is what Redis allows, 2^31-1 seconds.
	maxIdleTimeout = (1<<31 - 1) * time.Second
)

// Setting describes one setting of CONFIG, for documents.
type Setting struct {
	Name       string // as CONFIG knows it
	Flag       string // that gives it at the start, without dashes; "": it is fixed
	Changeable bool   // by CONFIG SET, until the server ends
}

// Settings lists what CONFIG knows, in the order of their declaration.
func Settings() []Setting {
	var all []Setting
	// The functions of the parameters are not called: there is no server.
	for _, p := range (*Server)(nil).params() {
		all = append(all, Setting{p.Name, p.Flag, p.Set != nil})
	}
	return all
}

// settings fills what CONFIG GET and CONFIG SET know.
func (s *Server) settings() {
	s.info.Config.Add(s.params()...)
}

// params are the settings by Redis's names where Redis has them, and by the
// flags' own otherwise. This is the only list of them.
func (s *Server) params() []command.Param {
	// fixed is a setting that is what it is for as long as the server runs.
	fixed := func(name, flag string, get func() string) command.Param {
		return command.Param{Name: name, Flag: flag, Get: get}
	}
	// always is a setting that tools ask a Redis about.
	always := func(name, value string) command.Param {
		return fixed(name, "", func() string { return value })
	}
	// number is a whole number that commands go by, within bounds.
	number := func(name, flag string, least, most int64, get func(*command.Server) int64, set func(*command.Server, int64)) command.Param {
		return command.Param{
			Name: name, Flag: flag,
			Get: func() string { return strconv.FormatInt(get(s.info), 10) },
			Set: func(v string) (func(), error) {
				n, err := strconv.ParseInt(v, 10, 64)
				switch {
				case err != nil || strings.HasPrefix(v, "+"):
					return nil, errors.New("argument couldn't be parsed into an integer")
				case n < least || n > most:
					return nil, fmt.Errorf("argument must be between %d and %d inclusive", least, most)
				}
				return func() { set(s.info, n) }, nil
			},
		}
	}
	return []command.Param{
		fixed("bind", "addr", func() string { return strings.Join(s.cfg.Addrs, " ") }),
		fixed("port", "addr", func() string { return strconv.Itoa(s.info.Port) }),
		fixed("tls-port", "addr", func() string { return strconv.Itoa(s.tlsPort) }),
		{
			Name: "maxclients", Flag: "max-clients",
			Get: func() string { return strconv.FormatInt(s.maxClients.Load(), 10) },
			Set: func(v string) (func(), error) {
				n, err := strconv.ParseUint(v, 10, 31)
				if err != nil || n < 1 || n > MaxMaxClients {
					return nil, fmt.Errorf("argument must be between 1 and %d inclusive", MaxMaxClients)
				}
				if check := s.cfg.CheckClients; check != nil {
					if err := check(int(n)); err != nil {
						return nil, err
					}
				}
				return func() {
					s.maxClients.Store(int64(n))
					s.transport.SetMaxClients(int(n))
				}, nil
			},
		},
		{
			Name: "timeout", Flag: "idle-timeout",
			Get: func() string { return formatSeconds(time.Duration(s.idleTimeout.Load())) },
			Set: func(v string) (func(), error) {
				d, err := ParseDuration(v)
				if err != nil || d > maxIdleTimeout {
					return nil, fmt.Errorf("argument must be between 0 and %d seconds, or have a unit, such as 250ms, 30s or 5m", maxIdleTimeout/time.Second)
				}
				return func() {
					s.idleTimeout.Store(int64(d))
					s.transport.SetIdleTimeout(d)
				}, nil
			},
		},
		fixed("event-loops", "event-loops", func() string { return strconv.Itoa(s.cfg.EventLoops) }),
		fixed("max-argument", "max-argument", func() string { return strconv.Itoa(s.cfg.MaxArgument) }),
		fixed("proto-max-bulk-len", "max-argument", func() string { return strconv.Itoa(s.cfg.MaxArgument) }),
		fixed("max-output", "max-output", func() string { return strconv.Itoa(s.cfg.MaxOutput) }),
		{
			// Whoever may read it knows it; but what shows settings, a
			// dashboard or a log, must not show this one.
			Name: "requirepass", Flag: "requirepass",
			Get: func() string {
				if s.info.Password.Required() {
					return "********"
				}
				return ""
			},
			Set: func(v string) (func(), error) {
				return func() { s.info.Password.Set([]byte(v)) }, nil
			},
		},
		fixed("tls-cert-file", "tls-cert", func() string { return s.certificateFiles().Cert }),
		fixed("tls-key-file", "tls-key", func() string { return s.certificateFiles().Key }),
		fixed("tls-ca-cert-file", "tls-ca", func() string { return s.certificateFiles().CA }),
		fixed("tls-auth-clients", "tls-ca", func() string { return yesNo(s.certificateFiles().CA != "") }),
		{
			Name: "protected-mode", Flag: "protected-mode",
			Get: func() string { return yesNo(s.protected.Load()) },
			Set: func(v string) (func(), error) {
				on := strings.EqualFold(v, "yes")
				if !on && !strings.EqualFold(v, "no") {
					return nil, errors.New("argument must be 'yes' or 'no'")
				}
				return func() { s.protected.Store(on) }, nil
			},
		},
		fixed("dir", "dir", func() string { return s.cfg.Dir }),
		fixed("durability", "durability", func() string { return s.cfg.Durability }),
		fixed("interval", "interval", func() string { return s.cfg.Interval.String() }),
		{
			Name: "maxmemory", Flag: "max-memory",
			Get: func() string { return strconv.FormatInt(s.cfg.Keyspace.MaxMemory(), 10) },
			Set: func(v string) (func(), error) {
				n, err := parseSize(v, redisUnits)
				if err != nil || n != 0 && n < MinMaxMemory {
					return nil, errors.New("argument must be a memory value of at least 1MiB, such as 512MiB, 512mb or 2GiB, or 0 for no limit")
				}
				return func() { s.cfg.Keyspace.SetMaxMemory(n) }, nil
			},
		},
		fixed("log-format", "log-format", func() string { return s.cfg.LogFormat }),
		{
			Name: "loglevel", Flag: "log-level",
			Get: s.logLevel,
			Set: s.setLogLevel,
		},
		number("slowlog-log-slower-than", "slowlog-slower-than", -1, math.MaxInt64, (*command.Server).SlowerThan, (*command.Server).SetSlowerThan),
		number("slowlog-max-len", "slowlog-max-len", 0, command.MaxSlowLog,
			func(c *command.Server) int64 { return int64(c.SlowLog()) }, func(c *command.Server, n int64) { c.SetSlowLog(int(n)) }),
		number("latency-monitor-threshold", "latency-threshold", 0, math.MaxInt64, (*command.Server).LatencyThreshold, (*command.Server).SetLatencyThreshold),
		fixed("enable-debug-command", "enable-debug-command", func() string { return yesNo(s.cfg.Debug) }),
		fixed("dbfilename", "", func() string { return s.cfg.File }),
		always("databases", strconv.Itoa(engine.Databases)),
		always("save", ""),
		always("appendonly", "no"),
		always("maxmemory-policy", "noeviction"),
		always("tcp-keepalive", "60"),
		always("cluster-enabled", "no"),
	}
}

// certificateFiles are the files of TLS, zero without it.
func (s *Server) certificateFiles() CertificateFiles {
	if s.cfg.TLS == nil {
		return CertificateFiles{}
	}
	return s.cfg.TLS.Files()
}

// logLevels are the levels by the names of the --log-level flag; notice and
// warning are Redis's names.
var logLevels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	"verbose": slog.LevelInfo, "notice": slog.LevelInfo, "warning": slog.LevelWarn,
}

func (s *Server) logLevel() string {
	if s.cfg.LogLevel == nil {
		return "info"
	}
	return strings.ToLower(s.cfg.LogLevel.Level().String())
}

func (s *Server) setLogLevel(v string) (func(), error) {
	level, ok := logLevels[strings.ToLower(v)]
	if !ok {
		return nil, errors.New("argument must be one of debug, info, warn, error")
	}
	if s.cfg.LogLevel == nil {
		return nil, errors.New("the log level of this program cannot be changed")
	}
	return func() { s.cfg.LogLevel.Set(level) }, nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
