package snapshot

import (
	"net/netip"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/global/liveness"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// SteeringSnapshot is the state of the regions and the plan at one moment. It is immutable once it is published.
type SteeringSnapshot struct {
	*SteeringPolicy
	Geo              *steer.Geography // the policy's priors, or blended with measurements
	RTTs             *RTTEstimates    // nil: no measurements
	MadeAt           time.Time
	Plan             *steer.Plan // nil: none yet
	Table            *steer.Table
	Children         *capacity.CapacityView
	Votes            *liveness.Votes
	WallShift        time.Duration // what to add to MadeAt for the time by which drains end
	Drains           []PathDrain
	Regions          []Region
	Drained          steer.RegionSet
	Draining         steer.RegionSet   // a drain of the region is under way and not complete
	DrainRemaining   []uint8           // by region, see steer.PickQuery; nil: no drain is under way
	Unavailable      []steer.RegionSet // by service: lost, or without a worker for it while others have one
	UnreachableByAll steer.RegionSet   // not reached by this node or any other
	RecentlyChanged  bool              // a drain or a failover is under way
	Unreachable      steer.RegionSet   // not reached by this node
	Dead             steer.RegionSet   // not reached by a majority of nodes: excluded from plans
}

// WallTime returns the wall time at which the snapshot was made, by which drains end: the node's clock, less its
// error while it is wrong.
func (v *SteeringSnapshot) WallTime() time.Time { return v.MadeAt.Add(v.WallShift) }

// BuildQuery returns the query for a client of a service. barred are regions that the client may not be sent to.
func (v *SteeringSnapshot) BuildQuery(service int, cell int32, client netip.Addr, barred steer.RegionSet) steer.PickQuery {
	return steer.PickQuery{
		Service: service, Cell: cell, Key: steer.NetworkKey(client),
		Drained: v.Drained, Unavailable: v.Unavailable[service], Excluded: barred, DrainRemaining: v.DrainRemaining,
	}
}

// PickRegion picks the region for a client of a service.
func (v *SteeringSnapshot) PickRegion(service int, cell int32, client netip.Addr, barred steer.RegionSet) steer.Choice {
	q := v.BuildQuery(service, cell, client, barred)
	return v.Table.PickRegion(&q)
}

// ExcludedRegions returns the regions that a tenant's residency forbids; nil tenant: none.
func (v *SteeringSnapshot) ExcludedRegions(t *spec.Tenant) steer.RegionSet {
	var out steer.RegionSet
	if t == nil {
		return out
	}
	for r := range v.Spec.Regions {
		if !v.Spec.PermitsRegion(t, &v.Spec.Regions[r]) {
			out.Add(r)
		}
	}
	return out
}

// RegionStateName returns the name of a region's state: the first that keeps clients away.
func (v *SteeringSnapshot) RegionStateName(region int) string {
	r := &v.Regions[region]
	switch {
	case r.Drained:
		return "draining"
	case !r.HasReport():
		return "unknown"
	}
	return r.Group.State.String()
}

// IsSettled returns false while a node has not been up for long enough to treat a missing summary as a loss.
func (v *SteeringSnapshot) IsSettled(up time.Duration) bool {
	if up > StartupGrace {
		return true
	}
	for r := range v.Regions {
		if !v.Regions[r].HasReport() {
			return false
		}
	}
	return true
}

// FindPeerOnlyRegion returns a region that has never reported capacity to this node while others reach it: a plan
// made without it would move its clients away. Empty if there is none. single marks a region that only one other node
// reaches and that the plan in force does not use: it has no clients to lose, and the other node may be wrong.
func (v *SteeringSnapshot) FindPeerOnlyRegion() (region string, single bool) {
	for r := range v.Regions {
		x := &v.Regions[r]
		if x.HasReport() || !x.IsUnreachable() || x.IsDead() || len(x.ReachedBy) == 0 {
			continue
		}
		region = v.Spec.Regions[r].Name
		if single = len(x.ReachedBy) == 1 && v.Plan != nil && slices.Contains(v.Plan.Without, region); !single {
			return region, false
		}
	}
	return region, single
}

// CountObservers counts the nodes that reach a region.
func (v *SteeringSnapshot) CountObservers(region int) int {
	n := len(v.Votes.ReportersOf(v.Spec.Regions[region].Name))
	if v.Regions[region].HasReport() && !v.Regions[region].IsUnreachable() {
		n++
	}
	return n
}

// RegionsWithoutModel returns the regions without a ready worker for the model, if any other permitted region has
// one.
func (v *SteeringSnapshot) RegionsWithoutModel(service int, model string, barred *steer.RegionSet) (out steer.RegionSet) {
	if model == "" {
		return out
	}
	some := false
	for r := range v.Regions {
		if _, ready := v.ModelWait(r, service, model); ready {
			some = some || !barred.Has(r)
		} else {
			out.Add(r)
		}
	}
	if !some {
		return steer.RegionSet{}
	}
	return out
}

// ModelWait returns a region's wait for a model, or for the fastest target of an alias, in seconds; for the whole
// service if the model is empty.
func (v *SteeringSnapshot) ModelWait(region, service int, model string) (wait float64, ready bool) {
	if model == "" {
		return v.Regions[region].Waits[service], true
	}
	names := append(AliasTargets(v.Spec, model), model)
	for _, name := range names {
		m := v.Regions[region].Group.Summary.FindModel(name)
		if m == nil {
			continue
		}
		if w, ok := m.PredictWait(spec.Standard); ok && (!ready || w.Seconds() < wait) {
			wait, ready = w.Seconds(), true
		}
	}
	return wait, ready
}

// AnswerTTL returns the TTL of a service's answer in seconds.
func (v *SteeringSnapshot) AnswerTTL(service int) uint32 {
	t := v.TTLs[service]
	if v.RecentlyChanged {
		return max(t/shortTTLDivisor, min(t, minShortTTL))
	}
	return t
}

// PathDrain moves the traffic of a region, zone or worker elsewhere.
type PathDrain struct {
	Path  string        // "region", "region/zone" or "region/zone/worker"
	Until time.Time     // when it ends by itself; zero: when an operator removes it
	At    time.Time     // when it began
	Over  time.Duration // the time over which traffic leaves, from At on; 0: it leaves at once
}

// drainShare returns the share of new traffic that a drain of the path leaves at now; 1 without a drain.
func drainShare(drains []PathDrain, path string, now time.Time) float64 {
	for i := range drains {
		if d := &drains[i]; d.Path == path && (d.Until.IsZero() || now.Before(d.Until)) {
			return spec.DrainShare(d.At, d.Over, now)
		}
	}
	return 1
}

// IsRegionDrained reports whether a region, or each of its zones, is completely drained.
func IsRegionDrained(drains []PathDrain, r *spec.Region, now time.Time) bool {
	if len(drains) == 0 {
		return false
	}
	if IsDrained(drains, r.Name, now) {
		return true
	}
	for _, zone := range r.Zones {
		if !IsDrained(drains, r.Name+"/"+zone, now) {
			return false
		}
	}
	return len(r.Zones) > 0
}

// IsDrained reports whether a path is completely drained at now.
func IsDrained(drains []PathDrain, path string, now time.Time) bool {
	return drainShare(drains, path, now) <= 0
}

// IsForcedByDrain reports whether a drain sends the client to a region that would not be picked without it, and
// whether that depends on the client (split).
func (v *SteeringSnapshot) IsForcedByDrain(q *steer.PickQuery, region int) (forced, split bool) {
	if v.Drained.IsEmpty() && v.Draining.IsEmpty() {
		return false, false
	}
	open := *q
	open.Drained, open.DrainRemaining = steer.RegionSet{}, nil
	c := v.Table.PickRegion(&open)
	return c.Region != region, c.Split
}
