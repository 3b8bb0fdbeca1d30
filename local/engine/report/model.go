package report

// WorkerModel is one model of a worker, loaded or not.
type WorkerModel struct {
	// ID is the name that requests use.
	ID string
	// Parent is the base model of an adapter; empty for a base model.
	Parent string
	// MaxContext is the longest prompt and output together, in tokens; 0 when unknown.
	MaxContext int64
	// State is ModelReady unless the engine reports otherwise.
	State ModelState
}

// AcceptsRequests reports whether requests for the model may be sent, if only to wait until it is loaded.
func (m *WorkerModel) AcceptsRequests() bool { return m.State != ModelUnloaded }

// ModelState is the state of a model on its worker.
type ModelState uint8

// The states.
const (
	ModelReady    ModelState = iota // accepts requests now
	ModelCold                       // not in memory: the first request loads it and waits for that
	ModelUnloaded                   // not in memory: requests are refused until it is loaded
)

// String returns the state as shown in status.
func (s ModelState) String() string {
	switch s {
	case ModelCold:
		return "cold"
	case ModelUnloaded:
		return "unloaded"
	}
	return "ready"
}

// ModelSource describes what an engine is to load.
type ModelSource struct {
	// ID is the name that requests use.
	ID string
	// Path is where the engine finds an adapter: a directory on its machine or a name in its hub. It is empty for whole
	// models.
	Path string
}

// NameAuto is the name of an engine that is not detected yet.
const NameAuto = "auto"
