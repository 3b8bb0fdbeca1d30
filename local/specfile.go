package local

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// specPoll is how often the spec file of a zone that stands alone is looked at.
const specPoll = time.Second

// specFile is the spec of a zone that stands alone, as its file was last read.
type specFile struct {
	mu   sync.Mutex
	path string    // empty: there is none
	text []byte    // of the last good file
	at   time.Time // when that was written
	bad  string    // the last refusal, so that it is logged once
}

// read returns the spec when the file has changed, nil when it has not.
func (s *specFile) read() (*spec.Spec, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return nil, fmt.Errorf("reading the spec: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, strict.MaxText+1))
	if err != nil {
		return nil, fmt.Errorf("reading the spec: %w", err)
	}
	if bytes.Equal(text, s.text) {
		return nil, nil
	}
	out, err := spec.DecodeAlone(s.path, text)
	if err != nil {
		return nil, err
	}
	s.text = text
	if info, err := f.Stat(); err == nil {
		s.at = info.ModTime()
	}
	return out, nil
}

// firstSpec reads the file for the first time: a mistake in it keeps the instance from starting.
func (a *Agent) firstSpec() error {
	a.specs.path = a.cfg.SpecFile
	if a.specs.path == "" {
		return nil
	}
	if len(a.cfg.Gateways) > 0 || !a.cfg.Plain {
		return errors.New("a spec file is for a zone that stands alone: gateways send theirs")
	}
	s, err := a.specs.read()
	if s != nil {
		a.cfg.Spec = s
	}
	return err
}

// reloadSpec puts a changed file in force. A mistake leaves the last good one there.
func (a *Agent) reloadSpec() error {
	a.specs.mu.Lock()
	defer a.specs.mu.Unlock()
	if a.specs.path == "" {
		return nil
	}
	s, err := a.specs.read()
	if err != nil {
		return err
	}
	a.specs.bad = ""
	if s == nil {
		return nil
	}
	a.adopt.Lock()
	defer a.adopt.Unlock()
	now := a.policy.Load()
	o := makeOrders(a.cfg, &uplink.Directive{SpecVersion: now.specVersion + 1}, s)
	a.policy.Store(o)
	a.floor.obey(o, time.Now())
	a.wake()
	a.log.Info("spec adopted", "file", a.specs.path, "spec_version", o.specVersion)
	return nil
}

// specStatus is what a zone that stands alone goes by; nil for one that hears from gateways.
func (a *Agent) specStatus() *admin.SpecFile {
	if len(a.cfg.Gateways) > 0 {
		return nil
	}
	a.specs.mu.Lock()
	defer a.specs.mu.Unlock()
	return &admin.SpecFile{Path: a.specs.path, ChangedAt: a.specs.at}
}

// watchSpec looks at the file until the agent stops, and logs each different refusal once.
func (a *Agent) watchSpec() {
	t := time.NewTicker(specPoll)
	defer t.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-t.C:
		}
		err := a.reloadSpec()
		a.specs.mu.Lock()
		if err != nil && err.Error() != a.specs.bad {
			a.specs.bad = err.Error()
			a.log.Warn("spec refused, the last good one stays in force", "file", a.specs.path, telemetry.Err(err))
		}
		a.specs.mu.Unlock()
	}
}
