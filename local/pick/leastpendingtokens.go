package pick

import "github.com/spillway-lb/spillway/local/perfmodel"

// chooseLeastPendingTokens picks the worker with the fewest prompt tokens waiting for prefill, including this request's
// uncached ones; ties at random.
func (v *WorkerView) chooseLeastPendingTokens() int32 {
	for _, at := range v.candidates {
		v.costs[at] = v.pendingTokensOn(at) / v.costInputs[at].effectiveWeight
	}
	return v.pickCheapest(zeroSlack)
}

// pendingTokensOn returns the prompt tokens that a worker would compute before this request's first token. The accepted
// backlog counts as work.
func (v *WorkerView) pendingTokensOn(at int32) float64 {
	return v.loads[at].backlogTokens + v.uncachedTokensOn(at)
}

// pendingWorkOn returns the work that a worker would do before this request's first token.
func (v *WorkerView) pendingWorkOn(at int32) float64 {
	return v.loads[at].backlogTokens + v.uncachedWorkOn(at)
}

// uncachedWorkOn returns the work of the part of the prompt that a worker would have to compute.
func (v *WorkerView) uncachedWorkOn(at int32) float64 {
	b := &v.costInputs[at]
	had := float64(v.cachedTokens[at]) * b.hitRate
	return perfmodel.AttentionWork(v.promptTokens-had, had, b.attentionSlope)
}

// uncachedTokensOn returns the part of the prompt that a worker would have to compute, in tokens.
func (v *WorkerView) uncachedTokensOn(at int32) float64 {
	return v.promptTokens - float64(v.cachedTokens[at])*v.costInputs[at].hitRate
}
