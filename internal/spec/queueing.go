package spec

import (
	"fmt"
	"time"
)

// Queueing is how requests wait at a local tier while no worker has room, for each model by itself.
type Queueing struct {
	// MaxRequests bounds the waiting requests. Default 4096.
	MaxRequests int `yaml:"max_requests" default:"4096"`
	// MaxBytes bounds their bodies, in bytes. Default 256 MiB.
	MaxBytes int64 `yaml:"max_bytes" default:"268435456"`
	// ClassShares are the parts of both bounds that each class may fill. Defaults 1, 1, 0.5.
	ClassShares QueueShares `yaml:"class_shares"`
	// TenantShare is the part of its class's bounds that one tenant may fill. Default 0.5.
	TenantShare float64 `yaml:"tenant_share" default:"0.5"`
	// Weights are the classes' shares of the workers while all of them wait. Defaults 16, 4, 1.
	Weights QueueWeights `yaml:"weights"`
	// Aging is the wait after which a class's weight has doubled, so that nothing starves. Default 2s.
	Aging Duration `yaml:"aging" default:"2s"`
	// ShedFrom is the saturation from which batch requests are refused by chance: 1 is a full queue, or a wait as long as
	// a class's target. All of them are refused half a unit above it. Default 0.7.
	ShedFrom float64 `yaml:"shed_from" default:"0.7"`
}

// QueueShares holds one part of a bound for each class.
type QueueShares struct {
	Interactive float64 `yaml:"interactive" default:"1"` // for people who wait at a screen
	Standard    float64 `yaml:"standard" default:"1"`    // for most programs
	Batch       float64 `yaml:"batch" default:"0.5"`     // for work that nobody waits for
}

// All are the shares in order of urgency.
func (s QueueShares) All() [NumClasses]float64 {
	return [NumClasses]float64{s.Interactive, s.Standard, s.Batch}
}

// QueueWeights holds one weight for each class.
type QueueWeights struct {
	Interactive float64 `yaml:"interactive" default:"16"` // for people who wait at a screen
	Standard    float64 `yaml:"standard" default:"4"`     // for most programs
	Batch       float64 `yaml:"batch" default:"1"`        // for work that nobody waits for
}

// All are the weights in order of urgency.
func (w QueueWeights) All() [NumClasses]float64 {
	return [NumClasses]float64{w.Interactive, w.Standard, w.Batch}
}

// Healthing is when a local tier takes a worker out, and how it comes back.
type Healthing struct {
	// Failures are the error answers in a row that take a worker out. Default 5.
	Failures int `yaml:"failures" default:"5"`
	// Backoff is the first time out; it doubles up to MaxBackoff. Defaults 1s and 1m.
	Backoff    Duration `yaml:"backoff" default:"1s"`
	MaxBackoff Duration `yaml:"max_backoff" default:"1m"` // the longest time out
	// Quarantine is the least time out after an answer or an exporter that tells of broken hardware or memory. Default 30s.
	Quarantine Duration `yaml:"quarantine" default:"30s"`
	// SlowStart is how long a new or recovered worker takes to reach its full share. Default 10s.
	SlowStart Duration `yaml:"slow_start" default:"10s"`
	// Stall is how long a worker may hold requests and emit nothing, beyond what is expected of it. Default 10s.
	Stall Duration `yaml:"stall" default:"10s"`
	// WarmUp sends a worker a one-token request before its first traffic and each time it comes back. Default true.
	WarmUp *bool `yaml:"warm_up" default:"true"`
	// DeepProbe is how long a worker may give no token before it is asked for one: one that answers health probes and
	// nothing else is taken out. It costs an idle worker one token each time. Default 0s: off.
	DeepProbe Duration `yaml:"deep_probe"`
	// MaxEjected is the part of a model's workers that may be taken out by what requests show: error answers, lost
	// connections, silence, broken hardware, being an outlier. Failed health probes are not bounded. Default 0.5.
	MaxEjected float64 `yaml:"max_ejected" default:"0.5"`
	// Panic is the part of a model's workers that must take requests: below it those that are out for error answers, for
	// being an outlier or for a stall are used all the same if they answer probes. Default 0.3.
	Panic float64 `yaml:"panic" default:"0.3"`
	// ErrorRate is the part of recent answers that must have failed to be an outlier, and three times the median of the
	// model's workers. Default 0.3.
	ErrorRate float64 `yaml:"error_rate" default:"0.3"`
	// SlowFactor is how many times the median latency of the model's workers makes an outlier, each compared with what
	// its GPU type should take. Default 5.
	SlowFactor float64 `yaml:"slow_factor" default:"5"`
	// DrainDeadline is how long answers of a drained or removed worker, or of a drained zone, may run on before they are
	// ended. Then a drained zone takes nothing any more. Default 10m.
	DrainDeadline Duration `yaml:"drain_deadline" default:"10m"`
}

func (j *judge) queue(q *Queueing) {
	const path = "$.routing.queue"
	j.whole(path+".max_requests", "max_requests", int64(q.MaxRequests), 1, 1<<20)
	j.whole(path+".max_bytes", "max_bytes", q.MaxBytes, 1<<16, 1<<36)
	for c, s := range q.ClassShares.All() {
		j.share(path+".class_shares."+Class(c).String(), "the "+Class(c).String()+" share", s)
	}
	j.share(path+".tenant_share", "tenant_share", q.TenantShare)
	for c, w := range q.Weights.All() {
		j.number(path+".weights."+Class(c).String(), "the "+Class(c).String()+" weight", w, 0.001, 1000)
	}
	j.between(path+".aging", "aging", q.Aging, 10*time.Millisecond, time.Hour)
	j.number(path+".shed_from", "shed_from", q.ShedFrom, 0.01, 10)
}

func (j *judge) health(h *Healthing) {
	const path = "$.routing.health"
	j.whole(path+".failures", "failures", int64(h.Failures), 1, 1000)
	j.between(path+".backoff", "backoff", h.Backoff, 10*time.Millisecond, 10*time.Minute)
	j.between(path+".max_backoff", "max_backoff", h.MaxBackoff, time.Duration(h.Backoff), time.Hour)
	j.between(path+".quarantine", "quarantine", h.Quarantine, time.Second, time.Hour)
	j.between(path+".slow_start", "slow_start", h.SlowStart, time.Millisecond, time.Hour)
	j.between(path+".stall", "stall", h.Stall, time.Second, time.Hour)
	if h.DeepProbe != 0 {
		j.between(path+".deep_probe", "deep_probe", h.DeepProbe, time.Second, 24*time.Hour)
	}
	j.share(path+".max_ejected", "max_ejected", h.MaxEjected)
	j.share(path+".panic", "panic", h.Panic)
	j.share(path+".error_rate", "error_rate", h.ErrorRate)
	j.number(path+".slow_factor", "slow_factor", h.SlowFactor, 1.5, 1000)
	j.between(path+".drain_deadline", "drain_deadline", h.DrainDeadline, time.Second, 7*24*time.Hour)
}

func (j *judge) whole(path, noun string, n, low, high int64) {
	if n < low || n > high {
		j.bad(path, fmt.Sprintf("%s %d is out of range", noun, n), fmt.Sprintf("write a whole number from %d to %d", low, high))
	}
}

func (j *judge) number(path, noun string, x, low, high float64) {
	if !(x >= low && x <= high) {
		j.bad(path, fmt.Sprintf("%s %v is out of range", noun, x), fmt.Sprintf("write a number from %v to %v", low, high))
	}
}
