package steer

import (
	"math"
	"slices"
)

// publisher compares the computed shares with the plan in force and decides whether a new plan is worth it.
type publisher struct {
	index    *fleetIndex
	prev     *Plan // nil: none
	capacity *capacityTable
	units    []demandUnit
	damping  damping
}

// decidePublish damps the computed shares and decides whether the plan is worth publishing.
func (p *publisher) decidePublish(next *Plan) SolveResult {
	for i := range p.units {
		if u := &p.units[i]; !u.fixed && u.cell != nil {
			u.shares = p.damping.encodableShares(u)
		}
	}
	res := SolveResult{Plan: next, Reason: "first"}
	var pure float64
	if res.Cost, pure = p.meanCost(func(u *demandUnit) []float64 { return u.shares }); p.prev == nil {
		addRows(newPlanView(p.index, next), p.units)
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
	if !res.Publish {
		res.Plan = p.prev
		return res
	}
	if res.Reason != "spec" && !hasNewlyExcluded(p.prev.Without, next.Without) {
		p.damping.dampShares(p.units, p.capacity)
	}
	addRows(newPlanView(p.index, next), p.units)
	if isSamePlan(p.prev, next) { // for example when more cells need a row than a plan may have
		res.Plan, res.Publish, res.Reason = p.prev, false, "dead_band"
	}
	return res
}

// publishReason is the reason to publish the next plan, empty for none. gain is the saving and pure the cost without
// the operator's bias, in seconds.
func (p *publisher) publishReason(next *Plan, gain, pure float64) string {
	prev := p.prev
	switch {
	case prev.SpecVersion != next.SpecVersion:
		return "spec"
	case !slices.Equal(prev.Without, next.Without):
		return "regions"
	case !slices.Equal(prev.Ramp, next.Ramp):
		return "ramp"
	case gain > p.damping.deadBand*math.Max(pure, minComparedCost):
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

// meanCost is the demand-weighted cost per token, in seconds, including the price of capacity and of unserved demand;
// pure is the part without the operator's bias.
func (p *publisher) meanCost(shares func(*demandUnit) []float64) (cost, pure float64) {
	load := p.capacity.regionLoads(p.units, shares)
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
				bent += u.totalRate * f * u.service.bias[r]
			}
			sum += u.totalRate * f * c
			if u.current != nil {
				move += math.Max(0, f-u.current[r])
			}
		}
		if move > 0 {
			for _, n := range u.demands {
				sum += move * n.rate * p.capacity.moveCost(u.service.SessionTokens, n.model)
			}
		}
	}
	for r := range load {
		for m, l := range load[r] {
			if s := &p.capacity.supplies[r][m]; s.totalRate > 0 {
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
