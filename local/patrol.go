package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/sched"
)

// runPatrol checks for workers that hold requests and emit nothing, until the agent stops.
func (o *workerWatcher) runPatrol() {
	tick := time.NewTicker(sched.PatrolInterval)
	defer tick.Stop()
	for {
		select {
		case <-o.ctx.Done():
			return
		case <-tick.C:
		}
		var stalled []string
		var pausedFor time.Duration
		o.scheduler.update(func(s *sched.Scheduler) { stalled, pausedFor = s.CheckWorkers(time.Now()) })
		if pausedFor > 0 {
			o.log.Warn("this process was paused: silence of workers during the pause is ignored", "seconds", pausedFor.Seconds())
		}
		if len(stalled) > 0 {
			o.log.Warn("workers hold requests and emit nothing", telemetry.KeyWorker, stalled)
			o.signalChange()
		}
	}
}

// logNotReady logs why a worker is not ready: one line a minute for each cause.
func (o *workerWatcher) logNotReady(w *zoneWorker, now time.Time) {
	var t sched.WorkerFailure
	var ok bool
	o.scheduler.update(func(s *sched.Scheduler) { t, ok = s.Health.FailureToLog(w.Worker) })
	if !ok {
		return
	}
	left, ok := o.logRepeats.AllowLine("worker is not ready", t.Cause, now)
	if !ok {
		return
	}
	var same int
	o.scheduler.update(func(s *sched.Scheduler) { same = s.Health.CountSameCause(t.Cause) })
	cause := strings.Replace(t.Cause, " /", " "+strings.TrimRight(t.URL, "/")+"/", 1)
	o.log.Warn("worker is not ready", telemetry.KeyWorker, w.declared.Name, "cause", cause, "attempts", t.Attempts,
		"since", t.Since.UTC().Format(time.RFC3339), "workers_with_this_cause", same, telemetry.KeySuppressed, left)
}

const (
	// maxDeepProbes bounds the deep probes in progress at once in the whole zone.
	maxDeepProbes = 4
)

// startDeepProbe requests one token from a worker that has emitted none for long, in its own goroutine so that
// scrapes continue.
func (o *workerWatcher) startDeepProbe(ctx context.Context, w *zoneWorker) {
	select {
	case o.deepProbeSlots <- struct{}{}:
	default:
		return // retried after the next scrape
	}
	var model string
	var due bool
	o.scheduler.update(func(s *sched.Scheduler) { model, due = s.Health.NeedsDeepProbe(w.Worker, time.Now()) })
	if !due {
		<-o.deepProbeSlots
		return
	}
	o.wg.Go(func() {
		defer func() { <-o.deepProbeSlots }()
		began := time.Now()
		err := o.requestOneToken(ctx, w, model, sched.DeepProbeTimeout)
		if ctx.Err() != nil {
			return
		}
		var ejected bool
		o.scheduler.update(func(s *sched.Scheduler) {
			ejected = s.RecordDeepProbe(w.Worker, describeFailure(err, w.engineAccess()), began, time.Now())
		})
		if ejected {
			o.log.Warn("worker answers health probes but produces no token", telemetry.KeyWorker, w.declared.Name, telemetry.ErrorAttr(err))
			o.signalChange()
		}
	})
}

// scrapesPerGPURead is the number of scrapes per read of a GPU exporter. The exporter samples its driver seldom.
const scrapesPerGPURead = 5

// watchGPUs reads a worker's GPU exporter until ctx ends. A failing exporter does not affect the worker's health.
func (o *workerWatcher) watchGPUs(ctx context.Context, w *zoneWorker, e *engine.Exporter) {
	var last engine.GPUReadings
	failing := false
	for {
		probe, cancel := context.WithTimeout(ctx, scrapeTimeout)
		next, err := e.ReadGPUs(probe, last)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			o.log.Warn("the GPU exporter of a worker cannot be read", telemetry.KeyWorker, w.declared.Name, telemetry.ErrorAttr(err))
		}
		if failing = err != nil; !failing {
			last = next
			o.recordGPUs(w, next)
		}
		t := time.NewTimer(time.Duration(scrapesPerGPURead * float64(o.cfg.ScrapeInterval) * (0.9 + 0.2*rand.Float64())))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// recordGPUs stores the readings of an exporter, and logs when they change the worker's state.
func (o *workerWatcher) recordGPUs(w *zoneWorker, g engine.GPUReadings) {
	list := make([]health.GPUHealth, 0, len(g.Cards))
	for _, c := range g.Cards {
		list = append(list, health.GPUHealth{XID: c.XID, RemapFailed: c.RemapFailed, Used: c.Used, Free: c.Free})
	}
	var before, after string
	o.scheduler.update(func(s *sched.Scheduler) {
		w.gpus = g
		before, after = s.Health.RecordGPUs(w.Worker, list, g.MeanBusy(), time.Now())
	})
	if after != before {
		o.log.Warn("worker changed state because of its GPU metrics", telemetry.KeyWorker, w.declared.Name, "from", before, "to", after)
	}
}

// warmUpTimeout bounds a warm-up request, which compiles kernels and fills caches.
const warmUpTimeout = 30 * time.Second

// warmUpWorker sends one request of the zone's own to a worker in state warming, and records the outcome.
func (o *workerWatcher) warmUpWorker(ctx context.Context, w *zoneWorker) {
	var model string
	var waits bool
	o.scheduler.update(func(s *sched.Scheduler) { model, waits = s.Health.NeedsWarmUp(w.Worker) })
	if !waits {
		return
	}
	var err error
	began := time.Now()
	if model != "" {
		err = o.requestOneToken(ctx, w, model, warmUpTimeout)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil && sched.EndedByPause(began, time.Now(), warmUpTimeout) {
		return // it is sent again
	}
	if err != nil {
		o.log.Warn("worker failed its warm-up request", telemetry.KeyWorker, w.declared.Name, telemetry.ErrorAttr(err))
	}
	o.scheduler.update(func(s *sched.Scheduler) {
		s.RecordWarmUp(w.Worker, describeFailure(err, w.engineAccess()), time.Now())
	})
	o.signalChange()
}

// requestOneToken requests one token. Any computed answer is a success, a refusal of the request too: a model that serves no
// completions counts as healthy as far as this can show.
func (o *workerWatcher) requestOneToken(ctx context.Context, w *zoneWorker, model string, within time.Duration) error {
	body, err := json.Marshal(map[string]any{"model": model, "prompt": "Hello", "max_tokens": 1})
	if err != nil {
		return fmt.Errorf("writing a request for one token: %w", err)
	}
	_, err = o.sendOwnRequest(ctx, w, openai.PathCompletions, body, within)
	return err
}

// sendOwnRequest sends a request of the zone's own. It fails without an answer, and on an answer that indicates a broken worker.
func (o *workerWatcher) sendOwnRequest(ctx context.Context, w *zoneWorker, path string, body []byte, within time.Duration) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.declared.URL+path, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("writing a request of the zone: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := o.forwarder.Transport.RoundTrip(req)
	if err != nil {
		return 0, &engine.CallError{Method: req.Method, Path: req.URL.Path, Err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return 0, &engine.CallError{Method: req.Method, Path: req.URL.Path, Err: err}
	}
	if _, bad := health.ClassifyAnswer(resp.StatusCode, text, body); bad {
		return resp.StatusCode, &engine.StatusError{Method: req.Method, Path: req.URL.Path, Status: resp.StatusCode}
	}
	return resp.StatusCode, nil
}

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
