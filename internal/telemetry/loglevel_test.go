package telemetry_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

func newLevelLogger(level slog.Level) (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(telemetry.NewLevelHandler(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}), level)).With("node", "g1"), &b
}

// TestLevelChangesAtRunTime: a change applies to loggers made before, ends after its duration, and a later one replaces it.
func TestLevelChangesAtRunTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := newLevelLogger(slog.LevelInfo)
		c := telemetry.LevelControlOf(log.With("a", 1))
		expect := func(when string, debug, info bool) {
			t.Helper()
			out.Reset()
			log.Debug("fine")
			log.Info("coarse")
			if strings.Contains(out.String(), "fine") != debug || strings.Contains(out.String(), "coarse") != info {
				t.Errorf("%s: %q", when, out)
			}
		}
		expect("first", false, true)
		c.SetLevel(slog.LevelDebug, time.Minute)
		if level, until, next := c.ReadLevel(); level != slog.LevelDebug || time.Until(until) != time.Minute || next != slog.LevelInfo {
			t.Errorf("%v until %v, then %v", level, until, next)
		}
		expect("changed", true, true)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		expect("before the end", true, true)
		time.Sleep(time.Second)
		synctest.Wait()
		expect("after the end", false, true)
		c.SetLevel(slog.LevelDebug, time.Minute)
		c.SetLevel(slog.LevelError, 0)
		time.Sleep(time.Hour)
		synctest.Wait()
		expect("replaced", false, false)
	})
	if telemetry.LevelControlOf(slog.Default()) != nil || telemetry.LevelControlOf(nil) != nil {
		t.Error("a logger without a level handler has a control")
	}
}

// TestRepeatsAreCounted logs one message 1000 times within a minute, and once after it.
func TestRepeatsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := newLevelLogger(slog.LevelDebug)
		for range 1000 {
			log.Warn("failed")
		}
		log.Warn("another")
		for range 50 {
			log.Debug("asked for")
		}
		if n := strings.Count(out.String(), "msg=failed"); n != 30 {
			t.Errorf("%d lines of 1000, want 30", n)
		}
		if n := strings.Count(out.String(), "asked for"); n != 50 || !strings.Contains(out.String(), "another") {
			t.Errorf("%d debug lines: %s", n, out)
		}
		time.Sleep(time.Minute)
		out.Reset()
		log.Warn("failed")
		if !strings.Contains(out.String(), "suppressed=970") {
			t.Errorf("the count is missing: %s", out)
		}
	})
}
