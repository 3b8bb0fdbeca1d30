package pick

import "math"

// The thresholds of SGLang's router.
const (
	cacheAwareMinHit    = 0.3  // minimum cached part of the prompt for the cache to decide
	cacheAwareMaxExcess = 64.0 // sequences between the heaviest and the lightest worker
	cacheAwareMaxRatio  = 1.5  // ratio of their sequences; both must be exceeded for the fleet to be out of balance
)

// chooseCacheAware picks the worker that holds most of the prompt when that is at least cacheAwareMinHit of it.
// Otherwise it picks the worker whose index holds the fewest blocks, where new prefixes evict the least. While the
// fleet is out of balance, or when no prompt blocks are known, it picks the worker with the fewest sequences.
func (v *WorkerView) chooseCacheAware() int32 {
	least, most := math.Inf(1), 0.0
	for _, at := range v.candidates {
		n := v.sequencesOn(at) / v.costInputs[at].effectiveWeight
		least, most = min(least, n), max(most, n)
	}
	if v.Index == nil || len(v.query.Blocks) == 0 || most-least > cacheAwareMaxExcess && most > cacheAwareMaxRatio*least {
		return v.chooseWeightedLeastConnections()
	}
	longest := 0.0
	for _, at := range v.candidates {
		longest = max(longest, v.hitTokensOn(at))
	}
	warm := longest > 0 && longest >= cacheAwareMinHit*v.promptTokens
	for _, at := range v.candidates {
		switch {
		case !warm:
			v.costs[at] = (float64(v.Index.HeldBlocks(v.costInputs[at].id)) + 1) / v.costInputs[at].effectiveWeight
		case v.hitTokensOn(at) >= longest:
			v.costs[at] = 0
		default:
			v.costs[at] = v.uncachedTokensOn(at)
		}
		v.costs[at] += tieBreakWeight * v.seqsForWeight(at)
	}
	return v.pickCheapest(zeroSlack)
}

// tieBreakWeight makes the number of sequences decide between workers with otherwise equal costs, and only then.
const tieBreakWeight = 1e-6
