package pick

// When a cached prefix decides, and when the load overrides it.
const (
	affinityMinHit    = 0.3 // minimum cached part of the prompt for it to decide
	affinityMaxExcess = 8.0 // sequences more than the lightest
	affinityMaxRatio  = 1.5 // ratio to the lightest; both must be exceeded
)

// choosePrefixAffinity picks the worker that holds most of the prompt if that is at least affinityMinHit of it, unless
// its load exceeds the lightest worker's by affinityMaxExcess and affinityMaxRatio. Otherwise it picks the lightest
// worker.
func (v *WorkerView) choosePrefixAffinity() int32 {
	most := 0.0
	for _, at := range v.candidates {
		v.costs[at] = v.seqsForWeight(at)
		most = max(most, v.hitTokensOn(at))
	}
	lightest := v.pickCheapest(zeroSlack)
	if most < affinityMinHit*v.promptTokens || most == 0 {
		return lightest
	}
	least := v.costs[lightest]
	chosen := int32(-1)
	for _, at := range v.candidates {
		if v.hitTokensOn(at) < most {
			continue
		}
		if chosen < 0 || v.costs[at] < v.costs[chosen] {
			chosen = at
		}
	}
	if c := v.costs[chosen]; c > least+affinityMaxExcess && c > affinityMaxRatio*least {
		return lightest
	}
	return chosen
}

// hitTokensOn returns the part of the prompt that a worker has cached, in tokens, scaled by its hit rate.
func (v *WorkerView) hitTokensOn(at int32) float64 {
	return float64(v.cachedTokens[at]) * v.costInputs[at].hitRate
}
