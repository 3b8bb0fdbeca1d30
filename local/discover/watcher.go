package discover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// maxFile bounds a workers file, in bytes.
const maxFile = 4 << 20

// Config of a Watcher.
type Config struct {
	// Static workers, from the configuration.
	Static []Worker
	// File of further workers, watched for changes; empty for none.
	File string
	// Poll is how often the file is looked at. Default 1s.
	Poll time.Duration
	// OnChange is called with the whole list at Start and after each change, from one goroutine at a time.
	OnChange func([]Worker)
	// Log of refused files; nil discards.
	Log *slog.Logger
}

// Watcher keeps the list of workers. It reads the file by polling, which works on every file system, through symlinks
// and across replacements by rename.
type Watcher struct {
	cfg  Config
	mu   sync.Mutex
	text []byte // of the last good file
	bad  []byte // of the last refused file, so that it is logged once
	lost bool   // the file could not be read, and that is logged
	stop context.CancelFunc
	done chan struct{}
}

// New checks the static workers and reads the file for the first time; a mistake in either is an error.
func New(cfg Config) (*Watcher, error) {
	if cfg.Poll <= 0 {
		cfg.Poll = time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.OnChange == nil {
		return nil, errors.New("watching workers needs somebody to tell")
	}
	cfg.Static = slices.Clone(cfg.Static)
	for i := range cfg.Static {
		if cfg.Static[i].Weight == 0 {
			cfg.Static[i].Weight = 1
		}
	}
	w := &Watcher{cfg: cfg, done: make(chan struct{})}
	if _, err := w.merge(nil); err != nil {
		return nil, err
	}
	if cfg.File == "" {
		return w, nil
	}
	text, err := readFile(cfg.File)
	if err != nil {
		return nil, fmt.Errorf("%w: create it, or take workers_file out of the configuration", err)
	}
	if _, err := w.parse(text); err != nil {
		return nil, err
	}
	w.text = text
	return w, nil
}

// Start tells the list and goes on watching until Stop.
func (w *Watcher) Start(ctx context.Context) error {
	ws, err := w.parse(w.text)
	if err != nil {
		return err
	}
	w.cfg.OnChange(ws)
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	go w.run(ctx)
	return nil
}

// Stop ends the watching and waits for it.
func (w *Watcher) Stop() {
	if w.stop != nil {
		w.stop()
		<-w.done
	}
}

// Reload reads the file now. The error says why it is refused; the last good list then stays in force.
func (w *Watcher) Reload() error {
	if w.cfg.File == "" {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reload()
}

func (w *Watcher) reload() error {
	text, err := readFile(w.cfg.File)
	if err != nil {
		return err
	}
	if bytes.Equal(text, w.text) {
		w.bad = nil
		return nil
	}
	ws, err := w.parse(text)
	if err != nil {
		return &refusal{text: text, err: err}
	}
	w.text, w.bad = text, nil
	w.cfg.OnChange(ws)
	return nil
}

// refusal is a file that was read and not taken.
type refusal struct {
	text []byte
	err  error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func (w *Watcher) run(ctx context.Context) {
	defer close(w.done)
	if w.cfg.File == "" {
		return
	}
	t := time.NewTicker(w.cfg.Poll)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			w.look()
		}
	}
}

// look reloads, and logs each different refusal once.
func (w *Watcher) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.reload()
	var r *refusal
	switch {
	case err == nil:
		w.lost = false
	case errors.As(err, &r):
		w.lost = false
		if !bytes.Equal(r.text, w.bad) {
			w.bad = r.text
			w.cfg.Log.Warn("workers file refused, the last good one stays in force", "file", w.cfg.File, "error", err)
		}
	case !w.lost:
		w.lost = true
		w.cfg.Log.Warn("workers file cannot be read, the last good one stays in force", "file", w.cfg.File, "error", err)
	}
}

func (w *Watcher) parse(text []byte) ([]Worker, error) {
	if w.cfg.File == "" || len(bytes.TrimSpace(text)) == 0 {
		return w.merge(nil)
	}
	ws, err := Decode(w.cfg.File, text)
	if err != nil {
		return nil, err
	}
	return w.merge(ws)
}

// merge puts the file's workers after the static ones; a name or URL may stand only once in the two together.
func (w *Watcher) merge(file []Worker) ([]Worker, error) {
	all := append(append([]Worker{}, w.cfg.Static...), file...)
	for _, p := range Check(all) {
		return nil, fmt.Errorf("workers from configuration and file together: %s: %s; hint: %s", p.Path, p.Reason, p.Hint)
	}
	return all, nil
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
