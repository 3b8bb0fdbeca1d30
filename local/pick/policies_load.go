package pick

import "math"

// Policies by load: sequences, queues, pending tokens, latency, GPU.

// choosePowerOfTwo draws two candidates and picks the one with fewer sequences for its weight.
func choosePowerOfTwo(p *placement) int32 {
	n := len(p.candidates)
	i := p.rng.IntN(n)
	if n == 1 {
		return p.candidates[i]
	}
	j := p.rng.IntN(n - 1)
	if j >= i {
		j++
	}
	a, b := p.candidates[i], p.candidates[j]
	if p.seqsForWeight(b) < p.seqsForWeight(a) {
		return b
	}
	return a
}

// chooseLeastConnections picks the worker with the fewest sequences; ties at random.
func chooseLeastConnections(p *placement) int32 {
	for _, at := range p.candidates {
		p.costs[at] = (p.sequencesOn(at) + 1) / p.relativeShare(int(at))
	}
	return pickCheapest(p, zeroSlack)
}

// chooseWeightedLeastConnections picks the worker with the fewest sequences for its weight; ties at random.
func chooseWeightedLeastConnections(p *placement) int32 {
	for _, at := range p.candidates {
		p.costs[at] = p.seqsForWeight(at)
	}
	return pickCheapest(p, zeroSlack)
}

// chooseLeastQueue picks the worker with the fewest requests waiting for prefill; ties by sequences and then at random.
func chooseLeastQueue(p *placement) int32 {
	for _, at := range p.candidates {
		p.costs[at] = p.queueForWeight(at) + tieBreakWeight*p.sequencesOn(at)
	}
	return pickCheapest(p, zeroSlack)
}

// chooseLeastPendingTokens picks the worker with the fewest prompt tokens waiting for prefill, including this request's
// uncached ones; ties at random.
func chooseLeastPendingTokens(p *placement) int32 {
	for _, at := range p.candidates {
		p.costs[at] = p.pendingTokensOn(at) / p.weights[at]
	}
	return pickCheapest(p, zeroSlack)
}

// chooseLMetric picks the worker with the least product of the prompt tokens it would compute and the sequences it
// would run; near-ties at random.
func chooseLMetric(p *placement) int32 {
	for _, at := range p.candidates {
		p.costs[at] = p.pendingTokensOn(at) * (p.sequencesOn(at) + 1) / p.weights[at]
	}
	return pickCheapest(p, relativeSlack)
}

// chooseLeastResponseTime picks the worker with the least product of the peak EWMA of its times to first token and its
// sequences. A worker without answers counts with its prior.
func chooseLeastResponseTime(p *placement) int32 {
	for _, at := range p.candidates {
		p.costs[at] = p.peakSecondsOn(at) * (p.sequencesOn(at) + 1) / p.weights[at]
	}
	return pickCheapest(p, relativeSlack)
}

// chooseGPUUtilization picks the worker whose GPU is least busy; near-ties at random.
func chooseGPUUtilization(p *placement) int32 {
	for _, at := range p.candidates {
		p.costs[at] = p.gpuBusyOn(at) / p.weights[at]
	}
	return pickCheapest(p, func(best float64) float64 { return max(gpuTieSlack, relativeSlack(best)) })
}

// chooseGPUAware picks the worker with the least composite of queue, GPU, KV cache and latency; near-ties at random.
func chooseGPUAware(p *placement) int32 {
	for _, at := range p.candidates {
		score := compositeQueue*saturateAt(p.queuedRequestsOn(at), queueHalfPoint) + compositeGPU*min(p.gpuBusyOn(at), 1) +
			compositeKV*p.kvUsageOn(at) + compositeLatency*saturateAt(p.peakSecondsOn(at), latencyHalfPoint)
		p.costs[at] = score / p.weights[at]
	}
	return pickCheapest(p, func(best float64) float64 { return max(compositeTieSlack, relativeSlack(best)) })
}

// saturateAt grows from 0 toward 1 and is one half at x = size.
func saturateAt(x, size float64) float64 { return x / (x + size) }

// choosePrequal draws prequalSamples workers at random. Those with more sequences than the quantile over all candidates
// are hot. Among the cold ones it picks the one that was recently fastest at its present load; when all are hot, the
// one with the fewest sequences.
func choosePrequal(p *placement) int32 {
	limit := hotSeqsLimit(p)
	pool := min(prequalSamples, len(p.candidates))
	var coldest, fastest int32 = -1, -1
	least, best := math.Inf(1), math.Inf(1)
	for i := range pool {
		// The first steps of a shuffle: a draw without replacement.
		j := i + p.rng.IntN(len(p.candidates)-i)
		p.candidates[i], p.candidates[j] = p.candidates[j], p.candidates[i]
		at := p.candidates[i]
		c := p.seqsForWeight(at)
		if coldest < 0 || c < least {
			least, coldest = c, at
		}
		if c > limit {
			continue
		}
		if s := recentLatencyOn(p, at); fastest < 0 || s < best {
			best, fastest = s, at
		}
	}
	if fastest >= 0 {
		return fastest
	}
	return coldest
}

// recentLatencyOn returns the worker's recent time to first token at its present load, or the predicted one when there
// is none.
func recentLatencyOn(p *placement, at int32) float64 {
	if s, ok := p.Workers[at].Latency.MedianNear(p.totalsOn(at).Sequences()); ok {
		return s
	}
	return p.prefillSecondsOn(at)
}

// hotSeqsLimit returns the quantile of sequences for their weight over all candidates.
func hotSeqsLimit(p *placement) float64 {
	var count [prequalBins]int32
	for _, at := range p.candidates {
		count[seqsBin(p.seqsForWeight(at))]++
	}
	left := int32(math.Ceil(prequalHotQuantile * float64(len(p.candidates))))
	for i := range count {
		if left -= count[i]; left <= 0 {
			return float64(i)
		}
	}
	return prequalBins
}

// seqsBin rounds up, so that a value in the limit's own bin is not above it.
func seqsBin(c float64) int {
	if !(c < prequalBins-1) {
		return prequalBins - 1
	}
	return int(math.Ceil(max(c, 0)))
}
