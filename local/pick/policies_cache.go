package pick

import (
	"math"

	"github.com/spillway-lb/spillway/local/blockhash"
)

// Policies by what a worker has cached of the prompt, or by the request's key.

// chooseConsistentHash picks the worker of the request's key by weighted rendezvous hashing, so that a worker that
// leaves moves only its own keys. A worker above its fair share times hashLoadFactor is skipped.
func chooseConsistentHash(p *placement) int32 {
	key := p.query.Key
	if key == 0 {
		key = p.rng.Uint64()
	}
	total, power := 1.0, 0.0
	for _, at := range p.candidates {
		total += p.sequencesOn(at)
		power += p.weights[at]
	}
	chosen, nearest := int32(-1), math.Inf(1)
	for _, at := range p.candidates {
		// An exponential variate of rate weight: the least of them falls on each worker in proportion to its weight.
		w := &p.Workers[at]
		d := -math.Log(hashToUnit(blockhash.ChainHash(key, w.nameHash))) / w.weightOrDefault()
		p.costs[at] = d
		if d < nearest && p.sequencesOn(at)+1 <= math.Ceil(hashLoadFactor*total*p.weights[at]/power) {
			nearest, chosen = d, at
		}
	}
	if chosen < 0 {
		return pickCheapest(p, zeroSlack)
	}
	return chosen
}

// hashToUnit maps a hash to (0, 1].
func hashToUnit(h uint64) float64 {
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	return (float64(h>>11) + 1) / (1 << 53)
}

// choosePrefixAffinity picks the worker that holds most of the prompt if that is at least affinityMinHit of it, unless
// its load exceeds the lightest worker's by affinityMaxExcess and affinityMaxRatio. Otherwise it picks the lightest
// worker.
func choosePrefixAffinity(p *placement) int32 {
	most := 0.0
	for _, at := range p.candidates {
		p.costs[at] = p.seqsForWeight(at)
		most = max(most, p.hitTokensOn(at))
	}
	lightest := pickCheapest(p, zeroSlack)
	if most < affinityMinHit*p.promptTokens || most == 0 {
		return lightest
	}
	least := p.costs[lightest]
	chosen := int32(-1)
	for _, at := range p.candidates {
		if p.hitTokensOn(at) < most {
			continue
		}
		if chosen < 0 || p.costs[at] < p.costs[chosen] {
			chosen = at
		}
	}
	if c := p.costs[chosen]; c > least+affinityMaxExcess && c > affinityMaxRatio*least {
		return lightest
	}
	return chosen
}

// chooseSticky picks the warm worker (one that holds at least stickyMinHit of the prompt) with the shortest wait, as
// long as no other worker's wait is shorter by more than half of what the request may wait. Otherwise it picks the
// worker with the least time to first token of all.
func chooseSticky(p *placement) int32 {
	limit := stickyMaxWait
	if p.backlogLimit > 0 {
		limit = p.backlogLimit / 2
	}
	isWarm := func(at int32) bool {
		n := p.hitTokensOn(at)
		return n > 0 && n >= stickyMinHit*p.promptTokens
	}
	// As published, recomputation on the other workers does not count in favour of the warm ones: only the backlog
	// before the request is compared.
	warm, cold := math.Inf(1), math.Inf(1)
	for _, at := range p.candidates {
		b := &p.costInputs[at]
		p.costs[at] = p.prefillSecondsOn(at)
		before := b.prefillBase + p.loads[at].backlogTokens*b.secondsPerToken
		if isWarm(at) {
			warm = min(warm, before)
		} else {
			cold = min(cold, before)
		}
	}
	if warm < math.Inf(1) && !(warm-cold > limit) {
		keepCandidates(p, eligible, nil, isWarm)
	}
	return pickCheapest(p, nearTieSlack)
}

// chooseCacheAware picks the worker that holds most of the prompt when that is at least cacheAwareMinHit of it.
// Otherwise it picks the worker whose index holds the fewest blocks, where new prefixes evict the least. While the
// fleet is out of balance, or when no prompt blocks are known, it picks the worker with the fewest sequences.
func chooseCacheAware(p *placement) int32 {
	least, most := math.Inf(1), 0.0
	for _, at := range p.candidates {
		n := p.sequencesOn(at) / p.weights[at]
		least, most = min(least, n), max(most, n)
	}
	if p.Index == nil || len(p.query.Blocks) == 0 || most-least > cacheAwareMaxExcess && most > cacheAwareMaxRatio*least {
		return chooseWeightedLeastConnections(p)
	}
	longest := 0.0
	for _, at := range p.candidates {
		longest = max(longest, p.hitTokensOn(at))
	}
	warm := longest > 0 && longest >= cacheAwareMinHit*p.promptTokens
	for _, at := range p.candidates {
		switch {
		case !warm:
			p.costs[at] = (float64(p.Index.HeldBlocks(p.costInputs[at].id)) + 1) / p.weights[at]
		case p.hitTokensOn(at) >= longest:
			p.costs[at] = 0
		default:
			p.costs[at] = p.uncachedTokensOn(at)
		}
		p.costs[at] += tieBreakWeight * p.seqsForWeight(at)
	}
	return pickCheapest(p, zeroSlack)
}

// chooseOverlapCost picks the least weighted sum of blocks to prefill and blocks to decode over, as Dynamo's KV router
// does. Ties are broken at random; with a temperature, any candidate may be drawn, cheaper ones more likely.
func chooseOverlapCost(p *placement) int32 {
	weight := p.OverlapWeight
	if !(weight > 0) {
		weight = 1
	}
	for _, at := range p.candidates {
		held := float64(p.totalsOn(at).HeldKV()) + p.promptTokens
		p.costs[at] = (weight*p.pendingTokensOn(at) + held) / (overlapBlockTokens * p.weights[at])
	}
	if p.Temperature > 0 {
		return drawByCost(p, p.Temperature)
	}
	return pickCheapest(p, zeroSlack)
}

// chooseScoreBlend picks the greatest weighted sum of three scores from 0 to 1, as llm-d's endpoint picker does: the
// cached part of the prompt, the position of the queue between the shortest and the longest, and the free part of the
// KV cache. The cost is the sum of what each score lacks to 1, so that the least is best.
func chooseScoreBlend(p *placement) int32 {
	shortest, longest := math.Inf(1), 0.0
	for _, at := range p.candidates {
		q := p.queueForWeight(at)
		shortest, longest = min(shortest, q), max(longest, q)
	}
	for _, at := range p.candidates {
		lack := 0.0
		if p.promptTokens > 0 {
			lack = blendPrefix * p.uncachedTokensOn(at) / p.promptTokens
		}
		if longest > shortest {
			lack += blendQueue * (p.queueForWeight(at) - shortest) / (longest - shortest)
		}
		p.costs[at] = lack + blendKV*p.kvUsageOn(at)
	}
	return pickCheapest(p, zeroSlack)
}
