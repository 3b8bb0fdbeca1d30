package engine

import (
	"context"
	"errors"
)

// Engine asks one worker about itself. Methods are safe for concurrent use.
type Engine interface {
	// Name is the dialect, one of Names.
	Name() string
	// Health returns nil when the worker says that it is well.
	Health(ctx context.Context) error
	// Models lists what the worker has, what is not loaded included.
	Models(ctx context.Context) ([]Model, error)
	// Metrics reads the worker's load on top of the last reading: what the page does not say stays as it was.
	Metrics(ctx context.Context, last Reading) (Reading, error)
}

// Loader is an engine that loads models or adapters while it runs, and lets them go.
type Loader interface {
	// Load returns once the engine has taken the model in, which for a large one is minutes. A model that is loaded
	// already is no error.
	Load(ctx context.Context, s Source) error
	// Unload lets a model or an adapter go. One that is not there is no error.
	Unload(ctx context.Context, id string) error
}

// Sleeper is an engine that can give its GPU memory back and take it again.
type Sleeper interface {
	Sleep(ctx context.Context) error
	Wake(ctx context.Context) error
}

// Source says what to load.
type Source struct {
	// ID is the name that requests use.
	ID string
	// Path is where the engine finds an adapter, a folder of its own or a name in its hub; empty for whole models.
	Path string
}

// State of a model on its worker.
type State uint8

// The states.
const (
	Ready    State = iota // takes requests now
	Cold                  // not in memory: the first request loads it and waits for that
	Unloaded              // not in memory, and refused until somebody calls Load
)

// String names the state in status.
func (s State) String() string {
	switch s {
	case Cold:
		return "cold"
	case Unloaded:
		return "unloaded"
	}
	return "ready"
}

// Model is one model that a worker has.
type Model struct {
	// ID is the name that requests use.
	ID string
	// Parent is the base model of an adapter; empty for a base model.
	Parent string
	// MaxContext is prompt plus output in tokens; 0 when the engine does not say.
	MaxContext int64
	// State is Ready unless the engine says otherwise.
	State State
}

// Takes says that requests for the model may be sent, if only to wait until it has loaded.
func (m *Model) Takes() bool { return m.State != Unloaded }

// Limits of what is read from a worker.
const (
	MaxPage   = 4 << 20   // metrics, in bytes
	maxModels = 1 << 20   // a list of models, in bytes
	maxSmall  = 256 << 10 // any other page, in bytes
	maxNamed  = 256       // models or adapters of one worker
	maxName   = 253       // bytes of a name
)

// ErrTooLarge means that a worker's page is larger than is read.
var ErrTooLarge = errors.New("page is larger than the limit")

// ErrForeign means that a page was read and is none of this engine's.
var ErrForeign = errors.New("page holds nothing that this engine says")
