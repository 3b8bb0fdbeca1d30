package telemetry

import "log/slog"

// Keys of log attributes, the same in all tiers.
const (
	KeyTier       = "tier"
	KeyNode       = "node"
	KeyRegion     = "region"
	KeyZone       = "zone"
	KeyWorker     = "worker"
	KeyService    = "service"
	KeyModel      = "model"
	KeyTenant     = "tenant"
	KeyRequest    = "request"
	KeyPeer       = "peer"
	KeyActor      = "actor"
	KeyError      = "error"
	KeySuppressed = "suppressed" // number of equal lines that were not written
)

// LoggerOrDiscard returns l, or a logger that discards everything if l is nil.
func LoggerOrDiscard(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

// ErrorAttr returns the log attribute of an error.
func ErrorAttr(err error) slog.Attr { return slog.Any(KeyError, err) }
