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

// ErrUndetected means that a worker answers and is no engine that is known, or not yet: one that is still loading its
// model often serves nothing but its health page.
var ErrUndetected = errors.New("the worker speaks no known dialect: it serves neither /v1/models nor /v2; set engine for it, or wait until it has loaded")

// auto finds out which engine a worker is when it is first asked something, and is that engine from then on. After the
// worker has been away it finds out anew, because another engine may have come back at the address.
type auto struct {
	server
	asking sync.Mutex             // one detection at a time
	found  atomic.Pointer[Engine] // nil until found; read without waiting for a detection
	away   atomic.Bool            // it did not answer, and has to be asked again who it is
}

func newAuto(s server) *auto { return &auto{server: s} }

// Name is the engine that was found, or auto.
func (a *auto) Name() string {
	if e := a.Found(); e != nil {
		return e.Name()
	}
	return NameAuto
}

// Found is the engine that the worker turned out to be; nil while that is not known.
func (a *auto) Found() Engine {
	if e := a.found.Load(); e != nil {
		return *e
	}
	return nil
}

// find returns the engine, asking when it is not known.
func (a *auto) find(ctx context.Context) (Engine, error) {
	if e := a.Found(); e != nil && !a.away.Load() {
		return e, nil
	}
	a.asking.Lock()
	defer a.asking.Unlock()
	e := a.Found()
	if e != nil && !a.away.Load() {
		return e, nil
	}
	name, err := a.ask(ctx)
	if err != nil {
		return nil, err
	}
	if e == nil || e.Name() != name {
		e = dialect(name, a.server)
		a.found.Store(&e)
	}
	a.away.Store(false)
	return e, nil
}

func (a *auto) Health(ctx context.Context) error {
	e, err := a.find(ctx)
	if err != nil {
		return err
	}
	if err = e.Health(ctx); err != nil {
		a.away.Store(true)
	}
	return err
}

func (a *auto) Models(ctx context.Context) ([]Model, error) {
	e, err := a.find(ctx)
	if err != nil {
		return nil, err
	}
	return e.Models(ctx)
}

func (a *auto) Metrics(ctx context.Context, last Reading) (Reading, error) {
	e, err := a.find(ctx)
	if err != nil {
		return last, err
	}
	return e.Metrics(ctx, last)
}

// As returns e, or what auto found it to be, as a T, such as Loader or Sleeper.
func As[T any](e Engine) (T, bool) {
	if a, ok := e.(*auto); ok {
		e = a.Found()
	}
	t, ok := e.(T)
	return t, ok
}

// ask puts at most six cheap questions: who owns the models, what the metrics are called, and then the pages that only
// one engine has.
func (a *auto) ask(ctx context.Context) (string, error) {
	var evidence struct {
		models bool
		name   string
	}
	err := a.client.do(ctx, http.MethodGet, a.at("/v1/models"), nil, maxModels, func(h http.Header, b []byte) error {
		cards, err := parseCards(b)
		evidence.models = err == nil
		evidence.name = byModels(h.Get("Server"), cards)
		return nil
	})
	if err != nil && !answered(err) {
		return "", err
	}
	listing := err
	if evidence.name != "" {
		return evidence.name, nil
	}
	err = a.client.page(ctx, a.metricsAt("/metrics"), MaxPage, func(b []byte) error {
		evidence.name = byMetrics(b)
		return nil
	})
	if evidence.name != "" {
		return evidence.name, nil
	}
	if err != nil && !answered(err) {
		return "", err
	}
	for _, q := range []struct{ path, holds, name string }{
		{"/v2", `"name"`, "triton"},
		{"/api/version", `"version"`, "ollama"},
		{"/info", `"max_total_tokens"`, "tgi"},
		{"/props", `"total_slots"`, "llamacpp"},
	} {
		if a.holds(ctx, q.path, q.holds) {
			return q.name, nil
		}
	}
	if evidence.models {
		return "openai", nil
	}
	var s *StatusError
	if errors.As(listing, &s) && s.Status != http.StatusNotFound { // such as 401 or 503: that says more
		return "", fmt.Errorf("%w: %w", ErrUndetected, listing)
	}
	return "", ErrUndetected
}

// answered says that a worker answered, though with no page that could be used.
func answered(err error) bool {
	var s *StatusError
	return errors.As(err, &s) || errors.Is(err, ErrTooLarge)
}

// holds says that a page is a JSON object and has a key.
func (a *auto) holds(ctx context.Context, path, key string) bool {
	found := false
	err := a.client.page(ctx, a.at(path), maxSmall, func(b []byte) error {
		found = bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) && json.Valid(b) && bytes.Contains(b, []byte(key))
		return nil
	})
	return err == nil && found
}

// byModels tells an engine from its Server header and from who owns its models; empty when they do not say.
func byModels(header string, cards []card) string {
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

// byMetrics tells an engine from the names on its metrics page; empty when they are nobody's.
func byMetrics(page []byte) string {
	for _, p := range []struct{ prefix, name string }{
		{"vllm:", "vllm"},
		{"sglang:", "sglang"},
		{"llamacpp:", "llamacpp"},
		{"tgi_", "tgi"},
		{"trtllm_", "trtllm"},
		{"nv_", "triton"},
	} {
		for range lines(page, p.prefix) {
			return p.name
		}
	}
	return ""
}
