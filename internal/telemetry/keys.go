package telemetry

import "log/slog"

// Keys of log attributes. A line about a region says "region" wherever it was written.
const (
	KeyTier    = "tier"
	KeyNode    = "node"
	KeyRegion  = "region"
	KeyZone    = "zone"
	KeyWorker  = "worker"
	KeyService = "service"
	KeyModel   = "model"
	KeyTenant  = "tenant"
	KeyRequest = "request"
	KeyPeer    = "peer"
	KeyActor   = "actor"
	KeyError   = "error"
	KeyLeftOut = "left_out" // lines like this one that were not written
)

// Logger is l, or a logger that discards when l is nil.
func Logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

// Err is the attribute of an error.
func Err(err error) slog.Attr { return slog.Any(KeyError, err) }
