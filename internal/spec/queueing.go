package spec

// HedgePolicy controls when a local tier sends an overdue request to a second worker.
type HedgePolicy struct {
	// Enabled sends a request without a first byte in time to another worker too: the first response wins and
	// the other attempt is cancelled. It costs a second prefill, charged to retry_budget. Default false.
	Enabled bool `yaml:"enabled"`
	// After is the minimum wait for the first byte. Default 500ms.
	After Duration `yaml:"after" default:"500ms"`
	// Quantile is the fraction of the model's recent responses that began within the wait, relative to their
	// predictions: the rest is hedged. Default 0.95.
	Quantile float64 `yaml:"quantile" default:"0.95"`
}

// QueuePolicy controls how requests wait at a local tier while no worker has capacity, for each model
// separately.
type QueuePolicy struct {
	// MaxRequests bounds the waiting requests. Default 4096.
	MaxRequests int `yaml:"max_requests" default:"4096"`
	// MaxBytes bounds their bodies, in bytes. Default 256 MiB.
	MaxBytes int64 `yaml:"max_bytes" default:"268435456"`
	// ClassShares are the fractions of both bounds that each class may fill. Defaults 1, 1, 0.5.
	ClassShares QueueShares `yaml:"class_shares"`
	// TenantShare is the fraction of its class's bounds that one tenant may fill. Default 0.5.
	TenantShare float64 `yaml:"tenant_share" default:"0.5"`
	// Weights are the classes' shares of the workers while all classes have waiting requests. Defaults 16, 4,
	// 1.
	Weights QueueWeights `yaml:"weights"`
	// Aging is the wait after which the weight of a class has doubled, so that no class starves. Default 2s.
	Aging Duration `yaml:"aging" default:"2s"`
	// ShedFrom is the saturation from which batch requests are refused at random: 1 is a full queue, or a wait
	// as long as a class's target. From 0.5 above it all of them are refused. Default 0.7.
	ShedFrom float64 `yaml:"shed_from" default:"0.7"`
}

// QueueShares holds a fraction of a bound for each class.
type QueueShares struct {
	Interactive float64 `yaml:"interactive" default:"1"` // for interactive users
	Standard    float64 `yaml:"standard" default:"1"`    // for most programs
	Batch       float64 `yaml:"batch" default:"0.5"`     // for work without a waiting user
}

// ByClass returns the shares in order of urgency.
func (s QueueShares) ByClass() [NumClasses]float64 {
	return [NumClasses]float64{s.Interactive, s.Standard, s.Batch}
}

// QueueWeights holds one weight for each class.
type QueueWeights struct {
	Interactive float64 `yaml:"interactive" default:"16"` // for interactive users
	Standard    float64 `yaml:"standard" default:"4"`     // for most programs
	Batch       float64 `yaml:"batch" default:"1"`        // for work without a waiting user
}

// ByClass returns the weights in order of urgency.
func (w QueueWeights) ByClass() [NumClasses]float64 {
	return [NumClasses]float64{w.Interactive, w.Standard, w.Batch}
}

// HealthPolicy controls when a local tier ejects a worker, and how it returns.
type HealthPolicy struct {
	// Failures is the number of consecutive error responses that ejects a worker. Default 5.
	Failures int `yaml:"failures" default:"5"`
	// Backoff is the first ejection time; it doubles up to max_backoff. Defaults 1s and 1m.
	Backoff    Duration `yaml:"backoff" default:"1s"`
	MaxBackoff Duration `yaml:"max_backoff" default:"1m"` // the longest ejection time
	// Quarantine is the minimum ejection time after a response or an exporter reports broken hardware or
	// memory. Default 30s.
	Quarantine Duration `yaml:"quarantine" default:"30s"`
	// SlowStart is how long a new or recovered worker takes to reach its full share of traffic. Default 10s.
	SlowStart Duration `yaml:"slow_start" default:"10s"`
	// Stall is how long a worker may hold requests without output, beyond the expected time. Default 10s.
	Stall Duration `yaml:"stall" default:"10s"`
	// WarmUp sends a worker a one-token request before its first traffic and each time it returns. Default
	// true.
	WarmUp *bool `yaml:"warm_up" default:"true"`
	// DeepProbe is the time without a token after which a worker is sent a one-token request. A worker that
	// only responds to health probes is ejected. It costs an idle worker one token each time. Default 0s: off.
	DeepProbe Duration `yaml:"deep_probe"`
	// MaxEjected is the largest fraction of a model's workers that may be ejected because of request results:
	// error responses, lost connections, silence, broken hardware, being an outlier. Failed health probes are
	// not bounded. Default 0.5.
	MaxEjected float64 `yaml:"max_ejected" default:"0.5"`
	// Panic is the fraction of a model's workers that must be in use. Below it, workers ejected for error
	// responses, as outliers or for a stall are used anyway if they respond to probes. Default 0.3.
	Panic float64 `yaml:"panic" default:"0.3"`
	// ErrorRate is the failed fraction of recent responses from which a worker is an outlier; it must also be
	// three times the median of the model's workers. Default 0.3.
	ErrorRate float64 `yaml:"error_rate" default:"0.3"`
	// SlowFactor is the latency from which a worker is an outlier, as a multiple of the median of the model's
	// workers, each relative to the expected latency of its GPU type. Default 5.
	SlowFactor float64 `yaml:"slow_factor" default:"5"`
	// DrainDeadline is how long responses of a drained or removed worker, or of a drained zone, may continue
	// before they are ended. After that a drained zone accepts nothing. Default 10m.
	DrainDeadline Duration `yaml:"drain_deadline" default:"10m"`
}
