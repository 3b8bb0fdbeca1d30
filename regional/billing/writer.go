// Package billing records the usage of tenants for billing: one line of JSON per request, in append-only files.
//
// A record has a number: the writer's boot and a count in it, so that readers detect duplicate and missing records.
// Requests never wait for the disk: they hand over their record, and one goroutine writes batches and syncs them once
// a second. When the disk is full or fails, up to Backlog records wait in memory; beyond that they are lost and
// counted, and their numbers are missing in the files. A killed process loses what was not synced: at most a second
// of records. It may leave a torn last line; readers skip and report it.
//
// A batch that was written in part is truncated before it is written again; if truncation fails too, the whole batch
// goes to a new file, and readers skip the duplicates.
//
// The package does not compute usage, and gets no prompts or keys.
package billing

import (
	"context"
	"encoding/json"
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
	defaultBacklog      = 1 << 16
	defaultSyncInterval = time.Second
	defaultRotateSize   = 64 << 20
	// maxBatch is the maximum number of records in one write.
	maxBatch = 1 << 13
)

// Config of a Writer.
type Config struct {
	// Dir is the directory of the files.
	Dir string
	// Boot is the number of this start of the gateway; it must be unique.
	Boot uint64
	// Backlog bounds the records that wait for the disk. Zero means 65,536, about 20 MB.
	Backlog int
	// SyncInterval is the time between two writes. Zero means 1 s.
	SyncInterval time.Duration
	// RotateSize is the size at which a new file is started. Zero means 64 MiB.
	RotateSize int64
	Log        *slog.Logger

	openFile func(name string) (recordFile, error) // for tests
}

// recordFile is the part of os.File that the writer uses.
type recordFile interface {
	Write(b []byte) (int, error)
	Sync() error
	Truncate(size int64) error
	Close() error
}

// Writer appends records. AddRecord may be called concurrently.
type Writer struct {
	cfg     Config
	lost    atomic.Uint64
	written atomic.Uint64
	repeats telemetry.LogThrottle

	mu      sync.Mutex
	seq     uint64
	waiting []UsageRecord

	current    recordFile
	size       int64
	fileNumber int
}

// New makes a Writer and checks that its directory is writable.
func New(cfg Config) (*Writer, error) {
	if cfg.Backlog <= 0 {
		cfg.Backlog = defaultBacklog
	}
	if cfg.SyncInterval <= 0 {
		cfg.SyncInterval = defaultSyncInterval
	}
	if cfg.RotateSize <= 0 {
		cfg.RotateSize = defaultRotateSize
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.openFile == nil {
		cfg.openFile = func(name string) (recordFile, error) {
			return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
		}
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory for usage records: %w: set usage.dir to one that this user may write to", err)
	}
	return &Writer{cfg: cfg}, nil
}

// AddRecord numbers a record and queues it. It never blocks; false when the backlog is full and the record is lost.
func (w *Writer) AddRecord(r UsageRecord) bool {
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

// Lost counts records beyond the backlog.
func (w *Writer) Lost() uint64 { return w.lost.Load() }

// Written counts the records on disk.
func (w *Writer) Written() uint64 { return w.written.Load() }

// Waiting is the number of records that are only in memory.
func (w *Writer) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting)
}

// Run writes until ctx ends, and then the remaining records.
func (w *Writer) Run(ctx context.Context) {
	tick := time.NewTicker(w.cfg.SyncInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			w.flushWaiting()
			if w.current != nil {
				_ = w.current.Close() // already synced
			}
			return
		case <-tick.C:
			w.flushWaiting()
		}
	}
}

// flushWaiting writes the waiting records, batch by batch, until all are written or the disk fails.
func (w *Writer) flushWaiting() {
	for {
		w.mu.Lock()
		batch := w.waiting[:min(len(w.waiting), maxBatch)]
		w.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		if err := w.writeBatch(batch); err != nil {
			if left, ok := w.repeats.AllowLine("usage", "", time.Now()); ok {
				w.cfg.Log.Error("usage records cannot be written and wait in memory: those beyond the backlog are lost", "waiting", w.Waiting(), "lost", w.Lost(), telemetry.ErrorAttr(err), telemetry.KeySuppressed, left)
			}
			return
		}
		w.mu.Lock()
		w.waiting = append(w.waiting[:0:0], w.waiting[len(batch):]...)
		w.mu.Unlock()
		w.written.Add(uint64(len(batch)))
	}
}

