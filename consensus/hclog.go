package consensus

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// hcLogger lets raft log through slog. Raft's Info is routine and becomes Debug; its Debug is dropped. Raft repeats
// warnings several times a second while a peer is down; logDeduplicator drops the repetitions.
type hcLogger struct {
	logger *slog.Logger
	dedup  *logDeduplicator // nil: no de-duplication
	name   string
	args   []any
}

// nothingToReplay is the warning that raft logs whenever a node starts whose newest snapshot covers its whole log.
const nothingToReplay = "skipping application of old log"

var _ hclog.Logger = hcLogger{}

func (l hcLogger) Log(level hclog.Level, msg string, args ...any) {
	at, ok := slogLevel(level)
	if msg == nothingToReplay {
		at = slog.LevelDebug
	}
	if !ok || !l.logger.Enabled(context.Background(), at) {
		return
	}
	args = formatArgs(args)
	if at >= slog.LevelWarn && l.dedup != nil {
		left, pass := l.dedup.allowLine(msg, args)
		if !pass {
			return
		}
		if left > 0 {
			args = append(args, telemetry.KeySuppressed, left)
		}
	}
	l.logger.Log(context.Background(), at, msg, args...)
}

// formatArgs expands the format strings that raft passes as values.
func formatArgs(args []any) []any {
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
func (l hcLogger) IsInfo() bool  { return l.logger.Enabled(context.Background(), slog.LevelDebug) }
func (l hcLogger) IsWarn() bool  { return l.logger.Enabled(context.Background(), slog.LevelWarn) }
func (l hcLogger) IsError() bool { return l.logger.Enabled(context.Background(), slog.LevelError) }

func (l hcLogger) ImpliedArgs() []any { return l.args }
func (l hcLogger) Name() string       { return l.name }

func (l hcLogger) With(args ...any) hclog.Logger {
	return hcLogger{logger: l.logger.With(formatArgs(args)...), dedup: l.dedup, name: l.name, args: slices.Concat(l.args, args)}
}

func (l hcLogger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}

func (l hcLogger) ResetNamed(name string) hclog.Logger {
	return hcLogger{logger: l.logger, dedup: l.dedup, name: name, args: l.args}
}

// SetLevel does nothing: the handler of slog decides.
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
	return slog.NewLogLogger(l.logger.Handler(), slog.LevelDebug).Writer()
}

// logDeduplicator drops the lines that raft repeats while a peer is down, and detects when the peer is back: a
// successful dial ends the suppression.
type logDeduplicator struct {
	nodeNames map[string]string // address to node name
	repeats   telemetry.LogThrottle
}

// allowLine reports whether a line is to be written, and how many equal lines about the same peer were dropped before
// it.
func (e *logDeduplicator) allowLine(msg string, args []any) (leftOut int, ok bool) {
	return e.repeats.AllowLine(msg, e.findPeer(args), time.Now())
}

// findPeer returns the peer that a line is about, by name if known; empty if the line names no peer.
func (e *logDeduplicator) findPeer(args []any) string {
	for _, a := range args {
		switch a := a.(type) {
		case raft.Server:
			return string(a.ID)
		case raft.ServerID:
			return string(a)
		case raft.ServerAddress:
			return e.nodeName(string(a))
		}
	}
	return ""
}

func (e *logDeduplicator) nodeName(addr string) string {
	if n, ok := e.nodeNames[addr]; ok {
		return n
	}
	return addr
}

// logPeerBack logs once that a peer answers again, if its failure was logged.
func (l hcLogger) logPeerBack(addr string) {
	if l.dedup == nil {
		return
	}
	peer := l.dedup.nodeName(addr)
	if left, ok := l.dedup.repeats.ResolveSubject(peer); ok {
		l.logger.Info("raft peer is back", telemetry.KeyPeer, peer, telemetry.KeySuppressed, left)
	}
}
