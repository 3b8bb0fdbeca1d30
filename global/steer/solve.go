package steer

// Result is what Solve found.
type Result struct {
	// Plan is the next plan, already held back to the largest step; the one in force when Publish is false.
	Plan *Plan
	// Publish says whether the plan is worth a change, and Reason why or why not, in a stable word: "first", "spec",
	// "regions", "ramp", "gain", "prices", "spread" or "dead_band".
	Publish bool
	Reason  string
	// Cost is the demand-weighted mean cost per token under the plan aimed at, and PrevCost under the one in force, in
	// seconds. Both are 0 without demand.
	Cost, PrevCost float64
}

// Solve makes the next plan. Each model's demand is assigned at least cost to the regions' capacity, whose price rises
// as it fills; a service's clients go where its models' assignments say, on the mean. What no capacity is left for is
// spread by capacity.
func Solve(in *Input) Result {
	p := newProblem(in)
	p.placeFixed()
	p.look()
	worth := p.place()
	return p.decide(p.skeleton(p.prices(worth)))
}
