package steer

import "math"

// planView is a plan with its regions mapped to those of the spec.
type planView struct {
	plan     *Plan
	toSpec   []int // by region of the plan: index in the spec, -1 for a region that is gone
	fromSpec []int // by region of the spec: index in the plan, -1 for a region that it does not list
}

// newPlanView returns nil for no plan.
func newPlanView(index *fleetIndex, plan *Plan) *planView {
	if plan == nil {
		return nil
	}
	both := make([]int, len(index.regions)+len(plan.Regions))
	v := &planView{plan: plan, fromSpec: both[:len(index.regions)], toSpec: both[len(index.regions):]}
	for r := range v.fromSpec {
		v.fromSpec[r] = -1
	}
	for k, name := range plan.Regions {
		v.toSpec[k] = index.findRegion(name)
		if r := v.toSpec[k]; r >= 0 {
			v.fromSpec[r] = k
		}
	}
	return v
}

// readCurrentShares sets where each unit with a choice goes under the plan.
func (v *planView) readCurrentShares(units []demandUnit) {
	for i := range units {
		if u := &units[i]; !u.fixed && u.cell != nil && !u.isUnservable() {
			u.current = v.currentShares(u)
		}
	}
}

// currentShares is where the unit goes under the plan: its row, or the region that PickRegion finds. It also sets the
// unit's row and the regions of its heavy networks. A region that the plan excluded has no clients yet.
func (v *planView) currentShares(u *demandUnit) []float64 {
	out := make([]float64, len(u.shares))
	svc := v.plan.FindService(u.service.Name)
	if svc == nil {
		return nil
	}
	if row := svc.findRow(u.cell.Name); row != nil {
		if mine, ok := row.inSpecRegions(v.toSpec); ok {
			u.currentRow = &mine
			return u.settleNetworks(&mine, hashString(svc.Name))
		}
		for _, s := range row.Shares {
			if r := v.toSpec[s.Region]; r >= 0 {
				out[r] = float64(s.Weight) / WeightSum
			}
		}
	}
	if !isPlaced(out) {
		if r := v.regionWithoutRow(u, svc); r >= 0 {
			out[r] = 1
			for i := range u.heavyNetworks {
				u.heavyNetworks[i].region = r
			}
		}
	}
	return out
}

// regionWithoutRow is the region that PickRegion finds for the unit if the plan has no row for it.
func (v *planView) regionWithoutRow(u *demandUnit, svc *ServicePlan) int {
	best, least := -1, math.Inf(1)
	for r, c := range u.baseCosts {
		k := v.fromSpec[r]
		if k < 0 || math.IsInf(c, 1) || containsName(v.plan.Without, v.plan.Regions[k]) {
			continue
		}
		if c += svc.Wait[k] + svc.Price[k]; c < least {
			best, least = r, c
		}
	}
	return best
}

// spreadShares is the plan's spread of the service's clients without a location, by region of the spec; nil when it
// has none.
func (v *planView) spreadShares(svc *serviceView) []float64 {
	p := v.plan.FindService(svc.Name)
	if p == nil || len(p.Spread) == 0 {
		return nil
	}
	out := make([]float64, len(v.fromSpec))
	for _, s := range p.Spread {
		if int(s.Region) < len(v.toSpec) {
			if r := v.toSpec[s.Region]; r >= 0 {
				out[r] = float64(s.Weight) / WeightSum
			}
		}
	}
	return out
}
