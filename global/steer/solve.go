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
	p.placeFixed()
	p.readCurrentShares()
	worth := p.placeDemand()
	return p.decidePublish(p.buildPlanWithoutRows(p.servicePrices(worth)))
}
