package steer

// SolveResult is the result of SolvePlan.
type SolveResult struct {
	// Plan is the next plan, already limited to the largest step; the one in force when Publish is false.
	Plan *Plan
	// Publish reports whether the plan is worth a change, and Reason why or why not, as a stable word: "first",
	// "spec", "regions", "ramp", "gain", "prices", "spread" or "dead_band".
	Publish bool
	Reason  string
	// Cost is the demand-weighted mean cost per token under the computed target, and PrevCost under the plan in
	// force, in seconds. Both are 0 without demand.
	Cost, PrevCost float64
}

// SolvePlan makes the next plan. Each model's demand is assigned at minimum cost to the regions' capacity, whose
// price rises as it fills; a service's clients get the mean of its models' assignments. Demand without capacity is
// spread by capacity.
func SolvePlan(in *PlanInput) SolveResult {
	p := newProblem(in)
	p.placeFixed(in.Regions)
	if prev := newPlanView(p.index, in.Prev); prev != nil {
		prev.readCurrentShares(p.units)
	}
	worth := newDemandPlacer(in, p, new(flowSolver)).placeDemand()
	next := (&planBuilder{p.index.regions, p.capacity, p.services, p.units}).buildPlan(in.SpecVersion, worth)
	out := publisher{index: p.index, prev: in.Prev, capacity: p.capacity, units: p.units, damping: newDamping(&in.Spec.Steering)}
	return out.decidePublish(next)
}

// problem is a PlanInput laid out for solving: regions, services and models by index, one unit per service and cell.
type problem struct {
	index    *fleetIndex
	capacity *capacityTable
	services []serviceView
	units    []demandUnit
}

func newProblem(in *PlanInput) *problem {
	index := newFleetIndex(in)
	capacity := newCapacityTable(in, index)
	services := newServiceViews(in.Spec, index, capacity.available)
	units := (&unitBuilder{index, in.Cells, services, capacity}).buildUnits(in.Demand)
	addHeavyNetworks(units, in.HeavyHitters)
	return &problem{index, capacity, services, units}
}

// placeFixed places the demand whose region does not depend on other demand.
func (p *problem) placeFixed(states []RegionState) {
	f := fixedPlacer{p.index, states, p.capacity, p.units}
	f.placeFixed(p.services)
}
