package engine

import (
	"context"
	"errors"
	"time"
)

// Engine asks one worker about itself. Methods are safe for concurrent use.
type Engine interface {
	// Health returns nil when the worker says that it is well.
	Health(ctx context.Context) error
	// Models lists what the worker serves.
	Models(ctx context.Context) ([]Model, error)
	// Metrics reads the worker's metrics on top of the last reading: what the page does not say stays as it was.
	Metrics(ctx context.Context, last Reading) (Reading, error)
}

// Model is one model that a worker serves.
type Model struct {
	// ID is the name that requests use.
	ID string
	// Parent is the base model of an adapter; empty for a base model.
	Parent string
	// MaxContext is prompt plus output in tokens; 0 when the engine does not say.
	MaxContext int64
}

// Reading is what a worker's metrics said. The zero Reading is "nothing heard yet".
type Reading struct {
	// At is when the page had been read.
	At time.Time
	// Running and Waiting sequences, summed over data-parallel engines.
	Running, Waiting int64
	// KVUsage is the part of the KV cache held by live sequences, 0..1.
	KVUsage float64
	// KVTotal is the KV cache in tokens; 0 when the engine does not say.
	KVTotal int64
	// PromptTokens, OutputTokens, PrefixQueries and PrefixHits count tokens since the engine started.
	PromptTokens, OutputTokens, PrefixQueries, PrefixHits float64
	// Preemptions counts sequences thrown out for lack of KV since the engine started.
	Preemptions float64
	// Asleep says that the engine has given its GPU memory back and must be woken.
	Asleep bool
}

// KVUsed is the live part of the KV cache in tokens; -1 when the engine does not say how large it is.
func (r *Reading) KVUsed() int64 {
	if r.KVTotal <= 0 {
		return -1
	}
	return int64(r.KVUsage * float64(r.KVTotal))
}

// Restarted says that the counters of next went back, so that the engine has started anew and its cache is empty.
func (r *Reading) Restarted(next *Reading) bool {
	return next.PromptTokens < r.PromptTokens || next.OutputTokens < r.OutputTokens
}

// Limits of what is read from a worker.
const (
	MaxPage   = 4 << 20 // metrics, in bytes
	maxModels = 1 << 20 // models page, in bytes
	maxNamed  = 256     // models of one worker
)

// ErrTooLarge means that a worker's page is larger than is read.
var ErrTooLarge = errors.New("page is larger than the limit")
