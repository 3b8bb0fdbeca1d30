package steer

import (
	"math"
	"slices"
	"time"
)

// readCurrentShares fills in where each unit goes under the plan in force.
func (p *problem) readCurrentShares() {
	prev := p.input.Prev
	if prev == nil {
		return
	}
	at := p.planRegionIndexes(prev)
	for i := range p.units {
		if u := &p.units[i]; !u.fixed && u.cell >= 0 && !u.isUnservable() {
			u.current = p.currentShares(u, prev, at)
		}
	}
}

// planRegionIndexes maps the spec's regions to a plan's; -1 for a region that the plan does not list.
func (p *problem) planRegionIndexes(plan *Plan) []int {
	out := make([]int, p.regionCount())
	for r := range out {
		out[r] = -1
	}
	for k, name := range plan.Regions {
		if r := p.findRegion(name); r >= 0 {
			out[r] = k
		}
	}
	return out
}

// currentShares is where the unit goes under the plan in force: its row, or the region that Pick finds. A region that
// the plan excluded has no clients yet.
func (p *problem) currentShares(u *demandUnit, prev *Plan, at []int) []float64 {
	out := make([]float64, p.regionCount())
	svc := prev.FindService(p.input.Spec.Services[u.service].Name)
	if svc == nil {
		return nil
	}
	if row := svc.findRow(p.input.Cells[u.cell].Name); row != nil {
		if mine, ok := row.inSpecRegions(func(r uint16) int { return p.findRegion(prev.Regions[r]) }); ok {
			u.currentRow = &mine
			return u.settleNetworks(&mine, hashString(svc.Name))
		}
		for _, s := range row.Shares {
			if r := p.findRegion(prev.Regions[s.Region]); r >= 0 {
				out[r] = float64(s.Weight) / WeightSum
			}
		}
	}
	if !isPlaced(out) {
		if r := p.regionWithoutRow(u, prev, svc, at); r >= 0 {
			out[r] = 1
			for i := range u.heavyNetworks {
				u.heavyNetworks[i].region = r
			}
		}
	}
	return out
}

// regionWithoutRow is the region that Pick finds for the unit under a plan without a row for it.
func (p *problem) regionWithoutRow(u *demandUnit, plan *Plan, svc *ServicePlan, at []int) int {
	best, least := -1, math.Inf(1)
	for r, c := range u.baseCosts {
		k := at[r]
		if k < 0 || math.IsInf(c, 1) || containsName(plan.Without, plan.Regions[k]) {
			continue
		}
		if c += svc.Wait[k] + svc.Price[k]; c < least {
			best, least = r, c
		}
	}
	return best
}

// decidePublish damps the computed shares and decides whether the plan is worth publishing.
func (p *problem) decidePublish(next *Plan) SolveResult {
	prev := p.input.Prev
	aim := func(u *demandUnit) []float64 { return u.shares }
	for i := range p.units {
		if u := &p.units[i]; !u.fixed && u.cell >= 0 {
			u.shares = p.encodableShares(u)
		}
	}
	res := SolveResult{Plan: next, Reason: "first"}
	var pure float64
	if res.Cost, pure = p.meanCost(aim); prev == nil {
		p.addRows(next)
		res.Publish = true
		return res
	}
	res.PrevCost, _ = p.meanCost(func(u *demandUnit) []float64 {
		if u.current == nil {
			return u.shares
		}
		return u.current
	})
	res.Reason = p.publishReason(next, res.PrevCost-res.Cost, pure)
	res.Publish = res.Reason != "dead_band"
	if res.Reason != "spec" && !hasNewlyExcluded(prev.Without, next.Without) {
		p.dampShares()
	}
	if res.Publish {
		p.addRows(next)
	}
	if res.Publish && isSamePlan(prev, next) { // for example when more cells need a row than a plan may have
		res.Publish, res.Reason = false, "dead_band"
	}
	if !res.Publish {
		res.Plan = prev
	}
	return res
}

