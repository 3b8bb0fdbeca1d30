// Package decisionfile writes the log of decisions to a file of bounded size, and reads it.
//
// A file is a header and records as package decision has them in memory. A decider never waits for the disk: the writer copies what
// the ring has got since its last write. When it is so late that the ring has overwritten records, their bytes are counted as lost.
package decisionfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

const (
	// header begins a file; the number is the version of the format.
	header = "spillway decisions 1\n"
	// flushInterval is the time between two writes.
	flushInterval = 250 * time.Millisecond
	// EarlierSuffix is appended to the name of the file before the present one.
	EarlierSuffix = ".1"
)

// Positions are how far the rings were written.
type Positions struct{ States, Decisions uint64 }

// NewRecords are the records since some positions. What decisions were made from comes before them.
type NewRecords struct {
	States, Decisions [][]byte
	Next              Positions
	Lost              uint64 // bytes that were overwritten before they were read
}

// Config configures a FileWriter.
type Config struct {
	// Path is the file. When it has half of MaxBytes, it is renamed to Path + EarlierSuffix, which replaces the one before.
	Path     string
	MaxBytes int64
	// ReadNew returns the records since some positions, under the lock of the decider.
	ReadNew func(Positions) NewRecords
	// Restart is called before a new file: what later decisions are made from must be recorded again. It may be nil.
	Restart func()
	Log     *slog.Logger
}

// FileWriter writes one file.
type FileWriter struct {
	cfg     Config
	at      Positions
	file    *os.File
	size    int64
	lost    atomic.Uint64
	repeats telemetry.LogThrottle
}

// New opens the file. The one of an earlier run is renamed.
func New(cfg Config) (*FileWriter, error) {
	cfg.Log = telemetry.LoggerOrDiscard(cfg.Log)
	w := &FileWriter{cfg: cfg}
	if err := w.rotateFile(); err != nil {
		return nil, fmt.Errorf("opening the decision file: %w: set decisions.file to a file that this user may write to", err)
	}
	return w, nil
}

// Lost returns the bytes that were overwritten before they were written to the file, or that the disk did not take.
func (w *FileWriter) Lost() uint64 { return w.lost.Load() }

// Run writes until ctx ends, and then the rest.
func (w *FileWriter) Run(ctx context.Context) {
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			w.flushRecords()
			_ = w.file.Close() // what it holds is lost with the machine only
			return
		case <-tick.C:
			w.flushRecords()
		}
	}
}

// rotateFile begins a new file.
func (w *FileWriter) rotateFile() error {
	if w.file != nil {
		_ = w.file.Close() // as in Run
	}
	if err := os.Rename(w.cfg.Path, w.cfg.Path+EarlierSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(w.cfg.Path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	w.file, w.size = f, int64(len(header))
	if _, err := f.WriteString(header); err != nil {
		return err
	}
	if w.cfg.Restart != nil {
		w.cfg.Restart()
	}
	return nil
}

// flushRecords writes what is new. After a failure of the disk a new file is begun, since the last record may be incomplete.
func (w *FileWriter) flushRecords() {
	got := w.cfg.ReadNew(w.at)
	w.at = got.Next
	w.lost.Add(got.Lost)
	for i, part := range append(got.States, got.Decisions...) {
		n, err := w.file.Write(part)
		w.size += int64(n)
		if err == nil {
			continue
		}
		for _, rest := range append(got.States, got.Decisions...)[i:] {
			w.lost.Add(uint64(len(rest)))
		}
		if left, ok := w.repeats.AllowLine("decisions", "", time.Now()); ok {
			w.cfg.Log.Warn("decisions cannot be written to their file and are lost there; requests are served", telemetry.ErrorAttr(err), telemetry.KeySuppressed, left)
		}
		w.size = w.cfg.MaxBytes
		break
	}
	if w.size >= w.cfg.MaxBytes/2 {
		if err := w.rotateFile(); err != nil {
			if left, ok := w.repeats.AllowLine("decisions", "rotate", time.Now()); ok {
				w.cfg.Log.Warn("no new decision file can be begun", telemetry.ErrorAttr(err), telemetry.KeySuppressed, left)
			}
		}
	}
}

// ReadFile calls do with each record of a file in their order. torn reports an incomplete record at the end, as a kill leaves it.
func ReadFile(name string, do func(*decision.Record) error) (torn bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return false, fmt.Errorf("opening the decision file: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes))
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", name, err)
	}
	b, ok := bytes.CutPrefix(b, []byte(header))
	if !ok {
		return false, fmt.Errorf("%s is no decision file of this version: its first line is not %q", name, header[:len(header)-1])
	}
	return readRecords(b, do)
}

// maxFileBytes bounds what is read of a file.
const maxFileBytes = 8 << 30

func readRecords(b []byte, do func(*decision.Record) error) (torn bool, err error) {
	for len(b) > 0 {
		one, rest, ok := decision.NextRecord(b)
		if !ok {
			return true, nil
		}
		b = rest
		rec, err := decision.DecodeRecord(one)
		if err != nil {
			return true, nil // the disk has lost a part; lengths after it mean nothing
		}
		if err := do(&rec); err != nil {
			return false, err
		}
	}
	return false, nil
}
