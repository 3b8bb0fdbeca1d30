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

// maxFile bounds a workers file, in bytes.
const maxFile = 4 << 20

// file is a workers file that is watched. It is read by polling, which works on every file system, through symlinks and
// across replacements by rename.
type file struct {
	path string
	poll time.Duration
	log  *slog.Logger
	put  func([]Worker)

	mu   sync.Mutex
	text []byte // of the last good file
	bad  []byte // of the last refused file, so that it is logged once
	lost bool   // the file could not be read, and that is logged
}

// openFile reads the file for the first time; a mistake in it is an error.
func openFile(path string, poll time.Duration, log *slog.Logger, put func([]Worker)) (*file, error) {
	if poll <= 0 {
		poll = time.Second
	}
	f := &file{path: path, poll: poll, log: log, put: put}
	text, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: create it, or take workers_file out of the configuration", err)
	}
	ws, err := f.parse(text)
	if err != nil {
		return nil, err
	}
	f.text = text
	put(ws)
	return f, nil
}

// Reload reads the file now. The error says why it is refused; the last good list then stays in force.
func (f *file) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reload()
}

func (f *file) reload() error {
	text, err := readFile(f.path)
	if err != nil {
		return err
	}
	if bytes.Equal(text, f.text) {
		f.bad = nil
		return nil
	}
	ws, err := f.parse(text)
	if err != nil {
		return &refusal{text: text, err: err}
	}
	f.text, f.bad = text, nil
	f.put(ws)
	return nil
}

// refusal is a file that was read and not taken.
type refusal struct {
	text []byte
	err  error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func (f *file) run(ctx context.Context) {
	t := time.NewTicker(f.poll)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			f.look()
		}
	}
}

// look reloads, and logs each different refusal once.
func (f *file) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.reload()
	var r *refusal
	switch {
	case err == nil:
		f.lost = false
	case errors.As(err, &r):
		f.lost = false
		if !bytes.Equal(r.text, f.bad) {
			f.bad = r.text
			f.log.Warn("workers file refused, the last good one stays in force", "file", f.path, "error", err)
		}
	case !f.lost:
		f.lost = true
		f.log.Warn("workers file cannot be read, the last good one stays in force", "file", f.path, "error", err)
	}
}

func (f *file) parse(text []byte) ([]Worker, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	return Decode(f.path, text)
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading the workers file: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the workers file: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("reading the workers file: %s is larger than %d bytes", name, maxFile)
	}
	return text, nil
}
