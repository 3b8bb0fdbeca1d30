package local

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local/batch"
	"github.com/spillway-lb/spillway/local/sched"
)

// zonePolicy is the policy in force from the last directive. It is immutable: a newer directive replaces it as a whole.
type zonePolicy struct {
	*sched.SchedulingPolicy
	generation  uint64
	index       uint64
	specVersion uint64
	planEpoch   uint64
	specText    []byte    // the text that the spec was decoded from
	persistedAt time.Time // when it was written to disk; zero unless it was read from there
}

func newInitialPolicy(cfg Config) *zonePolicy {
	return newZonePolicy(cfg, &uplink.Directive{}, cfg.Spec)
}

// newZonePolicy turns a directive into a policy. A pick policy in the configuration overrides the directive's.
func newZonePolicy(cfg Config, d *uplink.Directive, s *spec.Spec) *zonePolicy {
	return &zonePolicy{
		SchedulingPolicy: sched.NewSchedulingPolicy(s, cfg.Policy, toSchedDrains(d.Drains), d.PrefixSeed),
		generation:       d.Generation, index: d.Index, specVersion: d.SpecVersion, planEpoch: d.PlanEpoch, specText: d.Spec, persistedAt: d.PersistedAt,
	}
}

func toSchedDrains(list []uplink.ActiveDrain) []sched.ActiveDrain {
	out := make([]sched.ActiveDrain, len(list))
	for i := range list {
		d := &list[i]
		out[i] = sched.ActiveDrain{Path: d.Path, Until: d.Until, Start: d.Start, Over: d.Over}
	}
	return out
}

// defaultMaxBodyBytes bounds the body of a request where the spec does not.
const defaultMaxBodyBytes = 8 << 20

func (o *zonePolicy) maxBodyBytes() int64 {
	if n := o.Spec.Routing.MaxBody; n > 0 {
		return n
	}
	return defaultMaxBodyBytes
}

// newSchedConfig returns the configuration of the scheduler of an instance.
func newSchedConfig(cfg *Config, o *zonePolicy) sched.Config {
	rng, secret := cfg.newRandomSource()
	return sched.Config{
		Region: cfg.Region, Zone: cfg.Zone, Name: cfg.Name, Policy: o.SchedulingPolicy, Rand: rng, PrefixSecret: secret, PrefixIndex: cfg.PrefixIndex, DecisionBytes: int(cfg.DecisionBytes),
		Queue: cfg.Queue, Health: cfg.Health, ModelLoad: cfg.ModelLoad,
	}
}

// buildRouteQuery collects the request's properties that the routing rules depend on.
func (o *zonePolicy) buildRouteQuery(model string, v *zoneRequest) *modelroute.ModelQuery {
	q := &modelroute.ModelQuery{
		Model: model, Pin: forward.FirstValue(v.httpRequest.Header, forward.HeaderClientTarget), Tenant: v.Tenant, Header: v.httpRequest.Header, Chance: rand.Float64(),
		Session: forward.FirstValue(v.httpRequest.Header, forward.HeaderClientSession), User: v.Envelope.User,
	}
	if at, err := netip.ParseAddrPort(v.httpRequest.RemoteAddr); err == nil {
		q.Client = at.Addr().Unmap().String()
	}
	return q
}

// standaloneTenant is the tenant of all requests in a standalone zone; nil when its spec declares none.
func (o *zonePolicy) standaloneTenant() *spec.Tenant { return o.Spec.FindTenant(spec.DefaultTenant) }

// batchConfig returns the spec's settings for merging requests.
func (o *zonePolicy) batchConfig() batch.Config {
	b := &o.Spec.Routing.Batch
	return batch.Config{MaxSize: b.MaxSize, MaxBytes: b.MaxBytes, MaxDelay: time.Duration(b.MaxDelay), Preferred: b.PreferredSizes}
}
