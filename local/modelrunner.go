package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/modelload"
	"github.com/spillway-lb/spillway/local/sched"
)

// modelRunner loads and unloads models, wakes workers and puts them to sleep.
type modelRunner struct{ *instance }

const (
	// loaderInterval is how often load actions are planned in addition to the moments when something changed: idle timeouts
	// expire with time.
	loaderInterval = 250 * time.Millisecond
	// loadTimeout bounds a load. sleepChangeTimeout bounds an unload, a wake or a sleep, which should take seconds.
	loadTimeout        = 15 * time.Minute
	sleepChangeTimeout = time.Minute
	// confirmInterval is how often the model list is fetched from an engine that loads after answering the request. An engine that
	// does not list the model at all is asked maxConfirmTries times.
	confirmInterval = 250 * time.Millisecond
	maxConfirmTries = 8
)

// errModelNotListed means that an engine accepted a load and does not list the model.
var errModelNotListed = errors.New("the engine accepted the load but does not list the model")

// runModelLoader loads and unloads models, wakes workers and puts them to sleep, until the agent stops.
func (r *modelRunner) runModelLoader() {
	tick := time.NewTicker(loaderInterval)
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
			r.scheduler.update(func(s *sched.Scheduler) { s.Autoscaling.UpdateAutoscaling(time.Now()) })
		case <-r.scheduler.loaderWake:
		}
		var actions []sched.LoadAction
		r.scheduler.update(func(s *sched.Scheduler) { actions = s.Loader.PlanLoadActions(time.Now()) })
		for _, c := range actions {
			r.wg.Go(func() { r.runLoadAction(c) })
		}
	}
}

// runLoadAction carries out one action. It continues if the request that caused it has left: others wait, or will.
func (r *modelRunner) runLoadAction(c sched.LoadAction) {
	limit := loadTimeout
	if c.Kind != modelload.ActionLoad {
		limit = sleepChangeTimeout
	}
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	defer cancel()
	began := time.Now()
	models, err := r.callEngine(ctx, c)
	if r.ctx.Err() != nil {
		return
	}
	took := time.Since(began)
	r.loaderMetrics.countAction(c, took, err)
	what := []any{telemetry.KeyWorker, c.Worker.Spec.Name, "what", c.Kind.String(), "seconds", took.Seconds()}
	if c.Model != "" {
		what = append(what, telemetry.KeyModel, c.Model)
	}
	if err != nil {
		r.log.Warn("worker's models could not be changed", append(what, telemetry.ErrorAttr(err))...)
	} else {
		r.log.Info("worker's models were changed", what...)
	}
	w := c.Worker.Backend.(*zoneWorker)
	r.scheduler.update(func(s *sched.Scheduler) {
		s.RecordLoadAction(c, models, took, err != nil, time.Now())
		w.modelsStale.Store(true)
	})
	w.RequestScrape() // the new scrape makes the worker eligible
	r.signalChange()
}

// callEngine calls the engine, and for a load waits until the engine lists the model.
func (r *modelRunner) callEngine(ctx context.Context, c sched.LoadAction) ([]engine.WorkerModel, error) {
	w := c.Worker.Backend.(*zoneWorker)
	if c.Kind == modelload.ActionWake || c.Kind == modelload.ActionSleep {
		s, ok := engine.AsCapability[engine.SleepController](w.engine)
		if !ok {
			return nil, errors.New("the engine cannot sleep")
		}
		if c.Kind == modelload.ActionWake {
			return nil, s.ReclaimMemory(ctx)
		}
		return nil, s.ReleaseMemory(ctx)
	}
	l, ok := engine.AsCapability[engine.ModelLoader](w.engine)
	if !ok {
		return nil, errors.New("the engine loads no models")
	}
	if c.Kind == modelload.ActionUnload {
		return nil, l.UnloadModel(ctx, c.Model)
	}
	if err := l.LoadModel(ctx, c.Source); err != nil {
		return nil, err
	}
	return awaitModelListed(ctx, w, c.Model)
}

// awaitModelListed waits until a worker lists a model as ready.
func awaitModelListed(ctx context.Context, w *zoneWorker, model string) ([]engine.WorkerModel, error) {
	if len(w.declared.Models) > 0 {
		return nil, nil // its models are declared and not fetched
	}
	missing := 0
	for {
		models, err := w.engine.ListModels(ctx)
		listed := false
		for i := range models {
			if models[i].ID == model {
				if listed = true; models[i].State == engine.ModelReady {
					return models, nil
				}
			}
		}
		if err == nil && !listed {
			if missing++; missing > maxConfirmTries {
				return nil, errModelNotListed
			}
		}
		t := time.NewTimer(confirmInterval)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("waiting for the model to be listed: %w", context.Cause(ctx))
		case <-t.C:
		}
	}
}
