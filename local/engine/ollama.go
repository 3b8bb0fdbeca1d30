package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// ollama reads Ollama. It has no metrics and does not tell what runs or waits: the ledger alone knows its load. It loads
// a model when it is first asked for and lets it go when it has been idle for a while.
type ollama struct{ server }

func (*ollama) Name() string { return "ollama" }

func (e *ollama) Health(ctx context.Context) error { return e.ok(ctx, "/api/version") }

// Models asks for what is on disk and what of it is in memory. A name that ends in :latest may be asked for without it.
func (e *ollama) Models(ctx context.Context) (out []Model, err error) {
	var loaded map[string]int64
	if err := e.client.page(ctx, e.at("/api/ps"), maxModels, func(b []byte) (err error) {
		loaded, err = parsePS(b)
		return err
	}); err != nil {
		return nil, err
	}
	err = e.client.page(ctx, e.at("/api/tags"), maxModels, func(b []byte) (err error) {
		out, err = parseTags(b, loaded)
		return err
	})
	return out, err
}

// Metrics only finds out whether the worker answers.
func (e *ollama) Metrics(_ context.Context, last Reading) (Reading, error) {
	last.At = time.Now()
	return last, nil
}

// Load has a model loaded by a request without a prompt.
func (e *ollama) Load(ctx context.Context, s Source) error {
	return e.client.command(ctx, e.at("/api/generate"), map[string]any{"model": s.ID, "stream": false})
}

// Unload takes it out of memory at once.
func (e *ollama) Unload(ctx context.Context, id string) error {
	body := map[string]any{"model": id, "keep_alive": 0, "stream": false}
	return unless(e.client.command(ctx, e.at("/api/generate"), body), "not found")
}

// entry is what /api/tags and /api/ps say of a model.
type entry struct {
	Name    string  `json:"name"`
	Model   string  `json:"model"`
	Context float64 `json:"context_length"`
}

func (t *entry) id() string {
	if t.Model != "" {
		return t.Model
	}
	return t.Name
}

func entries(page []byte) ([]entry, error) {
	var list struct {
		Models []entry `json:"models"`
	}
	if err := json.Unmarshal(page, &list); err != nil {
		return nil, fmt.Errorf("the list of models: %w", err)
	}
	return list.Models, nil
}

// parsePS reads /api/ps: the context of each model in memory.
func parsePS(page []byte) (map[string]int64, error) {
	list, err := entries(page)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for i := range list {
		if t := &list[i]; named(t.id()) && len(out) < maxNamed {
			out[t.id()] = context64(t.Context)
		}
	}
	return out, nil
}

// parseTags reads Ollama's list of models; loaded gives the context of those in memory.
func parseTags(page []byte, loaded map[string]int64) ([]Model, error) {
	list, err := entries(page)
	if err != nil {
		return nil, err
	}
	var out []Model
	for i := range list {
		id := list[i].id()
		if !named(id) || len(out) >= maxNamed-1 {
			continue
		}
		m := Model{ID: id, State: Cold}
		if size, ok := loaded[id]; ok {
			m.State, m.MaxContext = Ready, size
		}
		out = append(out, m)
		if short, ok := strings.CutSuffix(id, ":latest"); ok && short != "" {
			m.ID = short
			out = append(out, m)
		}
	}
	return out, nil
}
