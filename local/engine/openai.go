package engine

import (
	"context"
	"time"
)

// openaiServer is a server with OpenAI's paths and an unknown engine. Its load is known from the in-flight ledger
// only.
type openaiServer struct{ workerServer }

func (*openaiServer) Name() string { return "openai" }

// CheckHealth gets /health if it exists, else checks that the list of models is served.
func (e *openaiServer) CheckHealth(ctx context.Context) error {
	return e.checkAnyPage(ctx, "/health", "/v1/models")
}

func (e *openaiServer) ListModels(ctx context.Context) ([]WorkerModel, error) {
	return e.fetchModels(ctx)
}

// ReadMetrics only records that the worker was called.
func (e *openaiServer) ReadMetrics(_ context.Context, last Reading) (Reading, error) {
	last.ReadAt = time.Now()
	return last, nil
}
