package pick

import "math"

// Weights of llm-d's default scorers.
const blendPrefix, blendQueue, blendKV = 3.0, 2.0, 2.0

// chooseScoreBlend picks the greatest weighted sum of three scores from 0 to 1, as llm-d's endpoint picker does: the
// cached part of the prompt, the position of the queue between the shortest and the longest, and the free part of the
// KV cache. The cost is the sum of what each score lacks to 1, so that the least is best.
func (v *WorkerView) chooseScoreBlend() int32 {
	shortest, longest := math.Inf(1), 0.0
	for _, at := range v.candidates {
		q := v.queueForWeight(at)
		shortest, longest = min(shortest, q), max(longest, q)
	}
	for _, at := range v.candidates {
		b := &v.costInputs[at]
		lack := 0.0
		if v.promptTokens > 0 {
			lack = blendPrefix * v.uncachedTokensOn(at) / v.promptTokens
		}
		if longest > shortest {
			lack += blendQueue * (v.queueForWeight(at) - shortest) / (longest - shortest)
		}
		if b.kvTotal > 0 {
			lack += blendKV * v.kvUsageOn(at, b.kvTotal)
		}
		v.costs[at] = lack
	}
	return v.pickCheapest(zeroSlack)
}

// queueForWeight returns a worker's queue including the request, divided by its weight.
func (v *WorkerView) queueForWeight(at int32) float64 {
	return (v.queuedRequestsOn(at) + 1) / v.costInputs[at].effectiveWeight
}
