package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// LevelHandler is a log handler whose level changes at run time, and that limits repeated messages. Handlers made by With share
// both.
type LevelHandler struct {
	slog.Handler
	control *LevelControl
}

// NewLevelHandler returns a handler that passes records from level on to h, which must accept every level.
func NewLevelHandler(h slog.Handler, level slog.Level) *LevelHandler {
	c := &LevelControl{usual: level}
	c.current.Set(level)
	return &LevelHandler{Handler: h, control: c}
}

// LevelControlOf returns the control of a logger with a LevelHandler, nil for others.
func LevelControlOf(l *slog.Logger) *LevelControl {
	if l == nil {
		return nil
	}
	if h, ok := l.Handler().(*LevelHandler); ok {
		return h.control
	}
	return nil
}

// Enabled implements slog.Handler.
func (h *LevelHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.control.current.Level()
}

// Handle implements slog.Handler. Repeats of a message beyond maxRepeats are counted, and the count is in the next line that is
// written. Debug lines are not limited: they are asked for.
func (h *LevelHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > slog.LevelDebug {
		suppressed, ok := h.control.repeats.allowRepeat(r.Message, r.Time)
		if !ok {
			return nil
		}
		if suppressed > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Int(KeySuppressed, suppressed))
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *LevelHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &LevelHandler{Handler: h.Handler.WithAttrs(attrs), control: h.control}
}

// WithGroup implements slog.Handler.
func (h *LevelHandler) WithGroup(name string) slog.Handler {
	return &LevelHandler{Handler: h.Handler.WithGroup(name), control: h.control}
}

// LevelControl changes the level of the log of a process. Safe for concurrent use.
type LevelControl struct {
	current slog.LevelVar
	repeats repeatLimiter

	mu     sync.Mutex
	usual  slog.Level // in force after a change that ends
	revert *time.Timer
	until  time.Time // when the change ends; zero: it does not
}

// SetLevel changes the level; duration 0 means until the next change or restart. Otherwise the earlier level returns after it.
func (c *LevelControl) SetLevel(level slog.Level, duration time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.revert != nil {
		c.revert.Stop()
		c.revert = nil
	}
	c.until = time.Time{}
	c.current.Set(level)
	if duration <= 0 {
		c.usual = level
		return
	}
	c.until = time.Now().Add(duration)
	var t *time.Timer
	t = time.AfterFunc(duration, func() { c.endChange(&t) })
	c.revert = t
}

// endChange restores the usual level, unless a later change has replaced the timer.
func (c *LevelControl) endChange(t **time.Timer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.revert == *t {
		c.current.Set(c.usual)
		c.revert, c.until = nil, time.Time{}
	}
}

// ReadLevel returns the level in force and, if it ends, when, and the level after it.
func (c *LevelControl) ReadLevel() (level slog.Level, until time.Time, next slog.Level) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.Level(), c.until, c.usual
}
