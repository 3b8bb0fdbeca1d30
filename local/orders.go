package local

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local/pick"
)

// orders are what is in force from above, immutable: replaced as a whole by a newer directive.
type orders struct {
	generation  uint64
	index       uint64
	specVersion uint64
	planEpoch   uint64
	spec        *spec.Spec // never nil
	text        []byte     // that spec was decoded from
	policy      pick.Policy
	drains      []uplink.Drain
	kept        time.Time // when it was written to disk; zero unless it was read there
	prefixSeed  uint64    // of the hashes in sketches; 0: none are made
}

// Defaults where the spec says nothing about a model or about routing.
const (
	defaultMaxOutput   = 1024
	defaultMaxBody     = 8 << 20
	defaultRetryBudget = 0.1
	defaultOvercommit  = 1.2
)

var defaultTTFT = spec.Targets{
	Interactive: spec.Duration(time.Second), Standard: spec.Duration(2 * time.Second), Batch: spec.Duration(30 * time.Second),
}

func firstOrders(cfg Config) *orders {
	return makeOrders(cfg, &uplink.Directive{}, cfg.Spec)
}

// makeOrders turns a directive into orders. An override of the policy in the configuration wins.
func makeOrders(cfg Config, d *uplink.Directive, s *spec.Spec) *orders {
	if s == nil {
		s = &spec.Spec{}
	}
	o := &orders{generation: d.Generation, index: d.Index, specVersion: d.SpecVersion, planEpoch: d.PlanEpoch, spec: s, text: d.Spec, drains: d.Drains, prefixSeed: d.PrefixSeed, kept: d.Kept}
	name := cfg.Policy
	if name == "" {
		name = s.Routing.Policy
	}
	if p, err := pick.ParsePolicy(name); err == nil {
		o.policy = p
	}
	return o
}

func (o *orders) maxBody() int64 {
	if n := o.spec.Routing.MaxBody; n > 0 {
		return n
	}
	return defaultMaxBody
}

func (o *orders) retryBudget() float64 {
	if b := o.spec.Routing.RetryBudget; b > 0 {
		return b
	}
	return defaultRetryBudget
}

// overcommit is how much of a worker's KV cache may be promised, as a factor.
func (o *orders) overcommit() float64 {
	if x := o.spec.Routing.KVOvercommit; x > 0 {
		return x
	}
	return defaultOvercommit
}

// ttft is the target time to first token of a model and class.
func (o *orders) ttft(model string, c spec.Class) time.Duration {
	if m := o.spec.ModelNamed(model); m != nil {
		if d := m.TTFT.Of(c); d > 0 {
			return d
		}
	}
	return defaultTTFT.Of(c)
}

func (o *orders) maxOutput(model string) int64 {
	if m := o.spec.ModelNamed(model); m != nil && m.MaxOutput > 0 {
		return int64(m.MaxOutput)
	}
	return defaultMaxOutput
}

func (o *orders) bytesPerToken(model string) float64 {
	if m := o.spec.ModelNamed(model); m != nil && m.BytesPerToken > 0 {
		return m.BytesPerToken
	}
	return 4
}

// maxContext is the operator's own bound; 0 when there is none.
func (o *orders) maxContext(model string) int64 {
	if m := o.spec.ModelNamed(model); m != nil {
		return int64(m.MaxContext)
	}
	return 0
}

// drained says whether a path is drained now: the zone when worker is empty, or one worker, by itself.
func (o *orders) drained(region, zone, worker string, now time.Time) bool {
	for i := range o.drains {
		d := &o.drains[i]
		if !d.Until.IsZero() && !now.Before(d.Until) {
			continue
		}
		r, z, w, err := spec.ParseDrain(d.Path)
		if err != nil || r != region {
			continue
		}
		if worker == "" && w == "" && (z == "" || z == zone) || worker != "" && z == zone && w == worker {
			return true
		}
	}
	return false
}
