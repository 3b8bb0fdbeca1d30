package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// ErrUndetected means that a worker answers and its engine is unknown, or not known yet: one that is still loading
// its model often serves nothing but its health page.
var ErrUndetected = errors.New("unknown engine: the worker serves neither /v1/models nor /v2; set engine for it, or wait until it has loaded its model")

// autoEngine detects the engine of a worker at the first call, and acts as that engine from then on. After the worker
// was unreachable it detects again, because another engine may have started at the address.
type autoEngine struct {
	workerServer
	detectMu sync.Mutex             // one detection at a time
	detected atomic.Pointer[Engine] // nil until detected; read without waiting for a detection
	redetect atomic.Bool            // it did not answer: detect again at the next call
}

func newAutoEngine(s workerServer) *autoEngine { return &autoEngine{workerServer: s} }

// Name is the detected engine, or auto.
func (a *autoEngine) Name() string {
	if e := a.DetectedEngine(); e != nil {
		return e.Name()
	}
	return NameAuto
}

// DetectedEngine is the detected engine; nil before detection.
func (a *autoEngine) DetectedEngine() Engine {
	if e := a.detected.Load(); e != nil {
		return *e
	}
	return nil
}

// detectEngine returns the engine, detecting it if needed.
func (a *autoEngine) detectEngine(ctx context.Context) (Engine, error) {
	if e := a.DetectedEngine(); e != nil && !a.redetect.Load() {
		return e, nil
	}
	a.detectMu.Lock()
	defer a.detectMu.Unlock()
	e := a.DetectedEngine()
	if e != nil && !a.redetect.Load() {
		return e, nil
	}
	name, err := a.probeDialect(ctx)
	if err != nil {
		return nil, err
	}
	if e == nil || e.Name() != name {
		e = newDialect(name, a.workerServer)
		a.detected.Store(&e)
	}
	a.redetect.Store(false)
	return e, nil
}

func (a *autoEngine) CheckHealth(ctx context.Context) error {
	e, err := a.detectEngine(ctx)
	if err != nil {
		return err
	}
	if err = e.CheckHealth(ctx); err != nil {
		a.redetect.Store(true)
	}
	return err
}

func (a *autoEngine) ListModels(ctx context.Context) ([]WorkerModel, error) {
	e, err := a.detectEngine(ctx)
	if err != nil {
		return nil, err
	}
	return e.ListModels(ctx)
}

func (a *autoEngine) ReadMetrics(ctx context.Context, last Reading) (Reading, error) {
	e, err := a.detectEngine(ctx)
	if err != nil {
		return last, err
	}
	return e.ReadMetrics(ctx, last)
}

// AsCapability returns e, or the engine that it detected, as a T, such as ModelLoader or SleepController.
func AsCapability[T any](e Engine) (T, bool) {
	if a, ok := e.(*autoEngine); ok {
		e = a.DetectedEngine()
	}
	t, ok := e.(T)
	return t, ok
}

// probeDialect makes at most six cheap calls: who owns the models, the names of the metrics, and then pages that only
// one engine has.
func (a *autoEngine) probeDialect(ctx context.Context) (string, error) {
	var evidence struct {
		models bool
		name   string
	}
	err := a.client.sendQueued(ctx, http.MethodGet, a.urlFor("/v1/models"), nil, maxModelListBytes, func(h http.Header, b []byte) error {
		cards, err := parseModelList(b)
		evidence.models = err == nil
		evidence.name = dialectByModels(h.Get("Server"), cards)
		return nil
	})
	if err != nil && !isAnswer(err) {
		return "", err
	}
	listing := err
	if evidence.name != "" {
		return evidence.name, nil
	}
	err = a.client.getPage(ctx, a.metricsURLOr("/metrics"), MaxPageBytes, func(b []byte) error {
		evidence.name = dialectByMetrics(b)
		return nil
	})
	if evidence.name != "" {
		return evidence.name, nil
	}
	if err != nil && !isAnswer(err) {
		return "", err
	}
	for _, q := range []struct{ path, holds, name string }{
		{"/v2", `"name"`, "triton"},
		{"/api/version", `"version"`, "ollama"},
		{"/info", `"max_total_tokens"`, "tgi"},
		{"/props", `"total_slots"`, "llamacpp"},
	} {
		if a.pageHasKey(ctx, q.path, q.holds) {
			return q.name, nil
		}
	}
	if evidence.models {
		return "openai", nil
	}
	var s *StatusError
	if errors.As(listing, &s) && s.Status != http.StatusNotFound { // for example 401 or 503: more specific than ErrUndetected
		return "", fmt.Errorf("%w: %w", ErrUndetected, listing)
	}
	return "", ErrUndetected
}

// isAnswer reports whether a worker answered, even with an unusable page.
func isAnswer(err error) bool {
	var s *StatusError
	return errors.As(err, &s) || errors.Is(err, ErrTooLarge)
}

// pageHasKey reports whether a page is a JSON object with the key.
func (a *autoEngine) pageHasKey(ctx context.Context, path, key string) bool {
	found := false
	err := a.client.getPage(ctx, a.urlFor(path), maxSmallPageBytes, func(b []byte) error {
		found = bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) && json.Valid(b) && bytes.Contains(b, []byte(key))
		return nil
	})
	return err == nil && found
}

// dialectByModels determines an engine from its Server header and the owner of its models; empty if that is not
// conclusive.
func dialectByModels(header string, cards []listedModel) string {
	if strings.Contains(strings.ToLower(header), "llama.cpp") {
		return "llamacpp"
	}
	for _, c := range cards {
		switch strings.ToLower(c.OwnedBy) {
		case "vllm":
			return "vllm"
		case "sglang":
			return "sglang"
		case "llamacpp":
			return "llamacpp"
		case "tensorrt_llm":
			return "trtllm"
		}
	}
	return ""
}

// dialectByMetrics determines an engine from the names on its metrics page; empty if they belong to no known engine.
func dialectByMetrics(page []byte) string {
	for _, p := range []struct{ prefix, name string }{
		{"vllm:", "vllm"},
		{"sglang:", "sglang"},
		{"llamacpp:", "llamacpp"},
		{"tgi_", "tgi"},
		{"trtllm_", "trtllm"},
		{"nv_", "triton"},
	} {
		for range scanSeries(page, p.prefix) {
			return p.name
		}
	}
	return ""
}
