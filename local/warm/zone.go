package warm

import "time"

// State of a model on a worker.
type State uint8

// The states.
const (
	Loadable  State = iota // not in memory, and can be brought there
	Loading                // being loaded
	Loaded                 // takes requests, unless its worker sleeps
	Unloading              // being let go; takes no requests
)

// String names the state in status.
func (s State) String() string {
	return [...]string{"cold", "loading", "ready", "unloading"}[s&3]
}

// Zone is what Decide decides upon.
type Zone struct {
	Models  []Model
	Workers []Worker
}

// Model is what is asked for.
type Model struct {
	// Waiting requests, and how long the oldest of them has waited.
	Waiting int
	Oldest  time.Duration
	// Wait is the predicted time until a new request would start on the replicas there are, in seconds.
	Wait float64
	// Floor is how many replicas must stay ready.
	Floor int
	// Idle is how long a replica may be unused before it is let go; 0 means for ever.
	Idle time.Duration

	ready, coming int
}

// Worker is one inference server.
type Worker struct {
	// Up workers answer and are not drained.
	Up bool
	// Max is how many models may be loaded at once, those that are Fixed not counted; 0 means no bound.
	Max int
	// Asleep workers have given their memory back; none of their models takes requests. Nap is Loading while one is
	// being woken and Unloading while it is put to sleep; since NapSince.
	Asleep   bool
	Nap      State
	NapSince time.Time
	// MayWake and MaySleep are what the operator and the engine allow.
	MayWake, MaySleep bool
	// WakeSeconds is how long waking is expected to take; no waking is tried before WakeRetry.
	WakeSeconds float64
	WakeFailed  int
	WakeRetry   time.Time
	// Free is the part of the KV cache that is free, 0..1.
	Free float64
	// Places are the models that it has or could have.
	Places []Place

	promised int // rooms that become free and are spoken for
}

// Place is one model on one worker.
type Place struct {
	// Model is its index in Zone.Models.
	Model int
	State State
	// Since is when it came into the state, Used when a request last began or ended there.
	Since, Used time.Time
	// Open answers are under way.
	Open int
	// Seconds that a load is expected to take.
	Seconds float64
	// Failed loads in a row; none is tried before Retry.
	Failed int
	Retry  time.Time
	// Fixed models cannot be let go while their worker is awake.
	Fixed bool
}

// Kind of an Action.
type Kind uint8

// The kinds. Load and Unload are about one place, Wake and Sleep about a whole worker.
const (
	Load Kind = iota
	Unload
	Wake
	Sleep
)

// String names the kind in metrics and logs.
func (k Kind) String() string { return [...]string{"load", "unload", "wake", "sleep"}[k&3] }

// Action is one thing to do. Place is -1 for Wake and Sleep.
type Action struct {
	Kind   Kind
	Worker int
	Place  int
}

// Config bounds and times the decisions. Zero fields take their defaults.
type Config struct {
	// Stay is how long a model that was loaded is kept whatever else is asked for. Default 10s.
	Stay time.Duration
	// Backoff is how long a place is left alone after a failed load; it doubles up to MaxBackoff. Defaults 5s and 5m.
	Backoff, MaxBackoff time.Duration
	// PerWorker and PerZone bound the loads that run at once. Defaults 1 and 8.
	PerWorker, PerZone int
}

// WithDefaults fills in what is zero.
func (c Config) WithDefaults() Config {
	for _, f := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.Stay, 10 * time.Second}, {&c.Backoff, 5 * time.Second}, {&c.MaxBackoff, 5 * time.Minute}} {
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

// After is how long a place is left alone after so many failed loads in a row.
func (c Config) After(failed int) time.Duration {
	d := c.Backoff
	for i := 1; i < failed && d < c.MaxBackoff; i++ {
		d *= 2
	}
	return min(d, c.MaxBackoff)
}
