package modelload

import (
	"time"

	"github.com/spillway-lb/spillway/internal/backoff"
)

// LoadState is the state of a model on a worker.
type LoadState uint8

// The states.
const (
	StateLoadable  LoadState = iota // not in memory, and can be loaded
	StateLoading                    // being loaded
	StateLoaded                     // takes requests, unless its worker sleeps
	StateUnloading                  // being unloaded; takes no requests
)

// String is the state's name in status and metrics.
func (s LoadState) String() string {
	return [...]string{"cold", "loading", "ready", "unloading"}[s&3]
}

// PlacementState is the input of PlanActions: the demand, and the workers with their models.
type PlacementState struct {
	Models  []ModelDemand
	Workers []WorkerSlots
}

// ModelDemand is the demand for one model.
type ModelDemand struct {
	// Waiting requests, and how long the oldest of them has waited.
	Waiting    int
	OldestWait time.Duration
	// PredictedWait is the predicted time until a new request would start on the present replicas, in seconds.
	PredictedWait float64
	// MinReady is how many replicas must stay ready.
	MinReady int
	// IdleTimeout is how long a replica may be unused before it is unloaded; 0 means for ever.
	IdleTimeout time.Duration

	readyReplicas, loadingReplicas int
}

// WorkerSlots is one inference server and its models.
type WorkerSlots struct {
	// Up workers answer and are not drained.
	Up bool
	// MaxModels is how many models may be loaded at once, not counting those that are Pinned; 0 means no bound.
	MaxModels int
	// Asleep workers have released their memory; none of their models takes requests. SleepState is StateLoading while the
	// worker is being woken and StateUnloading while it is put to sleep, since SleepSince.
	Asleep     bool
	SleepState LoadState
	SleepSince time.Time
	// MayWake and MaySleep are what the operator and the engine allow.
	MayWake, MaySleep bool
	// WakeSeconds is how long a wake is expected to take. No wake is tried before WakeRetry.
	WakeSeconds float64
	WakeFailed  int
	WakeRetry   time.Time
	// FreeKV is the free share of the KV cache, 0..1.
	FreeKV float64
	// Slots are the models that it has or could have.
	Slots []ModelSlot

	promisedSlots int // slots that become free and are reserved
}

// ModelSlot is one model on one worker.
type ModelSlot struct {
	// Model is its index in PlacementState.Models.
	Model int
	State LoadState
	// Since is when it entered the state. UsedAt is when a request last began or ended there.
	Since, UsedAt time.Time
	// OpenRequests is the number of answers under way.
	OpenRequests int
	// LoadSeconds is the expected time of a load, in seconds.
	LoadSeconds float64
	// FailedLoads is the number of failed loads in a row. No load is tried before RetryAt.
	FailedLoads int
	RetryAt     time.Time
	// Pinned models cannot be unloaded while their worker is awake.
	Pinned bool
}

// ActionKind is the kind of a LoadAction.
type ActionKind uint8

// The kinds. ActionLoad and ActionUnload concern one slot, ActionWake and ActionSleep a whole worker.
const (
	ActionLoad ActionKind = iota
	ActionUnload
	ActionWake
	ActionSleep
)

// String is the kind's name in metrics and logs.
func (k ActionKind) String() string { return [...]string{"load", "unload", "wake", "sleep"}[k&3] }

// LoadAction is one action to start. Slot is -1 for ActionWake and ActionSleep.
type LoadAction struct {
	Kind   ActionKind
	Worker int
	Slot   int
}

// Config bounds and times the decisions. Zero fields take their defaults.
type Config struct {
	// MinResidency is how long a loaded model is kept regardless of other demand. Default 10s.
	MinResidency time.Duration
	// Backoff is how long no load is tried in a slot after a failed one; it doubles up to MaxBackoff. Defaults 5s and 5m.
	Backoff, MaxBackoff time.Duration
	// PerWorker and PerZone bound the loads that run at once. Defaults 1 and 8.
	PerWorker, PerZone int
}

// WithDefaults replaces zero fields by their defaults.
func (c Config) WithDefaults() Config {
	for _, f := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.MinResidency, 10 * time.Second}, {&c.Backoff, 5 * time.Second}, {&c.MaxBackoff, 5 * time.Minute}} {
		if *f.v <= 0 {
			*f.v = f.def
		}
	}
	if c.PerWorker <= 0 {
		c.PerWorker = 1
	}
	if c.PerZone <= 0 {
		c.PerZone = 8
	}
	return c
}

// BackoffAfter is the backoff of a slot after that many failed loads in a row.
func (c Config) BackoffAfter(failed int) time.Duration {
	return backoff.DelayAfter(c.Backoff, c.MaxBackoff, failed)
}
