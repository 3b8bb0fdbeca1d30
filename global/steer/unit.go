package steer

import "math"

// missingModelCost is the cost per part of its demand for which a region has no worker: a hop to a peer region.
const missingModelCost = 0.15 // seconds

// epsShare is the smallest part of a unit or of a rate that is placed.
const epsShare = 1e-6

// demandUnit is the demand of one cell for one service. It may be split over regions, but every part has the same mix
// of models, because a DNS answer is given before the model is known.
type demandUnit struct {
	service       *serviceView
	cell          *Cell // nil when the location is unknown
	demands       []modelDemand
	totalRate     float64        // tokens/s, without the canary's part
	baseCosts     []float64      // seconds by region without wait, +Inf where it may not go
	costs         []float64      // seconds by region with wait and hops, +Inf where nothing serves it
	current       []float64      // 0..1 by region under the plan in force; nil without a comparable plan
	shares        []float64      // 0..1 by region, the result
	withoutRoom   float64        // 0..1, the part for which no region has room
	class         int32          // see SolverMemory
	heavyNetworks []heavyNetwork // networks with a large part of its demand
	currentRow    *CellRow       // of the plan in force, in the spec's regions; nil: none
	fixed         bool           // its region does not depend on other demand
}

// modelDemand is the part of a unit's demand for one model.
type modelDemand struct {
	model int
	rate  float64 // tokens/s
}

// setCosts sets the unit's cost in each region.
func (u *demandUnit) setCosts(index *fleetIndex, capacity *capacityTable) {
	n := len(index.regions)
	three := make([]float64, 3*n)
	u.shares, u.baseCosts, u.costs = three[:n], three[n:2*n], three[2*n:]
	for r := range u.costs {
		u.baseCosts[r] = math.Inf(1)
		if u.service.open.Has(r) {
			u.baseCosts[r] = u.service.bias[r]
			if u.cell != nil {
				u.baseCosts[r] += u.cell.regionRTT(r) * rttStretch(&index.regions[r])
			}
		}
		u.costs[r] = u.costWithWait(r, capacity.supplies[r])
	}
}

// costWithWait is the unit's cost in region r, in seconds: RTT with the operator's stretch, bias, wait, and a hop for
// models that the region lacks.
func (u *demandUnit) costWithWait(r int, supplies []supply) float64 {
	c := u.baseCosts[r]
	if math.IsInf(c, 1) {
		return c
	}
	served := 0.0
	for _, n := range u.demands {
		if s := &supplies[n.model]; s.totalRate > 0 {
			served += n.rate
			c += s.delayCost(u.service.PrefixTokens) * n.rate / u.totalRate
		}
	}
	if served == 0 {
		return math.Inf(1)
	}
	return c + missingModelCost*max(0, 1-served/u.totalRate)
}

// isUnservable reports whether no region can serve any of the unit.
func (u *demandUnit) isUnservable() bool {
	for _, c := range u.costs {
		if !math.IsInf(c, 1) {
			return false
		}
	}
	return true
}

// nearestRegion is the open region with the lowest RTT plus bias, or -1.
func (u *demandUnit) nearestRegion() int { return cheapestIndex(u.baseCosts) }

// demandFor is the unit's demand for model k, in tokens/s.
func (u *demandUnit) demandFor(k int) float64 {
	lo, hi := 0, len(u.demands)
	for lo < hi {
		mid := (lo + hi) / 2
		if u.demands[mid].model < k {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(u.demands) && u.demands[lo].model == k {
		return u.demands[lo].rate
	}
	return 0
}

// canStay reports whether every region that has part of the unit may keep it.
func (u *demandUnit) canStay() bool {
	for r, f := range u.current {
		if f > 0 && math.IsInf(u.costs[r], 1) {
			return false
		}
	}
	return isPlaced(u.current)
}

// keptShare is the part of the unit that region r has and may keep.
func (u *demandUnit) keptShare(r int) float64 {
	if math.IsInf(u.costs[r], 1) {
		return 0
	}
	return u.current[r]
}

// limitToSlew moves the unit only as far as the slowest of its gaining regions permits. A unit whose region is gone
// is not limited.
func (u *demandUnit) limitToSlew(hold []float64) {
	part := 1.0
	for r, f := range u.shares {
		if f > u.current[r]+epsShare {
			part = math.Min(part, hold[r])
		}
	}
	if part >= 1 || !u.canStay() {
		return
	}
	for r, f := range u.shares {
		u.shares[r] = u.current[r] + part*(f-u.current[r])
	}
}

// serviceDemand is the demand of all units of a service, in tokens/s by model.
func serviceDemand(units []demandUnit, svc *serviceView) []float64 {
	out := make([]float64, len(svc.serves))
	for i := range units {
		if u := &units[i]; u.service == svc {
			for _, n := range u.demands {
				out[n.model] += n.rate
			}
		}
	}
	return out
}

func isPlaced(shares []float64) bool {
	for _, f := range shares {
		if f > 0 {
			return true
		}
	}
	return false
}

// movedShare is the fraction of a unit that moves to another region.
func movedShare(from, to []float64) float64 {
	sum := 0.0
	for r := range to {
		sum += math.Max(0, to[r]-from[r])
	}
	return sum
}

func cheapestIndex(cost []float64) int {
	best, least := -1, math.Inf(1)
	for r, c := range cost {
		if c < least {
			best, least = r, c
		}
	}
	return best
}

// allInRegion is the shares of a unit that goes to region r; nil for -1.
func allInRegion(r, regions int) []float64 {
	if r < 0 {
		return nil
	}
	out := make([]float64, regions)
	out[r] = 1
	return out
}
