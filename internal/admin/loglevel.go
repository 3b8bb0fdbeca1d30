package admin

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

const pathLogLevel = "/v1/log-level"

// LogLevelRequest changes the level of the node's log.
type LogLevelRequest struct {
	// Level is debug, info, warn or error.
	Level string `json:"level"`
	// ForMS is how long it is in force, in ms; then the earlier level returns. 0: until the next change or restart.
	ForMS int64 `json:"for_ms,omitempty"`
}

// LogLevelAnswer is the level of a node's log.
type LogLevelAnswer struct {
	Level string `json:"level"`
	// Until is when it ends, and Then the level after it; absent if it does not end.
	Until *time.Time `json:"until,omitempty"`
	Then  string     `json:"then,omitempty"`
}

// logLevelRoutes returns the calls that read and change the level of the log, unsupported for a log without one.
func logLevelRoutes(log *slog.Logger) []apiRoute {
	control := telemetry.LevelControlOf(log)
	var read func(context.Context) (*LogLevelAnswer, error)
	var change func(context.Context, LogLevelRequest, string) (*LogLevelAnswer, error)
	if control != nil {
		read = func(context.Context) (*LogLevelAnswer, error) { return describeLogLevel(control), nil }
		change = func(_ context.Context, q LogLevelRequest, actor string) (*LogLevelAnswer, error) {
			var level slog.Level
			if err := level.UnmarshalText([]byte(q.Level)); err != nil {
				return nil, BadRequestError("unknown level "+q.Level, "write debug, info, warn or error")
			}
			log.Info("log level changed", telemetry.KeyActor, actor, "level", level.String(), "for", (time.Duration(q.ForMS) * time.Millisecond).String())
			control.SetLevel(level, time.Duration(q.ForMS)*time.Millisecond)
			return describeLogLevel(control), nil
		}
	}
	return []apiRoute{
		getRoute(pathLogLevel, "Return the level of the node's log.", read),
		bodyRoute(http.MethodPut, pathLogLevel, "Change the level of the node's log, for a time or until the next change.", change),
	}
}

func describeLogLevel(c *telemetry.LevelControl) *LogLevelAnswer {
	level, until, next := c.ReadLevel()
	out := &LogLevelAnswer{Level: level.String()}
	if !until.IsZero() {
		out.Until, out.Then = &until, next.String()
	}
	return out
}
