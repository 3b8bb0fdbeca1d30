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
)

// warmUpTimeout bounds a warm-up request: kernels are compiled and caches filled by the first one.
const warmUpTimeout = 30 * time.Second

// warm sends a worker that waits for it one request of ours, and books how it went.
func (a *Agent) warm(ctx context.Context, w *worker) {
	model, waits := a.floor.cold(w)
	if !waits {
		return
	}
	var err error
	began := time.Now()
	if model != "" {
		err = a.askOneToken(ctx, w, model, warmUpTimeout)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil && overslept(began, time.Now(), warmUpTimeout) {
		return // it is asked again
	}
	if err != nil {
		a.log.Warn("worker failed its warm-up request", telemetry.KeyWorker, w.declared.Name, telemetry.Err(err))
	}
	a.floor.warmed(w, err, time.Now())
	a.wake()
}

// cold says whether a worker waits for its warm-up, and the model to ask for; none when it serves none yet.
func (f *floor) cold(w *worker) (model string, waits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.gone || w.reading.Asleep || w.breaker.State() != health.Warming {
		return "", false
	}
	model, _ = w.readyModel()
	return model, true
}

// warmed books a warm-up request.
func (f *floor) warmed(w *worker, err error, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.gone {
		return
	}
	if err != nil {
		w.blame = blame{health.WarmUp, engine.Cause(err, w.access())}
		w.breaker.Fail(health.WarmUp, now)
	} else {
		w.breaker.Warmed(now)
	}
	f.alarm(w, now)
	w.refresh(now)
	f.serveAll(now)
}

// askOneToken asks for one token. Any computed answer will do, a refusal of the request too: a model that completes
// nothing is well as far as can be told.
func (a *Agent) askOneToken(ctx context.Context, w *worker, model string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	body, err := json.Marshal(map[string]any{"model": model, "prompt": "Hello", "max_tokens": 1})
	if err != nil {
		return fmt.Errorf("writing a request for one token: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.declared.URL+openai.PathCompletions, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("writing a request for one token: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.forward.Transport.RoundTrip(req)
	if err != nil {
		return &engine.CallError{Method: req.Method, Path: req.URL.Path, Err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return &engine.CallError{Method: req.Method, Path: req.URL.Path, Err: err}
	}
	if _, bad := health.Classify(resp.StatusCode, text, body); bad {
		return &engine.StatusError{Method: req.Method, Path: req.URL.Path, Status: resp.StatusCode}
	}
	return nil
}
