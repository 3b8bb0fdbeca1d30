package engine

import (
	"context"
	"errors"

	"github.com/spillway-lb/spillway/local/engine/report"
)

// Engine is the interface to one worker. Methods are safe for concurrent use.
type Engine interface {
	// Name is the dialect, one of Names.
	Name() string
	// CheckHealth returns nil when the worker reports that it is healthy.
	CheckHealth(ctx context.Context) error
	// ListModels lists the worker's models, including those that are not loaded.
	ListModels(ctx context.Context) ([]WorkerModel, error)
	// ReadMetrics reads the worker's load. Values that the page does not contain stay as in last.
	ReadMetrics(ctx context.Context, last Reading) (Reading, error)
}

// ModelLoader is an engine that can load and unload models or adapters at run time.
type ModelLoader interface {
	// LoadModel returns when the model is loaded, which may take minutes. Loading a loaded model is no error.
	LoadModel(ctx context.Context, s ModelSource) error
	// UnloadModel unloads a model or an adapter. Unloading one that is not loaded is no error.
	UnloadModel(ctx context.Context, id string) error
}

// SleepController is an engine that can release and reclaim its GPU memory.
type SleepController interface {
	ReleaseMemory(ctx context.Context) error
	ReclaimMemory(ctx context.Context) error
}

// ModelSource is the model to load.
type (
	Reading     = report.Reading
	WorkerModel = report.WorkerModel
	ModelState  = report.ModelState
	ModelSource = report.ModelSource
)

// The states of a model.
const (
	ModelReady    = report.ModelReady
	ModelCold     = report.ModelCold
	ModelUnloaded = report.ModelUnloaded
)

// Limits of what is read from a worker.
const (
	MaxPageBytes      = 4 << 20   // metrics, in bytes
	maxModelListBytes = 1 << 20   // a list of models, in bytes
	maxSmallPageBytes = 256 << 10 // any other page, in bytes
	maxNames          = 256       // models or adapters of one worker
	maxNameBytes      = 253       // bytes of a name
)

// ErrTooLarge means that a worker's page exceeds the size limit.
var ErrTooLarge = errors.New("page is larger than the limit")

// ErrUnknownPage means that a page contains no metric of this engine.
var ErrUnknownPage = errors.New("the page has no metric of this engine")
