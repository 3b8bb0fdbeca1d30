package snapshot

import (
	"time"

	"github.com/spillway-lb/spillway/global/liveness"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// Builder builds one snapshot after another and keeps what outlives them: the compiled table, the measured RTTs, the
// time of the last change and the isolation guard. The zero value is ready for use.
type Builder struct {
	// MaxMeasurementAge is how long an RTT that gateways measured is used; negative: steering uses distance only.
	MaxMeasurementAge time.Duration

	table     *steer.Table
	tableKey  tableKey
	rtts      *RTTEstimates
	changes   ChangeTracker
	isolation liveness.IsolationGuard
	silent    bool
}

// tableKey identifies what a table was compiled from.
type tableKey struct {
	policy *SteeringPolicy
	geo    *steer.Geography
	plan   *steer.Plan
}

// NeedsRTTs reports whether the RTTs are to be evaluated again: every RTTRefreshInterval, for each new policy, and at
// once when another region reports RTTs. Otherwise a node that has just started would steer by distance for a whole
// interval.
func (b *Builder) NeedsRTTs(f *SteeringPolicy, children *capacity.CapacityView, now time.Time) bool {
	return b.rtts == nil || b.rtts.Policy != f || now.Sub(b.rtts.MadeAt) >= RTTRefreshInterval || CountMeasuringRegions(children) > b.rtts.MeasuringRegions
}

// RefreshRTTs blends measured RTTs into the policy's priors. measuring is the number of regions that have reported
// RTTs. If the result hardly differs from the last one, the geography stays, and with it tables and answers.
func (b *Builder) RefreshRTTs(f *SteeringPolicy, all []RegionRTTs, measuring int, now time.Time) {
	next := blendRTTs(f, all, b.MaxMeasurementAge, now)
	next.MeasuringRegions = measuring
	if b.rtts != nil && !next.DiffersFrom(b.rtts) {
		next.Geo = b.rtts.Geo
	}
	b.rtts = next
}

// BuildNext builds the next snapshot. led is true while a leader is known. plan is the plan in force, nil if there is
// none. RefreshRTTs must have been called for the policy.
func (b *Builder) BuildNext(in Inputs, plan *steer.Plan, led bool) *SteeringSnapshot {
	if key := (tableKey{in.Policy, b.rtts.Geo, plan}); b.table == nil || key != b.tableKey {
		b.table, b.tableKey = steer.RecompileTable(b.table, in.Policy.Spec, b.rtts.Geo, plan), key
	}
	b.suppressSilence(&in, plan, led)
	in.Changes = &b.changes
	v := NewSteeringSnapshot(in)
	v.SetRTTs(b.rtts)
	v.Plan, v.Table = plan, b.table
	return v
}

// suppressSilence adds the regions to the votes whose silence at this node proves nothing.
func (b *Builder) suppressSilence(in *Inputs, plan *steer.Plan, led bool) {
	regions := in.Policy.RegionNames()
	b.isolation.SeedFromPlan(regions, plan, in.Now)
	silent := b.isolation.SuppressRegions(regions, in.Children, led, in.Now)
	b.silent = b.isolation.IsIsolated() || !silent.IsEmpty()
	in.Votes.AddSuppressed(regions, silent)
}

// IsSilenceSuppressed reports whether missing summaries proved nothing when the last snapshot was built.
func (b *Builder) IsSilenceSuppressed() bool { return b.silent }

// While a drain or a failover is under way, answers have a shorter TTL, so that clients move back soon if the change
// is reverted. The short TTL ends changeWindow after the last change: a region that stays drained for weeks must not
// cost extra queries for weeks.
const (
	changeWindow    = 5 * time.Minute
	shortTTLDivisor = 4 // divides the TTL
	minShortTTL     = 5 // seconds: below that, shorter TTLs only add queries
)

// ChangeTracker keeps when a region was last drained, lost or restored.
type ChangeTracker struct {
	drained, unreachableByAll steer.RegionSet
	initialized               bool
	changedAt                 time.Time
}

// trackChanges reports whether a drain or a failover is under way. A node's first snapshot is not a change.
func (c *ChangeTracker) trackChanges(drained, gone steer.RegionSet, now time.Time) bool {
	if c.initialized && (drained != c.drained || gone != c.unreachableByAll) {
		c.changedAt = now
	}
	c.initialized, c.drained, c.unreachableByAll = true, drained, gone
	return !c.changedAt.IsZero() && now.Sub(c.changedAt) < changeWindow
}
