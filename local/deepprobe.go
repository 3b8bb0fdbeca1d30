package local

import (
	"context"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
)

const (
	// deepTimeout bounds a deep probe: an idle worker has a token ready long before.
	deepTimeout = 10 * time.Second
	// maxDeepProbes bounds those under way at once in the whole zone.
	maxDeepProbes = 4
)

// deepProbe asks a worker that has been silent for long for one token, beside the scrapes, which go on meanwhile.
func (a *Agent) deepProbe(ctx context.Context, w *worker) {
	select {
	case a.deep <- struct{}{}:
	default:
		return // the next look will do
	}
	model, due := a.floor.silent(w, time.Now())
	if !due {
		<-a.deep
		return
	}
	a.wg.Go(func() {
		defer func() { <-a.deep }()
		began := time.Now()
		err := a.askOneToken(ctx, w, model, deepTimeout)
		if ctx.Err() != nil {
			return
		}
		if a.floor.deepProbed(w, err, began, time.Now()) {
			a.log.Warn("worker answers health probes and gives no token", telemetry.KeyWorker, w.declared.Name, telemetry.Err(err))
			a.wake()
		}
	})
}

// silent says whether a worker is to be asked for a token, and the model to ask for. One that holds work, ours or by its
// metrics that of others, shows by itself how it is.
func (f *floor) silent(w *worker, now time.Time) (model string, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	idle := w.open == 0 && w.reading.Running+w.reading.Waiting == 0
	if w.gone || w.drained || w.reading.Asleep || !idle || !w.breaker.State().Takes() {
		return "", false
	}
	model, ok := w.readyModel()
	return model, ok && w.deep.Due(f.orders.deepProbe(), now, f.rng)
}

// deepProbed books a deep probe and says whether it took the worker out. What the worker has done for others since the
// probe began counts for more than its failure.
func (f *floor) deepProbed(w *worker, err error, began, now time.Time) (out bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case w.gone:
		return false
	case err == nil:
		w.deep.Heard(now)
		w.breaker.Progress(now)
		w.breaker.OK(now)
		w.refresh(now)
		return false
	case overslept(began, now, deepTimeout):
		return false
	case w.open > 0 || w.deep.Since().After(began):
		return false
	}
	w.blame = blame{health.DeepProbe, engine.Cause(err, w.access())}
	f.eject(w, health.DeepProbe, now)
	f.serveAll(now)
	return true
}

// readyModel is the first model that the worker serves without loading it.
func (w *worker) readyModel() (string, bool) {
	for i := range w.models {
		if w.models[i].State == engine.Ready { // asking for another would load it
			return w.models[i].ID, true
		}
	}
	return "", false
}

// deepProbe is how long a worker may give no token before it is asked for one; 0 when none is asked.
func (o *orders) deepProbe() time.Duration { return time.Duration(o.spec.Routing.Health.DeepProbe) }
