package engine

import (
	"context"
	"time"
)

// openai is any server that speaks OpenAI's paths and of which nothing else is known. The ledger alone knows its load.
type openai struct{ server }

func (*openai) Name() string { return "openai" }

// Health asks /health where there is one, and otherwise whether the list of models is served.
func (e *openai) Health(ctx context.Context) error { return e.aliveAt(ctx, "/health", "/v1/models") }

func (e *openai) Models(ctx context.Context) ([]Model, error) { return e.list(ctx) }

// Metrics only says that the worker was asked.
func (e *openai) Metrics(_ context.Context, last Reading) (Reading, error) {
	last.At = time.Now()
	return last, nil
}
