package admin_test

import (
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// TestLogLevelCalls changes the level for a time and refuses malformed ones.
func TestLogLevelCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	log := slog.New(telemetry.NewLevelHandler(slog.NewTextHandler(io.Discard, nil), slog.LevelWarn))
	startServer(t, admin.Config{Socket: path, Log: log})
	c := dialServer(t, "unix://"+path, nil)
	if a, err := c.GetLogLevel(t.Context()); err != nil || a.Level != "WARN" || a.Until != nil {
		t.Fatalf("%+v, %v", a, err)
	}
	a, err := c.SetLogLevel(t.Context(), admin.LogLevelRequest{Level: "debug", ForMS: 60_000})
	if err != nil || a.Level != "DEBUG" || a.Until == nil || a.Then != "WARN" || !log.Enabled(t.Context(), slog.LevelDebug) {
		t.Fatalf("%+v, %v", a, err)
	}
	for _, q := range []admin.LogLevelRequest{{Level: "loud"}, {Level: "info", ForMS: -1}} {
		if _, err := c.SetLogLevel(t.Context(), q); err == nil {
			t.Errorf("%+v is accepted", q)
		}
	}
	if a, err := c.SetLogLevel(t.Context(), admin.LogLevelRequest{Level: "error"}); err != nil || a.Level != "ERROR" || a.Until != nil {
		t.Errorf("%+v, %v", a, err)
	}
}
