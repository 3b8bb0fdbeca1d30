package discover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

// maxFileBytes bounds a workers file, in bytes.
const maxFileBytes = 4 << 20

// workersFile is a watched workers file. It is polled, which works on every file system, through symlinks and across
// replacements by rename.
type workersFile struct {
	path         string
	pollInterval time.Duration
	log          *slog.Logger
	onWorkers    func([]Worker)

	mu          sync.Mutex
	lastGood    []byte // contents of the last good file
	lastRefused []byte // contents of the last refused file, so that each is logged once
	unreadable  bool   // a failure to read the file is logged
}

// openWorkersFile reads the file for the first time; an invalid file is an error.
func openWorkersFile(path string, poll time.Duration, log *slog.Logger, put func([]Worker)) (*workersFile, error) {
	if poll <= 0 {
		poll = time.Second
	}
	f := &workersFile{path: path, pollInterval: poll, log: log, onWorkers: put}
	text, err := readWorkersFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: create it, or take workers_file out of the configuration", err)
	}
	ws, err := f.parseWorkers(text)
	if err != nil {
		return nil, err
	}
	f.lastGood = text
	put(ws)
	return f, nil
}

// Reload reads the file now. On an error the last good list stays in force.
func (f *workersFile) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reloadLocked()
}

func (f *workersFile) reloadLocked() error {
	text, err := readWorkersFile(f.path)
	if err != nil {
		return err
	}
	if bytes.Equal(text, f.lastGood) {
		f.lastRefused = nil
		return nil
	}
	ws, err := f.parseWorkers(text)
	if err != nil {
		return &refusedFile{text: text, err: err}
	}
	f.lastGood, f.lastRefused = text, nil
	f.onWorkers(ws)
	return nil
}

// refusedFile is the error for a file that was read and is invalid.
type refusedFile struct {
	text []byte
	err  error
}

func (r *refusedFile) Error() string { return r.err.Error() }
func (r *refusedFile) Unwrap() error { return r.err }

func (f *workersFile) pollUntilDone(ctx context.Context) {
	t := time.NewTicker(f.pollInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			f.reloadAndLog()
		}
	}
}

// reloadAndLog reloads the file and logs each different refusal once.
func (f *workersFile) reloadAndLog() {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.reloadLocked()
	var r *refusedFile
	switch {
	case err == nil:
		f.unreadable = false
	case errors.As(err, &r):
		f.unreadable = false
		if !bytes.Equal(r.text, f.lastRefused) {
			f.lastRefused = r.text
			f.log.Warn("workers file refused, the last good one stays in force", "file", f.path, "error", err)
		}
	case !f.unreadable:
		f.unreadable = true
		f.log.Warn("workers file cannot be read, the last good one stays in force", "file", f.path, "error", err)
	}
}

func (f *workersFile) parseWorkers(text []byte) ([]Worker, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	return DecodeWorkers(f.path, text)
}

func readWorkersFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading the workers file: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the workers file: %w", err)
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("reading the workers file: %s is larger than %d bytes", name, maxFileBytes)
	}
	return text, nil
}
