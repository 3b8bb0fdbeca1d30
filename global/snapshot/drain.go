package snapshot

import (
	"time"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

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
