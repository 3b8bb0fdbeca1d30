package sched

import (
	"cmp"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/autoscale"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/queue"
)

// SchedulingPolicy is what the directive in force says about scheduling. It is immutable: a newer directive replaces it as a whole.
type SchedulingPolicy struct {
	Spec       *spec.Spec // never nil
	pickPolicy pick.Policy
	Drains     []ActiveDrain
	prefixSeed uint64 // seed of the hashes in prefix sketches; 0: no sketches are made
}

// ActiveDrain is a drain of a region, a zone or a worker.
type ActiveDrain struct {
	Path  string
	Until time.Time // when it ends; zero: when it is removed
	// Traffic leaves evenly from start until over has passed; at once when over is 0.
	Start time.Time
	Over  time.Duration
}

// trafficShare is the share of new traffic that the drain leaves in place: 0 when it is complete, 1 when it has ended.
func (d *ActiveDrain) trafficShare(now time.Time) float64 {
	if !d.Until.IsZero() && !now.Before(d.Until) {
		return 1
	}
	return spec.DrainShare(d.Start, d.Over, now)
}

// NewSchedulingPolicy returns the policy of a spec. The name of a pick policy overrides the spec's; empty follows it.
func NewSchedulingPolicy(s *spec.Spec, pickPolicy string, drains []ActiveDrain, prefixSeed uint64) *SchedulingPolicy {
	if s == nil {
		s = &spec.Spec{}
	}
	o := &SchedulingPolicy{Spec: s, Drains: drains, prefixSeed: prefixSeed}
	if p, err := pick.ParsePolicy(cmp.Or(pickPolicy, s.Routing.Policy)); err == nil {
		o.pickPolicy = p
	}
	return o
}

// deepProbeInterval is the time without a token after which a worker is probed for one; 0 disables deep probes.
func (o *SchedulingPolicy) deepProbeInterval() time.Duration {
	return time.Duration(o.Spec.Routing.Health.DeepProbe)
}

// isZoneDrained reports whether a drain names this zone itself. The drain of a whole region is handled by its
// gateways: clients whose resolvers still hold their addresses must be served somewhere.
func (o *SchedulingPolicy) isZoneDrained(region, zone string, now time.Time) bool {
	for i := range o.Drains {
		d := &o.Drains[i]
		r, z, w, err := spec.ParseDrain(d.Path)
		if err == nil && r == region && z == zone && w == "" && d.trafficShare(now) <= 0 {
			return true
		}
	}
	return false
}

// Defaults for what the spec leaves open about a model or about routing.
const (
	defaultMaxOutputTokens = 1024
	defaultRetryBudget     = 0.1
	defaultKVOvercommit    = 1.2
)

var defaultTTFT = spec.TTFTTargets{
	Interactive: spec.Duration(time.Second), Standard: spec.Duration(2 * time.Second), Batch: spec.Duration(30 * time.Second),
}

func (o *SchedulingPolicy) retryBudget() float64 {
	if b := o.Spec.Routing.RetryBudget; b > 0 {
		return b
	}
	return defaultRetryBudget
}

// kvOvercommit is how much of a worker's KV cache may be reserved, as a factor of its size.
func (o *SchedulingPolicy) kvOvercommit() float64 {
	if x := o.Spec.Routing.KVOvercommit; x > 0 {
		return x
	}
	return defaultKVOvercommit
}

// TTFTTarget is the target time to first token of a model and class.
func (o *SchedulingPolicy) TTFTTarget(model string, c spec.Class) time.Duration {
	if m := o.Spec.FindModel(model); m != nil {
		if d := m.TTFT.ForClass(c); d > 0 {
			return d
		}
	}
	return defaultTTFT.ForClass(c)
}

func (o *SchedulingPolicy) maxOutputTokens(model string) int64 {
	if m := o.Spec.FindModel(model); m != nil && m.MaxOutput > 0 {
		return int64(m.MaxOutput)
	}
	return defaultMaxOutputTokens
}

// BytesPerToken is the mean length of a model's tokens in bytes of text, for estimates before an engine has counted.
func (o *SchedulingPolicy) BytesPerToken(model string) float64 {
	if m := o.Spec.FindModel(model); m != nil && m.BytesPerToken > 0 {
		return m.BytesPerToken
	}
	return 4
}

// maxContextTokens is the spec's bound of a model's context, in tokens; 0 when there is none.
func (o *SchedulingPolicy) maxContextTokens(model string) int64 {
	if m := o.Spec.FindModel(model); m != nil {
		return int64(m.MaxContext)
	}
	return 0
}

// isDrained reports whether a path is drained completely now.
func (o *SchedulingPolicy) isDrained(region, zone, worker string, now time.Time) bool {
	return o.drainShare(region, zone, worker, now) <= 0
}

// drainShare is the share of new traffic that drains leave to a path now; 1 without a drain. The path is the zone when worker
// is empty. For a worker only its own drains count, not those of the zone.
func (o *SchedulingPolicy) drainShare(region, zone, worker string, now time.Time) float64 {
	share := 1.0
	for i := range o.Drains {
		d := &o.Drains[i]
		r, z, w, err := spec.ParseDrain(d.Path)
		if err != nil || r != region {
			continue
		}
		if worker == "" && w == "" && (z == "" || z == zone) || worker != "" && z == zone && w == worker {
			share = min(share, d.trafficShare(now))
		}
	}
	return share
}

