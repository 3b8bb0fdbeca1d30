package consensus

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

// hcLogger lets raft log through slog. Raft's Info is day-to-day business and becomes Debug; its Debug is dropped. What
// it warns of it would repeat several times a second while a peer is down: echo thins that.
type hcLogger struct {
	to   *slog.Logger
	echo *echo // nil lets everything through
	name string
	args []any
}

// nothingToReplay is what raft warns of whenever a node starts whose newest snapshot holds all that it knows.
const nothingToReplay = "skipping application of old log"

var _ hclog.Logger = hcLogger{}

func (l hcLogger) Log(level hclog.Level, msg string, args ...any) {
	at, ok := slogLevel(level)
	if msg == nothingToReplay {
		at = slog.LevelDebug
	}
	if !ok || !l.to.Enabled(context.Background(), at) {
		return
	}
	args = plain(args)
	if at >= slog.LevelWarn && l.echo != nil {
		left, pass := l.echo.pass(msg, args)
		if !pass {
			return
		}
		if left > 0 {
			args = append(args, telemetry.KeyLeftOut, left)
		}
	}
	l.to.Log(context.Background(), at, msg, args...)
}

// plain turns the formats that raft passes as values into text.
func plain(args []any) []any {
	out := slices.Clone(args)
	for i, a := range out {
		f, ok := a.(hclog.Format)
		if !ok || len(f) == 0 {
			continue
		}
		if format, ok := f[0].(string); ok {
			out[i] = fmt.Sprintf(format, f[1:]...)
		}
	}
	return out
}

func slogLevel(level hclog.Level) (slog.Level, bool) {
	switch level {
	case hclog.Info:
		return slog.LevelDebug, true
	case hclog.Warn:
		return slog.LevelWarn, true
	case hclog.Error:
		return slog.LevelError, true
	}
	return 0, false
}

func (l hcLogger) Trace(string, ...any)          {}
func (l hcLogger) Debug(string, ...any)          {}
func (l hcLogger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l hcLogger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l hcLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l hcLogger) IsTrace() bool { return false }
func (l hcLogger) IsDebug() bool { return false }
func (l hcLogger) IsInfo() bool  { return l.to.Enabled(context.Background(), slog.LevelDebug) }
func (l hcLogger) IsWarn() bool  { return l.to.Enabled(context.Background(), slog.LevelWarn) }
func (l hcLogger) IsError() bool { return l.to.Enabled(context.Background(), slog.LevelError) }

func (l hcLogger) ImpliedArgs() []any { return l.args }
func (l hcLogger) Name() string       { return l.name }

func (l hcLogger) With(args ...any) hclog.Logger {
	return hcLogger{to: l.to.With(plain(args)...), echo: l.echo, name: l.name, args: slices.Concat(l.args, args)}
}

func (l hcLogger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}

func (l hcLogger) ResetNamed(name string) hclog.Logger {
	return hcLogger{to: l.to, echo: l.echo, name: name, args: l.args}
}

// SetLevel does nothing: slog's handler decides.
func (l hcLogger) SetLevel(hclog.Level) {}

func (l hcLogger) GetLevel() hclog.Level {
	if l.IsInfo() {
		return hclog.Info
	}
	return hclog.Warn
}

func (l hcLogger) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(o), "", 0)
}

func (l hcLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer {
	return slog.NewLogLogger(l.to.Handler(), slog.LevelDebug).Writer()
}
