package accesslog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

const (
	// maxWaiting bounds the records that wait for the disk: about 4 MB.
	maxWaiting = 1 << 14
	// flushInterval is the time between two writes.
	flushInterval = 200 * time.Millisecond
)

// Formats of lines.
const (
	FormatJSON = "json"
	FormatText = "text"
)

// Config configures a Writer.
type Config struct {
	// Path is the file that lines are appended to; "-" is standard output.
	Path string
	// Format is FormatJSON or FormatText.
	Format string
	// Sample is the share of served requests whose lines are written, from 0 to 1.
	Sample float64
	Log    *slog.Logger

	output io.Writer // for tests, instead of Path
}

// Writer writes access lines. AddRecord may be called concurrently.
type Writer struct {
	cfg     Config
	dropped atomic.Uint64
	repeats telemetry.LogThrottle

	mu      sync.Mutex
	waiting []Record

	fileMu sync.Mutex // held while a batch is written and while the file is opened again
	file   *os.File   // nil for standard output
	out    io.Writer
}

// New opens the file.
func New(cfg Config) (*Writer, error) {
	cfg.Log = telemetry.LoggerOrDiscard(cfg.Log)
	w := &Writer{cfg: cfg, out: cfg.output}
	if w.out != nil {
		return w, nil
	}
	if err := w.Reopen(); err != nil {
		return nil, err
	}
	return w, nil
}

// Reopen opens the file again, after logrotate has renamed it. If that fails, lines go to the earlier file.
func (w *Writer) Reopen() error {
	if w == nil || w.cfg.output != nil {
		return nil
	}
	w.fileMu.Lock()
	defer w.fileMu.Unlock()
	if w.cfg.Path == "-" {
		w.out = os.Stdout
		return nil
	}
	file, err := os.OpenFile(w.cfg.Path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("opening the access log: %w: set access_log.path to a file that this user may write to", err)
	}
	if w.file != nil {
		_ = w.file.Close() // its lines are written
	}
	w.file, w.out = file, file
	return nil
}

// AddRecord queues the line of a request, unless the request is not in the sample. It never blocks.
func (w *Writer) AddRecord(r *Record) {
	if !r.IsFailure() && !isSampled(r.RequestID, w.cfg.Sample) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) >= maxWaiting {
		w.dropped.Add(1)
		return
	}
	w.waiting = append(w.waiting, *r)
}

// Dropped counts the lines that were not written: too many waited, or the file could not be written.
func (w *Writer) Dropped() uint64 {
	if w == nil {
		return 0
	}
	return w.dropped.Load()
}

// Run writes lines until ctx ends, and then those that wait.
func (w *Writer) Run(ctx context.Context) {
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.flushRecords()
		case <-ctx.Done():
			w.flushRecords()
			return
		}
	}
}

// Close closes the file.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	w.fileMu.Lock()
	defer w.fileMu.Unlock()
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}

// flushRecords writes the waiting records in one write. After a failed write its lines are dropped: written again, a part of
// them could be there twice.
func (w *Writer) flushRecords() {
	w.mu.Lock()
	batch := w.waiting
	w.waiting = nil
	w.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	var text bytes.Buffer
	h := newHandler(&text, w.cfg.Format)
	var errs error
	for i := range batch {
		errs = errors.Join(errs, batch[i].writeTo(h))
	}
	w.fileMu.Lock()
	_, err := w.out.Write(text.Bytes())
	w.fileMu.Unlock()
	if errs = errors.Join(errs, err); errs != nil {
		w.dropped.Add(uint64(len(batch)))
		if left, ok := w.repeats.AllowLine("access", "", time.Now()); ok {
			w.cfg.Log.Warn("access lines are lost: the access log cannot be written, check its disk", "lines", len(batch), telemetry.ErrorAttr(errs), telemetry.KeySuppressed, left)
		}
	}
}

// newHandler returns a handler that writes lines without a level and a message: they would be the same on each.
func newHandler(out io.Writer, format string) slog.Handler {
	opts := &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
			return slog.Attr{}
		}
		return a
	}}
	if format == FormatText {
		return slog.NewTextHandler(out, opts)
	}
	return slog.NewJSONHandler(out, opts)
}