// queueConfig is the queue configuration of a model by the spec; fields that base sets win.
func (o *SchedulingPolicy) queueConfig(model string, base queue.Config) queue.Config {
	s := &o.Spec.Routing.Queue
	c := base
	c.MaxItems = orDefault(c.MaxItems, s.MaxRequests)
	c.MaxBytes = orDefault(c.MaxBytes, s.MaxBytes)
	c.ClassShare = orDefault(c.ClassShare, s.ClassShares.ByClass())
	c.TenantShare = orDefault(c.TenantShare, s.TenantShare)
	c.Weights = orDefault(c.Weights, s.Weights.ByClass())
	c.Aging = orDefault(c.Aging, time.Duration(s.Aging))
	c.ShedFrom = orDefault(c.ShedFrom, s.ShedFrom)
	for k := range spec.Class(spec.NumClasses) {
		c.Targets[k] = orDefault(c.Targets[k], o.TTFTTarget(model, k))
	}
	return c
}

// healthConfig is the health configuration by the spec; fields that base sets win.
func (o *SchedulingPolicy) healthConfig(base health.Config) health.Config {
	s := &o.Spec.Routing.Health
	c := base
	c.Failures = orDefault(c.Failures, s.Failures)
	c.Backoff = orDefault(c.Backoff, time.Duration(s.Backoff))
	c.MaxBackoff = orDefault(c.MaxBackoff, time.Duration(s.MaxBackoff))
	c.Quarantine = orDefault(c.Quarantine, time.Duration(s.Quarantine))
	c.SlowStart = orDefault(c.SlowStart, time.Duration(s.SlowStart))
	c.Stall = orDefault(c.Stall, time.Duration(s.Stall))
	c.WarmUp = c.WarmUp || s.WarmUp == nil || *s.WarmUp
	c.MaxEjected = orDefault(c.MaxEjected, s.MaxEjected)
	c.Panic = orDefault(c.Panic, s.Panic)
	c.ErrorRate = orDefault(c.ErrorRate, s.ErrorRate)
	c.SlowFactor = orDefault(c.SlowFactor, s.SlowFactor)
	return c
}

// defaultDrainDeadline is the drain deadline where the spec sets none.
const defaultDrainDeadline = 10 * time.Minute

// drainDeadline is how long answers of a drained or removed worker may continue.
func (o *SchedulingPolicy) drainDeadline() time.Duration {
	return orDefault(time.Duration(o.Spec.Routing.Health.DrainDeadline), defaultDrainDeadline)
}

// orDefault returns v, or def when v is the zero value.
func orDefault[T comparable](v, def T) T {
	var zero T
	if v != zero {
		return v
	}
	return def
}

// autoscaleConfig is the autoscaling configuration of a model by the spec.
func (o *SchedulingPolicy) autoscaleConfig(model string) autoscale.Config {
	m := o.Spec.FindModel(model)
	if m == nil {
		return autoscale.Config{Min: 1}
	}
	a := &m.Autoscaling
	return autoscale.Config{
		TargetUse: a.Target, Min: max(a.MinReplicas(), m.WarmReplicas), Max: a.Max,
		Lead: time.Duration(a.ColdStart), Window: time.Duration(a.ScaleDownAfter),
	}
}

// tenantWeight is a tenant's weight when tenants share a busy model; 0 means the default weight.
func (o *SchedulingPolicy) tenantWeight(tenant string) float64 {
	if t := o.Spec.FindTenant(tenant); t != nil {
		return t.Weight
	}
	return 0
}

// prefixOwner is the name under which a tenant's prefixes are indexed: its own, unless the spec puts it in a group.
func (o *SchedulingPolicy) prefixOwner(tenant string) string {
	return o.Spec.PrefixOwner(tenant)
}

const (
	hashKeyPrefixBytes = 1024 // bytes of the prompt that are hashed
	maxHashKeyBytes    = 1024 // bytes of a header value that are hashed
)

// computeHashKey returns the affinity key of the policy consistent_hash. By the spec it is derived from the session,
// the tenant, a header or the beginning of the prompt. A request without the named value uses the beginning of its
// prompt. All instances of a zone compute the same key. Tenants do not share keys, except for prompt prefixes inside
// a prefix group.
func (o *SchedulingPolicy) computeHashKey(v *Request) uint64 {
	seed := blockhash.DeriveSeed(0, v.Tenant, v.Model)
	if o.Spec.Routing.HashKey == spec.HashKeyTenant {
		return pick.HashAffinityKey(seed, v.Tenant)
	}
	if text := v.AffinityText; text != "" {
		return pick.HashAffinityKey(seed, text[:min(len(text), maxHashKeyBytes)])
	}
	if len(v.Envelope.Prompt) == 0 {
		return 0
	}
	seed = blockhash.DeriveSeed(0, o.prefixOwner(v.Tenant), v.Model)
	return pick.HashAffinityKeyBytes(seed, v.Envelope.Prompt[:min(len(v.Envelope.Prompt), hashKeyPrefixBytes)])
}
