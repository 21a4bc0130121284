package cluster

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// raftLogger passes what Raft logs on to log/slog. Raft tells at length what is
// normal while nodes come and go, so its info is debug here, and its errors about
// other nodes, of which it has one for each try, are warnings.
type raftLogger struct {
	to   *slog.Logger
	name string
	args []any
}

var _ hclog.Logger = (*raftLogger)(nil)

func newRaftLogger(to *slog.Logger) hclog.Logger { return &raftLogger{to: to, name: "raft"} }

func (l *raftLogger) level(level hclog.Level) slog.Level {
	switch level {
	case hclog.Warn:
		return slog.LevelInfo
	case hclog.Error:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
	at := l.level(level)
	if !l.to.Enabled(context.Background(), at) {
		return
	}
	all := make([]any, 0, len(l.args)+len(args))
	for _, a := range append(append([]any(nil), l.args...), args...) {
		if f, ok := a.(hclog.Format); ok {
			a = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
		all = append(all, a)
	}
	l.to.Log(context.Background(), at, l.name+": "+msg, all...)
}

func (l *raftLogger) Trace(msg string, args ...any) {}
func (l *raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *raftLogger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *raftLogger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *raftLogger) IsTrace() bool { return false }
func (l *raftLogger) IsDebug() bool { return l.enabled(hclog.Debug) }
func (l *raftLogger) IsInfo() bool  { return l.enabled(hclog.Info) }
func (l *raftLogger) IsWarn() bool  { return l.enabled(hclog.Warn) }
func (l *raftLogger) IsError() bool { return l.enabled(hclog.Error) }

func (l *raftLogger) enabled(level hclog.Level) bool {
	return l.to.Enabled(context.Background(), l.level(level))
}

func (l *raftLogger) ImpliedArgs() []any { return l.args }
func (l *raftLogger) Name() string       { return l.name }

func (l *raftLogger) With(args ...any) hclog.Logger {
	return &raftLogger{l.to, l.name, append(append([]any(nil), l.args...), args...)}
}

func (l *raftLogger) Named(name string) hclog.Logger {
	return &raftLogger{l.to, strings.Trim(l.name+"."+name, "."), l.args}
}

func (l *raftLogger) ResetNamed(name string) hclog.Logger { return &raftLogger{l.to, name, l.args} }
func (l *raftLogger) SetLevel(hclog.Level)                {}
func (l *raftLogger) GetLevel() hclog.Level               { return hclog.Debug }

func (l *raftLogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(nil), "", 0)
}

func (l *raftLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{l} }

// lineWriter logs what is written to it.
type lineWriter struct{ l *raftLogger }

func (w lineWriter) Write(b []byte) (int, error) {
	w.l.Info(strings.TrimSpace(string(b)))
	return len(b), nil
}
