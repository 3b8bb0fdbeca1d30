package local

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/sched"
)

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
