package usage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

const (
	defaultBacklog = 1 << 16
	defaultSync    = time.Second
	defaultRotate  = 64 << 20
	// maxBatch is the most records of one write.
	maxBatch = 1 << 13
)

// Config of a Writer.
type Config struct {
	// Dir takes the files.
	Dir string
	// Boot numbers this life of the gateway; no two may share one.
	Boot uint64
	// Backlog bounds the records that wait for the disk. Zero means 65,536, about 20 MB.
	Backlog int
	// Sync is the time between two writes. Zero means 1 s.
	Sync time.Duration
	// Rotate is the size from which on a new file is begun. Zero means 64 MiB.
	Rotate int64
	Log    *slog.Logger

	open func(name string) (file, error) // for tests
}

// file is what is needed of an os.File.
type file interface {
	Write(b []byte) (int, error)
	Sync() error
	Truncate(size int64) error
	Close() error
}

// Writer appends records. Add may be called concurrently.
type Writer struct {
	cfg     Config
	lost    atomic.Uint64
	written atomic.Uint64
	repeats telemetry.Repeats

	mu      sync.Mutex
	seq     uint64
	waiting []Record

	out    file
	size   int64
	number int
}

// New makes a Writer whose folder can be written to.
func New(cfg Config) (*Writer, error) {
	if cfg.Backlog <= 0 {
		cfg.Backlog = defaultBacklog
	}
	if cfg.Sync <= 0 {
		cfg.Sync = defaultSync
	}
	if cfg.Rotate <= 0 {
		cfg.Rotate = defaultRotate
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.open == nil {
		cfg.open = func(name string) (file, error) {
			return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
		}
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder for usage records: %w: set usage.dir to one that this user may write to", err)
	}
	return &Writer{cfg: cfg}, nil
}

// Add hands a record over and numbers it. It never waits; false when there was no room, and the record is lost.
func (w *Writer) Add(r Record) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	r.Boot, r.Seq = w.cfg.Boot, w.seq
	if len(w.waiting) >= w.cfg.Backlog {
		w.lost.Add(1)
		return false
	}
	w.waiting = append(w.waiting, r)
	return true
}

// Lost counts records that found no room; Written those that are on disk; Waiting those that are not yet.
func (w *Writer) Lost() uint64 { return w.lost.Load() }

// Written counts the records on disk.
func (w *Writer) Written() uint64 { return w.written.Load() }

// Waiting is how many records are in memory alone.
func (w *Writer) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting)
}

// Run writes until ctx ends, then what is left.
func (w *Writer) Run(ctx context.Context) {
	tick := time.NewTicker(w.cfg.Sync)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			w.flush()
			if w.out != nil {
				_ = w.out.Close() // it is synced
			}
			return
		case <-tick.C:
			w.flush()
		}
	}
}

// flush writes what waits, batch by batch, until all is written or the disk will not.
func (w *Writer) flush() {
	for {
		w.mu.Lock()
		batch := w.waiting[:min(len(w.waiting), maxBatch)]
		w.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		if err := w.write(batch); err != nil {
			if left, ok := w.repeats.Pass("usage", "", time.Now()); ok {
				w.cfg.Log.Error("usage records wait for the disk: beyond the backlog they are lost", "waiting", w.Waiting(), "lost", w.Lost(), telemetry.Err(err), telemetry.KeyLeftOut, left)
			}
			return
		}
		w.mu.Lock()
		w.waiting = append(w.waiting[:0:0], w.waiting[len(batch):]...)
		w.mu.Unlock()
		w.written.Add(uint64(len(batch)))
	}
}

// write puts a batch on disk as a whole, or not at all.
func (w *Writer) write(batch []Record) error {
	var text []byte
	for i := range batch {
		line, err := encode(&batch[i])
		if err != nil {
			w.cfg.Log.Error("a usage record cannot be written", telemetry.Err(err))
			continue
		}
		text = append(text, line...)
	}
	if w.out != nil && w.size+int64(len(text)) > w.cfg.Rotate && w.size > 0 {
		_ = w.out.Close() // it is synced
		w.out = nil
	}
	if w.out == nil {
		if err := w.next(); err != nil {
			return err
		}
	}
	_, err := w.out.Write(text)
	if err == nil {
		err = w.out.Sync()
	}
	if err == nil {
		w.size += int64(len(text))
		return nil
	}
	// What an fsync error leaves behind is not known: the file is given up in either case, cut to what is sure.
	err = errors.Join(err, w.out.Truncate(w.size), w.out.Close())
	w.out = nil
	return err
}

// next begins a file of its own name.
func (w *Writer) next() error {
	w.number++
	name := filepath.Join(w.cfg.Dir, fmt.Sprintf("usage-%020d-%06d.jsonl", w.cfg.Boot, w.number))
	out, err := w.cfg.open(name)
	if err != nil {
		w.number--
		return fmt.Errorf("opening a file for usage records: %w", err)
	}
	w.out, w.size = out, 0
	return nil
}
