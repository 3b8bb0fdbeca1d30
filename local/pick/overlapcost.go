package pick

import "math"

// overlapBlockTokens is the block size in which overlap_cost counts, in tokens: the engines' usual block.
const overlapBlockTokens = 16

// chooseOverlapCost picks the least weighted sum of blocks to prefill and blocks to decode over, as Dynamo's KV router
// does. Ties are broken at random; with a temperature, any candidate may be drawn, cheaper ones more likely.
func (v *WorkerView) chooseOverlapCost() int32 {
	weight := v.OverlapWeight
	if !(weight > 0) {
		weight = 1
	}
	for _, at := range v.candidates {
		b := &v.costInputs[at]
		held := float64(v.Ledger.TotalsOf(b.id).HeldKV()) + v.promptTokens
		v.costs[at] = (weight*v.pendingTokensOn(at) + held) / (overlapBlockTokens * b.effectiveWeight)
	}
	if v.Temperature > 0 {
		return v.drawByCost(v.Temperature)
	}
	return v.pickCheapest(zeroSlack)
}

// drawByCost draws a candidate with probability proportional to exp(-cost/temperature), with costs scaled to the range
// between least and greatest: at temperature 1 the most expensive is drawn e times as rarely as the cheapest.
func (v *WorkerView) drawByCost(temperature float64) int32 {
	least, most := math.Inf(1), math.Inf(-1)
	for _, at := range v.candidates {
		least, most = min(least, v.costs[at]), max(most, v.costs[at])
	}
	span := most - least
	if !(span > 0) || math.IsInf(span, 0) {
		return v.pickRandom()
	}
	chosen, first := v.candidates[0], math.Inf(1)
	for _, at := range v.candidates {
		// The first of exponential variates with these rates falls on each candidate in proportion to its rate.
		wait := v.rng.ExpFloat64() * math.Exp((v.costs[at]-least)/span/temperature)
		if wait < first {
			chosen, first = at, wait
		}
	}
	return chosen
}
