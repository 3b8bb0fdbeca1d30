package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/warm"
)

const (
	// wardenEvery is how often the warden looks besides the moments when something changed: idleness comes by the clock.
	wardenEvery = 250 * time.Millisecond
	// loadFor and napFor bound a load, and what should take seconds.
	loadFor = 15 * time.Minute
	napFor  = time.Minute
	// confirmEvery is how often an engine that loads behind its answer is asked whether it has done so, and confirmTries
	// is how often one that does not list the model at all is.
	confirmEvery = 250 * time.Millisecond
	confirmTries = 8
)

// errNotListed means that an engine said that it has loaded a model, and does not list it.
var errNotListed = errors.New("the engine took the load and does not list the model")

// chore is one thing that the warden has begun.
type chore struct {
	kind   warm.Kind
	worker *worker
	model  string // empty for Wake and Sleep
	source engine.Source
}

// warden loads models, lets them go, wakes workers and puts them to sleep, until the agent stops.
func (a *Agent) warden() {
	tick := time.NewTicker(wardenEvery)
	defer tick.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-tick.C:
			a.floor.reckon(time.Now())
		case <-a.floor.thaw:
		}
		for _, c := range a.floor.chores(time.Now()) {
			a.wg.Go(func() { a.do(c) })
		}
	}
}

// chores decides and books what is begun now.
func (f *floor) chores(now time.Time) (out []chore) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rested(now)
	f.last = nil
	c := f.count(now)
	acts := warm.Decide(f.warming, &c.zone, now, nil)
	for _, act := range acts {
		w := c.workers[act.Worker]
		k := chore{kind: act.Kind, worker: w}
		switch act.Kind {
		case warm.Wake:
			w.nap.state, w.nap.since = warm.Loading, now
		case warm.Sleep:
			w.nap.state, w.nap.since = warm.Unloading, now
		default:
			k.model = c.places[act.Worker][act.Place]
			p := w.places[k.model]
			k.source = engine.Source{ID: k.model, Path: p.path}
			p.state, p.since = warm.Loading, now
			if act.Kind == warm.Unload {
				p.state = warm.Unloading
			}
		}
		w.turn++
		w.refresh(now)
		out = append(out, k)
	}
	if len(acts) > 0 {
		f.last = nil
	}
	return out
}

// rested ends the waking of workers whose metrics say that they are awake, or are late to say so.
func (f *floor) rested(now time.Time) {
	for _, w := range f.workers {
		if n := &w.nap; n.state == warm.Loading && n.woken && (!w.reading.Asleep || now.Sub(n.since) > napGrace) {
			n.state, n.woken, n.since = warm.Loadable, false, now
		}
	}
}

// do carries one thing out. Whoever asked for it may have left: others wait, or will.
func (a *Agent) do(c chore) {
	limit := loadFor
	if c.kind != warm.Load {
		limit = napFor
	}
	ctx, cancel := context.WithTimeout(a.ctx, limit)
	defer cancel()
	began := time.Now()
	models, err := a.carryOut(ctx, c)
	if a.ctx.Err() != nil {
		return
	}
	took := time.Since(began)
	a.warmth.did(c, took, err)
	what := []any{telemetry.KeyWorker, c.worker.declared.Name, "what", c.kind.String(), "seconds", took.Seconds()}
	if c.model != "" {
		what = append(what, telemetry.KeyModel, c.model)
	}
	if err != nil {
		a.log.Warn("worker's models could not be changed", append(what, telemetry.Err(err))...)
	} else {
		a.log.Info("worker's models were changed", what...)
	}
	a.floor.done(c, models, took, err, time.Now())
	select {
	case c.worker.look <- struct{}{}: // what it says now puts it to work
	default:
	}
	a.wake()
}

// carryOut tells the engine, and for a load waits until it lists the model.
func (a *Agent) carryOut(ctx context.Context, c chore) ([]engine.Model, error) {
	w := c.worker
	if c.kind == warm.Wake || c.kind == warm.Sleep {
		s, ok := engine.As[engine.Sleeper](w.engine)
		if !ok {
			return nil, errors.New("the engine cannot sleep")
		}
		if c.kind == warm.Wake {
			return nil, s.Wake(ctx)
		}
		return nil, s.Sleep(ctx)
	}
	l, ok := engine.As[engine.Loader](w.engine)
	if !ok {
		return nil, errors.New("the engine loads no models")
	}
	if c.kind == warm.Unload {
		return nil, l.Unload(ctx, c.model)
	}
	if err := l.Load(ctx, c.source); err != nil {
		return nil, err
	}
	return confirm(ctx, w, c.model)
}

// confirm waits until a worker lists a model as ready.
func confirm(ctx context.Context, w *worker, model string) ([]engine.Model, error) {
	if len(w.declared.Models) > 0 {
		return nil, nil // what it serves was declared, and it is not asked
	}
	missing := 0
	for {
		models, err := w.engine.Models(ctx)
		listed := false
		for i := range models {
			if models[i].ID == model {
				if listed = true; models[i].State == engine.Ready {
					return models, nil
				}
			}
		}
		if err == nil && !listed {
			if missing++; missing > confirmTries {
				return nil, errNotListed
			}
		}
		t := time.NewTimer(confirmEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("waiting for the model to be listed: %w", context.Cause(ctx))
		case <-t.C:
		}
	}
}

// done books how a chore went, and serves who waited for it.
func (f *floor) done(c chore, models []engine.Model, took time.Duration, err error, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := c.worker
	w.turn++
	switch c.kind {
	case warm.Wake, warm.Sleep:
		f.napped(w, c.kind, took, err, now)
	case warm.Load:
		f.loaded(c, models, took, err, now)
	case warm.Unload:
		if p := w.places[c.model]; p != nil {
			p.state, p.since = warm.Loadable, now
			if err != nil {
				p.state = warm.Loaded // it is still there, and is left alone as if it were new
			} else {
				w.list(c.model, p, false)
			}
		}
	}
	w.stale.Store(true)
	if !w.gone {
		f.seat(now)
	}
	f.changed()
	f.serveAll(now)
}

func (f *floor) loaded(c chore, models []engine.Model, took time.Duration, err error, now time.Time) {
	w, p := c.worker, c.worker.places[c.model]
	if p == nil {
		return
	}
	p.since, p.lost = now, err
	if err != nil {
		p.failed++
		p.state, p.retry = warm.Loadable, now.Add(f.warming.After(p.failed))
		return
	}
	p.state, p.failed, p.retry = warm.Loaded, 0, time.Time{}
	delete(f.wants, stock{c.model, w.pools})
	f.loads.add(c.model, took.Seconds())
	if models != nil {
		w.models = models
	} else {
		w.list(c.model, p, true)
	}
}

func (f *floor) napped(w *worker, k warm.Kind, took time.Duration, err error, now time.Time) {
	n := &w.nap
	switch {
	case err != nil:
		n.failed++
		n.state, n.since, n.retry = warm.Loadable, now, now.Add(f.warming.After(n.failed))
	case k == warm.Sleep:
		f.index.Forget(w.id) // the KV cache is gone
		n.state, n.since, n.failed, w.reading.Asleep = warm.Loadable, now, 0, true
	default:
		f.loads.add(keyWake+w.declared.Name, took.Seconds())
		n.since, n.failed, n.retry, n.woken, w.reading.Asleep = now, 0, time.Time{}, true, false
	}
}
