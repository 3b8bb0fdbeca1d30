package discover

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// coalesce is how long a change waits for others, so that a zone that starts is told once and not once for each worker.
const coalesce = 20 * time.Millisecond

// Config of the Sources.
type Config struct {
	// Static workers, from the configuration.
	Static []Worker
	// File of further workers, watched for changes; empty for none.
	File string
	// Poll is how often the file is looked at. Default 1s.
	Poll time.Duration
	// DNS are the names that stand for workers, and how they are looked up.
	DNS config.Discover
	// Registration lets workers sign themselves in; without Listen it is off.
	Registration config.Registration
	// Dir keeps registered workers across restarts; empty keeps nothing.
	Dir string
	// OnChange is called with the whole list at Start and after each change, from one goroutine at a time.
	OnChange func([]Worker)
	// Log of what is refused; nil discards.
	Log *slog.Logger
}

// Sources keeps the list of workers: it runs what finds them, merges what they find, and tells of changes.
type Sources struct {
	cfg   Config
	log   *slog.Logger
	file  *file
	names []*name
	door  *Door

	mu      sync.Mutex
	lists   lists
	found   [][]Worker // by name in DNS
	from    map[string]Kind
	clashes map[clash]struct{}
	clashed float64

	tell  sync.Mutex // held while OnChange runs
	told  []Worker
	dirty chan struct{}
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

// New checks the static workers and reads the file for the first time; a mistake in either is an error.
func New(cfg Config) (*Sources, error) {
	if cfg.OnChange == nil {
		return nil, errors.New("watching workers needs somebody to tell")
	}
	cfg.Static = slices.Clone(cfg.Static)
	for i := range cfg.Static {
		if cfg.Static[i].Weight == 0 {
			cfg.Static[i].Weight = 1
		}
	}
	if err := checked("the configuration", cfg.Static); err != nil {
		return nil, err
	}
	s := &Sources{
		cfg: cfg, log: telemetry.Logger(cfg.Log), clashes: map[clash]struct{}{}, dirty: make(chan struct{}, 1),
		found: make([][]Worker, len(cfg.DNS.DNS)),
	}
	s.lists[Static] = cfg.Static
	if cfg.File != "" {
		var err error
		if s.file, err = openFile(cfg.File, cfg.Poll, s.log, func(ws []Worker) { s.put(File, ws) }); err != nil {
			return nil, err
		}
	}
	for i := range cfg.DNS.DNS {
		s.names = append(s.names, newName(&cfg.DNS, i, s.log, func(ws []Worker) { s.putFound(i, ws) }))
	}
	if cfg.Registration.Listen != "" {
		var err error
		if s.door, err = newDoor(s, cfg.Registration, cfg.Dir); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Start tells the list and goes on watching until Stop.
func (s *Sources) Start(ctx context.Context) error {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.flush(true)
	s.wg.Go(func() { s.follow(ctx) })
	if s.file != nil {
		s.wg.Go(func() { s.file.run(ctx) })
	}
	for _, n := range s.names {
		s.wg.Go(func() { n.run(ctx) })
	}
	if s.door != nil {
		s.wg.Go(func() { s.door.run(ctx) })
	}
	return nil
}

// Stop ends the watching and waits for it.
func (s *Sources) Stop() {
	if s.stop != nil {
		s.stop()
		s.wg.Wait()
	}
}

// Reload reads the files now. The error says why one is refused; what was good before then stays in force.
func (s *Sources) Reload() error {
	var errs []error
	if s.file != nil {
		errs = append(errs, s.file.Reload())
		s.flush(false)
	}
	if s.door != nil {
		errs = append(errs, s.door.tokens.reload())
	}
	return errors.Join(errs...)
}

// Door is where workers register; nil when that is off.
func (s *Sources) Door() *Door { return s.door }

// Source says where a worker comes from.
func (s *Sources) Source(worker string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.from[worker]; ok {
		return k.String()
	}
	return ""
}

// put replaces what one source has found.
func (s *Sources) put(k Kind, ws []Worker) {
	s.mu.Lock()
	s.lists[k] = ws
	s.mu.Unlock()
	s.wake()
}

func (s *Sources) putFound(i int, ws []Worker) {
	s.mu.Lock()
	s.found[i] = ws
	s.lists[DNS] = slices.Concat(s.found...)
	s.mu.Unlock()
	s.wake()
}

func (s *Sources) wake() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// held says which stronger source has a worker of that name or URL.
func (s *Sources) held(than Kind, w *Worker) (Kind, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range than {
		for i := range s.lists[k] {
			if o := &s.lists[k][i]; o.Name == w.Name || place(o.URL) == place(w.URL) {
				return k, true
			}
		}
	}
	return 0, false
}

// follow tells of changes, several at a time where they come together.
func (s *Sources) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.dirty:
		}
		t := time.NewTimer(coalesce)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		s.flush(false)
	}
}

// flush merges the lists and tells the result when it is news.
func (s *Sources) flush(always bool) {
	s.tell.Lock()
	defer s.tell.Unlock()
	s.mu.Lock()
	ws, from, clashes := s.lists.merge()
	s.from = from
	s.note(clashes)
	s.mu.Unlock()
	if always || !reflect.DeepEqual(ws, s.told) {
		s.told = ws
		s.cfg.OnChange(ws)
	}
}

// note logs and counts each clash when it begins.
func (s *Sources) note(now map[clash]struct{}) {
	for c := range now {
		if _, known := s.clashes[c]; !known {
			s.clashed++
			s.log.Warn("worker left out", telemetry.KeyWorker, c.worker, "source", c.source.String(), "because", c.String())
		}
	}
	s.clashes = now
}