// publishReason is the reason to publish the next plan, empty for none. gain is the saving and pure the cost without
// the operator's bias, in seconds.
func (p *problem) publishReason(next *Plan, gain, pure float64) string {
	prev := p.input.Prev
	switch {
	case prev.SpecVersion != next.SpecVersion:
		return "spec"
	case !slices.Equal(prev.Without, next.Without):
		return "regions"
	case !slices.Equal(prev.Ramp, next.Ramp):
		return "ramp"
	case gain > p.deadBand()*math.Max(pure, minComparedCost):
		return "gain"
	case pricesMoved(prev, next):
		return "prices"
	case spreadMoved(prev, next):
		return "spread"
	}
	return "dead_band"
}

// hasNewlyExcluded reports whether a region stopped serving: then moves are not limited, because its clients move all
// at once.
func hasNewlyExcluded(before, after []string) bool {
	for _, name := range after {
		if !slices.Contains(before, name) {
			return true
		}
	}
	return false
}

// encodableShares is the unit's target as a row can encode it: without very small parts, in whole weights, and
// without changes below the least shift. The comparison of plans uses it, so that no gain is counted that a plan
// cannot encode.
func (p *problem) encodableShares(u *demandUnit) []float64 {
	if !isPlaced(u.shares) {
		return u.shares
	}
	_, out := p.buildRow(u, u.shares)
	if u.current != nil && u.canStay() && movedShare(u.current, out) < p.minShift() {
		return u.current
	}
	return out
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

// movedShare is the fraction of a unit that moves to another region.
func movedShare(from, to []float64) float64 {
	sum := 0.0
	for r := range to {
		sum += math.Max(0, to[r]-from[r])
	}
	return sum
}

// isSamePlan reports whether two plans are equal in effect.
func isSamePlan(prev, next *Plan) bool {
	return prev.SpecVersion == next.SpecVersion && slices.Equal(prev.Without, next.Without) && slices.Equal(prev.Ramp, next.Ramp) &&
		areServicesAlike(prev, next, func(a, b *ServicePlan) bool {
			return slices.Equal(a.Wait, b.Wait) && slices.Equal(a.Price, b.Price) && slices.Equal(a.Spread, b.Spread) &&
				slices.EqualFunc(a.Rows, b.Rows, func(x, y CellRow) bool {
					return x.Cell == y.Cell && slices.Equal(x.Shares, y.Shares) && slices.Equal(x.Pins, y.Pins)
				})
		})
}

// minComparedCost is the lowest cost, in seconds, that gains are related to: a bias can make the cost 0 or negative.
const minComparedCost = 0.001

func (p *problem) deadBand() float64 { return shareOrDefault(p.input.Spec.Steering.DeadBand, 0.05) }
func (p *problem) maxStep() float64  { return shareOrDefault(p.input.Spec.Steering.MaxStep, 0.25) }
func (p *problem) minShift() float64 { return shareOrDefault(p.input.Spec.Steering.MinShift, 0.02) }

// slewLimit is the fraction of a region's capacity that one plan may add to its load.
func (p *problem) slewLimit() float64 {
	every := time.Duration(p.input.Spec.Steering.Interval).Seconds()
	if !(every > 0) {
		every = 1
	}
	return shareOrDefault(p.input.Spec.Steering.Slew, 0.25) * every
}

// shareOrDefault returns a share that the spec sets, or its default.
func shareOrDefault(v, def float64) float64 {
	if v > 0 && v <= 1 {
		return v
	}
	return def
}

// dampShares limits every unit to the largest step, and every region to its slew limit.
func (p *problem) dampShares() {
	gain := make([]float64, p.regionCount())
	for i := range p.units {
		u := &p.units[i]
		if u.current == nil {
			continue
		}
		u.shares = p.limitStep(u, u.current, u.shares)
		for r, f := range u.shares {
			gain[r] += math.Max(0, f-u.keptShare(r)) * u.totalRate
		}
	}
	hold := make([]float64, p.regionCount()) // 0..1, the fraction of its gain that a region may take now
	for r := range hold {
		room := 0.0
		for m := range p.supplies[r] {
			room += p.supplies[r][m].totalRate
		}
		if hold[r] = 1; gain[r] > room*p.slewLimit() {
			hold[r] = room * p.slewLimit() / gain[r]
		}
	}
	for i := range p.units {
		if u := &p.units[i]; u.current != nil {
			u.limitToSlew(hold)
		}
	}
}

// keptShare is the part of the unit that region r has and may keep.
func (u *demandUnit) keptShare(r int) float64 {
	if math.IsInf(u.costs[r], 1) {
		return 0
	}
	return u.current[r]
}

// limitStep moves from before toward aim as far as no region gains more than the largest step. The part of a region
// that can no longer serve goes to its aim at once.
func (p *problem) limitStep(u *demandUnit, before, aim []float64) []float64 {
	held, kept := make([]float64, len(before)), 0.0
	for r := range before {
		held[r] = u.keptShare(r)
		kept += held[r]
	}
	gain := 0.0
	for r := range aim {
		held[r] += (1 - kept) * aim[r]
		gain = math.Max(gain, aim[r]-held[r])
	}
	part := 1.0
	if gain > p.maxStep() {
		part = p.maxStep() / gain
	}
	out := make([]float64, len(aim))
	for r := range aim {
		out[r] = held[r] + part*(aim[r]-held[r])
	}
	return out
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

// meanCost is the demand-weighted cost per token, in seconds, including the price of capacity and of unserved demand;
// pure is the part without the operator's bias.
func (p *problem) meanCost(shares func(*demandUnit) []float64) (cost, pure float64) {
	load := p.regionLoads(shares)
	sum, total, bent := 0.0, 0.0, 0.0
	for i := range p.units {
		u := &p.units[i]
		total += u.totalRate
		move := 0.0
		for r, f := range shares(u) {
			if f <= 0 {
				continue
			}
			c := u.costs[r]
			if math.IsInf(c, 1) {
				c = noCapacityPrice
			} else {
				bent += u.totalRate * f * p.bias[u.service][r]
			}
			sum += u.totalRate * f * c
			if u.current != nil {
				move += math.Max(0, f-u.current[r])
			}
		}
		if move > 0 {
			for _, n := range u.demands {
				sum += move * n.rate * p.moveCost(u.service, n.model)
			}
		}
	}
	for r := range load {
		for m, l := range load[r] {
			if s := &p.supplies[r][m]; s.totalRate > 0 {
				sum += s.loadCost(l) - s.loadCost(s.bookedRate)
			}
		}
	}
	if total == 0 {
		return 0, 0
	}
	return sum / total, (sum - bent) / total
}

// pricesMoved reports a change of wait or price that matters to clients without a row.
func pricesMoved(prev, next *Plan) bool {
	return !areServicesAlike(prev, next, func(a, b *ServicePlan) bool {
		for r := range b.Price {
			was, is := a.Price[r]+a.Wait[r], b.Price[r]+b.Wait[r]
			if math.Abs(is-was) > math.Max(0.025, 0.25*math.Max(is, was)) {
				return false
			}
		}
		return true
	})
}

// spreadMoved reports a region whose part of the clients without a location changed by more than five points.
func spreadMoved(prev, next *Plan) bool {
	return !areServicesAlike(prev, next, func(a, b *ServicePlan) bool {
		w := make([]int, len(next.Regions))
		for _, s := range a.Spread {
			w[s.Region] -= int(s.Weight)
		}
		for _, s := range b.Spread {
			w[s.Region] += int(s.Weight)
		}
		for _, d := range w {
			if d > WeightSum/20 || d < -WeightSum/20 {
				return false
			}
		}
		return true
	})
}

// areServicesAlike compares service by service; plans with different regions or services are not alike.
func areServicesAlike(prev, next *Plan, same func(a, b *ServicePlan) bool) bool {
	if !slices.Equal(prev.Regions, next.Regions) || len(prev.Services) != len(next.Services) {
		return false
	}
	for i := range next.Services {
		if prev.Services[i].Name != next.Services[i].Name || !same(&prev.Services[i], &next.Services[i]) {
			return false
		}
	}
	return true
}
