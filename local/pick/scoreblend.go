package pick

import "math"

// The weights of llm-d's scorers as shipped.
const blendPrefix, blendQueue, blendKV = 3.0, 2.0, 2.0

// scoreBlend takes the greatest weighted sum of three scores from 0 to 1, as llm-d's endpoint picker does: the part of the
// prompt that is cached, the queue's place between the shortest and the longest, and the part of the KV cache that is free.
// What it goes by is what is missing from all three, so that the least is best.
func (v *View) scoreBlend() int32 {
	shortest, longest := math.Inf(1), 0.0
	for _, at := range v.cands {
		q := v.line(at)
		shortest, longest = min(shortest, q), max(longest, q)
	}
	for _, at := range v.cands {
		b := &v.brief[at]
		lack := 0.0
		if v.uncut > 0 {
			lack = blendPrefix * v.uncached(at) / v.uncut
		}
		if longest > shortest {
			lack += blendQueue * (v.line(at) - shortest) / (longest - shortest)
		}
		if b.kv > 0 {
			lack += blendKV * v.full(at, b.kv)
		}
		v.costs[at] = lack
	}
	return v.lightest(exact)
}

// line is a worker's queue with the request in it, for its weight.
func (v *View) line(at int32) float64 { return (v.queued(at) + 1) / v.brief[at].power }
