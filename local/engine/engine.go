package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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

// Config of an Engine.
type Config struct {
	// BaseURL is where the worker listens, "http://host:port".
	BaseURL string
	// MetricsURL is the address of its metrics page; empty for the engine's default.
	MetricsURL string
	// Client makes the calls.
	Client *Client
}

// NameAuto is the dialect that detects the worker's engine. It is the default.
const NameAuto = report.NameAuto

// DialectNames lists the dialects, NameAuto first.
func DialectNames() []string {
	return []string{NameAuto, "vllm", "sglang", "trtllm", "triton", "tgi", "llamacpp", "ollama", "openai"}
}

// IsKnownDialect reports whether there is a dialect of that name; the empty name means NameAuto.
func IsKnownDialect(name string) bool { return name == "" || slices.Contains(DialectNames(), name) }

// New returns an Engine of the named dialect for one worker.
func New(name string, cfg Config) (Engine, error) {
	if _, err := parseBaseURL(cfg.BaseURL); err != nil {
		return nil, err
	}
	if cfg.MetricsURL != "" {
		if _, err := parseBaseURL(cfg.MetricsURL); err != nil {
			return nil, fmt.Errorf("metrics page: %w", err)
		}
	}
	if cfg.Client == nil {
		return nil, errors.New("reading a worker needs an HTTP client")
	}
	s := workerServer{baseURL: strings.TrimRight(cfg.BaseURL, "/"), metricsURL: cfg.MetricsURL, client: cfg.Client}
	if name == "" || name == NameAuto {
		return newAutoEngine(s), nil
	}
	if e := newDialect(name, s); e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("unknown engine %q: write one of %s", name, strings.Join(DialectNames(), ", "))
}

func newDialect(name string, s workerServer) Engine {
	switch name {
	case "vllm":
		return &vllm{s}
	case "sglang":
		return &sglang{s}
	case "trtllm":
		return &trtllm{s}
	case "triton":
		return newTriton(s)
	case "tgi":
		return &tgi{workerServer: s}
	case "llamacpp":
		return &llamacpp{workerServer: s}
	case "ollama":
		return &ollama{s}
	case "openai":
		return &openaiServer{s}
	}
	return nil
}
