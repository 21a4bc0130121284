package server

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/server/command"
)

// settings fills what CONFIG GET and CONFIG SET know: the names are Redis's
// where Redis has the setting, and the flags' own otherwise.
func (s *Server) settings() {
	c := &s.info.Config
	for name, value := range map[string]string{
		// What tools ask a Redis about.
		"save":             "",
		"appendonly":       "no",
		"databases":        strconv.Itoa(engine.Databases),
		"maxmemory-policy": "noeviction",
		// Settings of this server that cannot change while it runs.
		"bind":                 strings.Join(s.cfg.Addrs, " "),
		"dir":                  s.cfg.Dir,
		"dbfilename":           s.cfg.File,
		"durability":           s.cfg.Durability,
		"interval":             s.cfg.Interval.String(),
		"proto-max-bulk-len":   strconv.Itoa(s.cfg.MaxArgument),
		"max-argument":         strconv.Itoa(s.cfg.MaxArgument),
		"max-output":           strconv.Itoa(s.cfg.MaxOutput),
		"log-format":           s.cfg.LogFormat,
		"enable-debug-command": yesNo(s.cfg.Debug),
		"tcp-keepalive":        "60",
		"cluster-enabled":      "no",
	} {
		c.AddFixed(name, value)
	}
	c.Add(
		command.Param{
			Name: "port",
			Get:  func() string { return strconv.Itoa(s.info.Port) },
		},
		command.Param{
			Name: "maxmemory",
			Get:  func() string { return strconv.FormatInt(s.cfg.Keyspace.MaxMemory(), 10) },
			Set: func(v string) (func(), error) {
				n, err := parseBytes(v)
				if err != nil {
					return nil, err
				}
				return func() { s.cfg.Keyspace.SetMaxMemory(n) }, nil
			},
		},
		command.Param{
			Name: "maxclients",
			Get:  func() string { return strconv.FormatInt(s.maxClients.Load(), 10) },
			Set: func(v string) (func(), error) {
				n, err := parseBetween(v, 1, 1<<20)
				if err != nil {
					return nil, err
				}
				return func() {
					s.maxClients.Store(n)
					s.transport.SetMaxClients(int(n))
				}, nil
			},
		},
		command.Param{
			Name: "timeout",
			Get:  func() string { return strconv.FormatInt(s.idleTimeout.Load(), 10) },
			Set: func(v string) (func(), error) {
				n, err := parseBetween(v, 0, 1<<31-1)
				if err != nil {
					return nil, err
				}
				return func() {
					s.idleTimeout.Store(n)
					s.transport.SetIdleTimeout(time.Duration(n) * time.Second)
				}, nil
			},
		},
		command.Param{
			Name: "protected-mode",
			Get:  func() string { return yesNo(s.protected.Load()) },
			Set: func(v string) (func(), error) {
				on := strings.EqualFold(v, "yes")
				if !on && !strings.EqualFold(v, "no") {
					return nil, errors.New("argument must be 'yes' or 'no'")
				}
				return func() { s.protected.Store(on) }, nil
			},
		},
		command.Param{
			// Whoever may read it knows it; but what shows settings, a
			// dashboard or a log, must not show this one.
			Name: "requirepass",
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
		command.Param{
			Name: "loglevel",
			Get:  s.logLevel,
			Set:  s.setLogLevel,
		},
	)
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

func parseBetween(v string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("argument must be between %d and %d inclusive", low, high)
	}
	return n, nil
}

// byteUnits are the units of Redis's configuration.
var byteUnits = []struct {
	name   string
	factor int64
}{
	{"kb", 1 << 10}, {"mb", 1 << 20}, {"gb", 1 << 30}, {"k", 1000}, {"m", 1000_000}, {"g", 1000_000_000}, {"b", 1},
}

// parseBytes reads a size as Redis does: 100mb, 1gb, 512.
func parseBytes(v string) (int64, error) {
	digits, factor := strings.ToLower(v), int64(1)
	for _, u := range byteUnits {
		if cut, ok := strings.CutSuffix(digits, u.name); ok {
			digits, factor = cut, u.factor
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/factor {
		return 0, errors.New("argument must be a memory value, such as 512mb or 0")
	}
	return n * factor, nil
}
