package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/sched"
)

const (
	// maxVerifications bounds the verifications under way at once in the whole zone.
	maxVerifications = 8
)

// startVerification requests one token from a suspected worker, concurrently with its scrapes.
func (o *workerWatcher) startVerification(ctx context.Context, w *zoneWorker) {
	select {
	case o.verificationSlots <- struct{}{}:
	default:
		return // the next scrape tries again
	}
	var q sched.WorkerVerification
	var due bool
	o.scheduler.update(func(s *sched.Scheduler) { q, due = s.Health.BeginVerification(w.Worker, time.Now()) })
	if !due {
		<-o.verificationSlots
		return
	}
	o.wg.Go(func() {
		defer func() { <-o.verificationSlots }()
		err := o.sendVerification(ctx, w, q)
		if ctx.Err() != nil {
			return
		}
		var v health.Verification
		var ejected bool
		failure := sched.ProbeError{Cause: describeFailure(err, w.engineAccess()), TimedOut: errors.Is(err, context.DeadlineExceeded)}
		o.scheduler.update(func(s *sched.Scheduler) { v, ejected = s.EndVerification(w.Worker, q, failure, time.Now()) })
		o.logVerification(w, q, v, ejected, err)
		o.signalChange()
	})
}

// sendVerification sends a verification's request. A refusal of the request counts as an answer. A refusal for overload is a
// failure where the worker is suspected by its error rate, which counts such refusals.
func (o *workerWatcher) sendVerification(ctx context.Context, w *zoneWorker, q sched.WorkerVerification) error {
	path, ask := openai.PathCompletions, map[string]any{"model": q.Model, "prompt": "Hello", "max_tokens": 1}
	if q.PathShape == openai.ShapeEmbeddings {
		path, ask = openai.PathEmbeddings, map[string]any{"model": q.Model, "input": "Hello"}
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return fmt.Errorf("writing a request to a suspected worker: %w", err)
	}
	status, err := o.sendOwnRequest(ctx, w, path, body, sched.VerifyTimeout)
	if err == nil && q.Kind == health.ErrorRateOutlier && sched.IsOverloadStatus(status) {
		err = &engine.StatusError{Method: "POST", Path: path, Status: status}
	}
	return err
}

func (o *workerWatcher) logVerification(w *zoneWorker, q sched.WorkerVerification, v health.Verification, ejected bool, err error) {
	line := "requests of one tenant fail on a worker that answers a request of the zone: it stays"
	switch {
	case v == health.Inconclusive:
		return
	case ejected:
		line = "requests of one tenant fail on a worker, and a request of the zone too: it is ejected"
	case v == health.Failed:
		line = "requests of one tenant fail on a worker, and a request of the zone too: it stays, since max_ejected workers are out"
	}
	left, ok := o.logRepeats.AllowLine(line, w.declared.Name, time.Now())
	if !ok {
		return
	}
	what := []any{telemetry.KeyWorker, w.declared.Name, telemetry.KeyModel, q.Model, telemetry.KeySuppressed, left}
	if err != nil {
		o.log.Warn(line, append(what, telemetry.ErrorAttr(err))...)
		return
	}
	o.log.Info(line, what...)
}