// writeBatch writes a whole batch to disk or nothing.
func (w *Writer) writeBatch(batch []UsageRecord) error {
	var text []byte
	for i := range batch {
		line, err := encodeRecord(&batch[i])
		if err != nil {
			w.cfg.Log.Error("a usage record cannot be written", telemetry.ErrorAttr(err))
			continue
		}
		text = append(text, line...)
	}
	if w.current != nil && w.size+int64(len(text)) > w.cfg.RotateSize && w.size > 0 {
		_ = w.current.Close() // already synced
		w.current = nil
	}
	if w.current == nil {
		if err := w.openNextFile(); err != nil {
			return err
		}
	}
	_, err := w.current.Write(text)
	if err == nil {
		err = w.current.Sync()
	}
	if err == nil {
		w.size += int64(len(text))
		return nil
	}
	// After an fsync error the state of the file is unknown: it is closed in any case, truncated to the last synced
	// size.
	err = errors.Join(err, w.current.Truncate(w.size), w.current.Close())
	w.current = nil
	return err
}

// openNextFile starts a new file.
func (w *Writer) openNextFile() error {
	w.fileNumber++
	name := filepath.Join(w.cfg.Dir, fmt.Sprintf("usage-%020d-%06d.jsonl", w.cfg.Boot, w.fileNumber))
	out, err := w.cfg.openFile(name)
	if err != nil {
		w.fileNumber--
		return fmt.Errorf("opening a file for usage records: %w", err)
	}
	w.current, w.size = out, 0
	return nil
}

// UsageRecord is the usage of one request.
type UsageRecord struct {
	Boot       uint64    `json:"boot"` // of the gateway
	Seq        uint64    `json:"seq"`  // a count from 1; boot and seq identify the record
	At         time.Time `json:"at"`   // when the request ended
	Gateway    string    `json:"gateway"`
	Region     string    `json:"region"`
	Tenant     string    `json:"tenant"`
	Model      string    `json:"model"` // that served
	Request    string    `json:"request_id"`
	Prompt     int       `json:"prompt_tokens"`
	Cached     int       `json:"cached_tokens"`
	Completion int       `json:"completion_tokens"`
	Micros     int64     `json:"cost_micros"` // millionths of a dollar
	Stated     bool      `json:"stated"`      // reported by the engine, not estimated
	// ClientLeft: the client left before the first byte of the answer, after a worker had begun the prompt.
	ClientLeft bool `json:"client_left,omitempty"`
	// Kind of an unparsed stream: grpc, websocket or other; with the bytes from and to the client.
	Kind     string `json:"kind,omitempty"`
	BytesIn  int64  `json:"bytes_in,omitempty"`
	BytesOut int64  `json:"bytes_out,omitempty"`
}

// maxLine is the longest line of a file, in bytes.
const maxLine = 8 << 10

// encodeRecord encodes a record as a line.
func encodeRecord(r *UsageRecord) ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(b) >= maxLine {
		return nil, errors.New("the record is too long")
	}
	return append(b, '\n'), nil
}

// DecodeRecord decodes a line without its newline.
func DecodeRecord(line []byte) (UsageRecord, error) {
	var r UsageRecord
	switch err := json.Unmarshal(line, &r); {
	case len(line) > maxLine:
		return r, errors.New("the line is too long")
	case err != nil:
		return r, err
	case r.Boot == 0 || r.Seq == 0 || r.Tenant == "":
		return r, errors.New("the record has no number or no tenant")
	case r.Prompt < 0 || r.Cached < 0 || r.Completion < 0 || r.Micros < 0 || r.BytesIn < 0 || r.BytesOut < 0:
		return r, errors.New("the record has negative amounts")
	}
	return r, nil
}
