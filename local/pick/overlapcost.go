package pick

import "math"

// costBlock is what costs of overlap_cost are counted in, in tokens: the engines' usual block.
const costBlock = 16

// overlapCost takes the least weighted sum of blocks to prefill and blocks to decode over, as Dynamo's KV router does: by
// chance among equals, and with a temperature among all, the cheaper the likelier.
func (v *View) overlapCost() int32 {
	weight := v.OverlapWeight
	if !(weight > 0) {
		weight = 1
	}
	for _, at := range v.cands {
		b := &v.brief[at]
		held := float64(v.Ledger.accounts[b.id].heldKV()) + v.uncut
		v.costs[at] = (weight*v.tokens(at) + held) / (costBlock * b.power)
	}
	if v.Temperature > 0 {
		return v.softest(v.Temperature)
	}
	return v.lightest(exact)
}

// softest draws a candidate, each in proportion to exp(-cost/temperature), costs counted in the range between the least and
// the greatest: at 1 the dearest is drawn e times as rarely as the cheapest.
func (v *View) softest(temperature float64) int32 {
	least, most := math.Inf(1), math.Inf(-1)
	for _, at := range v.cands {
		least, most = min(least, v.costs[at]), max(most, v.costs[at])
	}
	span := most - least
	if !(span > 0) || math.IsInf(span, 0) {
		return v.anybody()
	}
	chosen, first := v.cands[0], math.Inf(1)
	for _, at := range v.cands {
		// The first of exponential variates with these rates falls on each in proportion to its rate.
		wait := v.rng.ExpFloat64() * math.Exp((v.costs[at]-least)/span/temperature)
		if wait < first {
			chosen, first = at, wait
		}
	}
	return chosen
}
