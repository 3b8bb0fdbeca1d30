package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// ollama reads Ollama. It has no metrics and does not report running or waiting requests: its load is known from the
// in-flight ledger only. It loads a model at its first request and unloads it after a while without requests.
type ollama struct{ workerServer }

func (*ollama) Name() string { return "ollama" }

func (e *ollama) CheckHealth(ctx context.Context) error { return e.checkPage(ctx, "/api/version") }

// ListModels lists the models on disk and marks those in memory. A name that ends in :latest may be requested without
// that suffix.
func (e *ollama) ListModels(ctx context.Context) (out []WorkerModel, err error) {
	var loaded map[string]int64
	if err := e.client.getPage(ctx, e.urlFor("/api/ps"), maxModelListBytes, func(b []byte) (err error) {
		loaded, err = parsePS(b)
		return err
	}); err != nil {
		return nil, err
	}
	err = e.client.getPage(ctx, e.urlFor("/api/tags"), maxModelListBytes, func(b []byte) (err error) {
		out, err = parseTags(b, loaded)
		return err
	})
	return out, err
}

// ReadMetrics only checks that the worker answers.
func (e *ollama) ReadMetrics(_ context.Context, last Reading) (Reading, error) {
	last.ReadAt = time.Now()
	return last, nil
}

// LoadModel loads a model by a request without a prompt.
func (e *ollama) LoadModel(ctx context.Context, s ModelSource) error {
	return e.client.postCommand(ctx, e.urlFor("/api/generate"), map[string]any{"model": s.ID, "stream": false})
}

// UnloadModel unloads it at once.
func (e *ollama) UnloadModel(ctx context.Context, id string) error {
	body := map[string]any{"model": id, "keep_alive": 0, "stream": false}
	return ignoreRefusal(e.client.postCommand(ctx, e.urlFor("/api/generate"), body), "not found")
}

// ollamaModel is one entry of /api/tags and /api/ps.
type ollamaModel struct {
	Name    string  `json:"name"`
	Model   string  `json:"model"`
	Context float64 `json:"context_length"`
}

func (t *ollamaModel) modelID() string {
	if t.Model != "" {
		return t.Model
	}
	return t.Name
}

func parseOllamaModels(page []byte) ([]ollamaModel, error) {
	var list struct {
		Models []ollamaModel `json:"models"`
	}
	if err := json.Unmarshal(page, &list); err != nil {
		return nil, fmt.Errorf("the list of models: %w", err)
	}
	return list.Models, nil
}

// parsePS parses /api/ps: the context of each model in memory.
func parsePS(page []byte) (map[string]int64, error) {
	list, err := parseOllamaModels(page)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for i := range list {
		if t := &list[i]; isValidName(t.modelID()) && len(out) < maxNames {
			out[t.modelID()] = validContext(t.Context)
		}
	}
	return out, nil
}

// parseTags parses Ollama's list of models; loaded gives the context of those in memory.
func parseTags(page []byte, loaded map[string]int64) ([]WorkerModel, error) {
	list, err := parseOllamaModels(page)
	if err != nil {
		return nil, err
	}
	var out []WorkerModel
	for i := range list {
		id := list[i].modelID()
		if !isValidName(id) || len(out) >= maxNames-1 {
			continue
		}
		m := WorkerModel{ID: id, State: ModelCold}
		if size, ok := loaded[id]; ok {
			m.State, m.MaxContext = ModelReady, size
		}
		out = append(out, m)
		if short, ok := strings.CutSuffix(id, ":latest"); ok && short != "" {
			m.ID = short
			out = append(out, m)
		}
	}
	return out, nil
}
