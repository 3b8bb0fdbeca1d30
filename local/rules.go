package local

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/queue"
)

// queue is how requests for a model wait by the spec; what base says wins.
func (o *orders) queue(model string, base queue.Config) queue.Config {
	s := &o.spec.Routing.Queue
	c := base
	c.MaxItems = or(c.MaxItems, s.MaxRequests)
	c.MaxBytes = or(c.MaxBytes, s.MaxBytes)
	c.ClassShare = or(c.ClassShare, s.ClassShares.All())
	c.TenantShare = or(c.TenantShare, s.TenantShare)
	c.Weights = or(c.Weights, s.Weights.All())
	c.Aging = or(c.Aging, time.Duration(s.Aging))
	c.ShedFrom = or(c.ShedFrom, s.ShedFrom)
	for k := range spec.Class(spec.NumClasses) {
		c.Targets[k] = or(c.Targets[k], o.ttft(model, k))
	}
	return c
}

// health is when a worker is taken out by the spec; what base says wins.
func (o *orders) health(base health.Config) health.Config {
	s := &o.spec.Routing.Health
	c := base
	c.Failures = or(c.Failures, s.Failures)
	c.Backoff = or(c.Backoff, time.Duration(s.Backoff))
	c.MaxBackoff = or(c.MaxBackoff, time.Duration(s.MaxBackoff))
	c.Quarantine = or(c.Quarantine, time.Duration(s.Quarantine))
	c.SlowStart = or(c.SlowStart, time.Duration(s.SlowStart))
	c.Stall = or(c.Stall, time.Duration(s.Stall))
	c.WarmUp = c.WarmUp || s.WarmUp == nil || *s.WarmUp
	c.MaxEjected = or(c.MaxEjected, s.MaxEjected)
	c.Panic = or(c.Panic, s.Panic)
	c.ErrorRate = or(c.ErrorRate, s.ErrorRate)
	c.SlowFactor = or(c.SlowFactor, s.SlowFactor)
	return c
}

// defaultDrainDeadline holds where the spec says nothing.
const defaultDrainDeadline = 10 * time.Minute

// drainDeadline is how long answers of a drained or removed worker may run on.
func (o *orders) drainDeadline() time.Duration {
	return or(time.Duration(o.spec.Routing.Health.DrainDeadline), defaultDrainDeadline)
}

// or is v unless it is its type's zero.
func or[T comparable](v, def T) T {
	var zero T
	if v != zero {
		return v
	}
	return def
}
