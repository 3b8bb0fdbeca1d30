package steer

import (
	"math"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// damping limits what one plan may change. Each limit is a fraction, 0..1.
type damping struct {
	deadBand float64 // of the cost: smaller savings do not justify a plan
	minShift float64 // of a unit: smaller moves are not made
	maxStep  float64 // of a unit: the most that a region may gain
	slew     float64 // of a region's capacity: the most that its load may gain
}

func newDamping(s *spec.Steering) damping {
	interval := time.Duration(s.Interval).Seconds()
	if !(interval > 0) {
		interval = 1
	}
	return damping{
		deadBand: shareOrDefault(s.DeadBand, 0.05), minShift: shareOrDefault(s.MinShift, 0.02),
		maxStep: shareOrDefault(s.MaxStep, 0.25), slew: shareOrDefault(s.Slew, 0.25) * interval,
	}
}

// shareOrDefault returns a share that the spec sets, or its default.
func shareOrDefault(v, def float64) float64 {
	if v > 0 && v <= 1 {
		return v
	}
	return def
}

// encodableShares is the unit's target as a row can encode it: without very small parts, in whole weights, and
// without changes below the least shift. The comparison of plans uses it, so that no gain is counted that a plan
// cannot encode.
func (d *damping) encodableShares(u *demandUnit) []float64 {
	if !isPlaced(u.shares) {
		return u.shares
	}
	_, out := u.buildRow(u.shares)
	if u.current != nil && u.canStay() && movedShare(u.current, out) < d.minShift {
		return u.current
	}
	return out
}

// dampShares limits every unit to the largest step, and every region to its slew limit.
func (d *damping) dampShares(units []demandUnit, capacity *capacityTable) {
	gain := make([]float64, len(capacity.supplies))
	for i := range units {
		u := &units[i]
		if u.current == nil {
			continue
		}
		u.shares = d.limitStep(u)
		for r, f := range u.shares {
			gain[r] += math.Max(0, f-u.keptShare(r)) * u.totalRate
		}
	}
	hold := make([]float64, len(gain)) // 0..1, the fraction of its gain that a region may take now
	for r := range hold {
		room := 0.0
		for m := range capacity.supplies[r] {
			room += capacity.supplies[r][m].totalRate
		}
		if hold[r] = 1; gain[r] > room*d.slew {
			hold[r] = room * d.slew / gain[r]
		}
	}
	for i := range units {
		if u := &units[i]; u.current != nil {
			u.limitToSlew(hold)
		}
	}
}

// limitStep moves from the unit's current shares toward its target as far as no region gains more than the largest
// step. The part of a region that can no longer serve goes to its target at once.
func (d *damping) limitStep(u *demandUnit) []float64 {
	held, kept := make([]float64, len(u.current)), 0.0
	for r := range held {
		held[r] = u.keptShare(r)
		kept += held[r]
	}
	gain := 0.0
	for r, f := range u.shares {
		held[r] += (1 - kept) * f
		gain = math.Max(gain, f-held[r])
	}
	part := 1.0
	if gain > d.maxStep {
		part = d.maxStep / gain
	}
	out := make([]float64, len(u.shares))
	for r, f := range u.shares {
		out[r] = held[r] + part*(f-held[r])
	}
	return out
}
