package pick

import "math"

const (
	stickyMinHit  = 0.8  // minimum cached part of the prompt for a worker to be warm
	stickyMaxWait = 18.0 // maximum extra wait for a warm worker, in seconds, when the request has no bound
)

// chooseSticky picks the warm worker (one that holds at least stickyMinHit of the prompt) with the shortest wait, as
// long as no other worker's wait is shorter by more than half of what the request may wait. Otherwise it picks the
// worker with the least time to first token of all.
func (v *WorkerView) chooseSticky() int32 {
	limit := stickyMaxWait
	if v.backlogLimit > 0 {
		limit = v.backlogLimit / 2
	}
	// As published, recomputation on the other workers does not count in favour of the warm ones: only the backlog
	// before the request is compared.
	warm, cold := math.Inf(1), math.Inf(1)
	for _, at := range v.candidates {
		b := &v.costInputs[at]
		v.costs[at] = b.prefillBase + v.pendingWorkOn(at)*b.secondsPerToken
		before := b.prefillBase + v.loads[at].backlogTokens*b.secondsPerToken
		if v.holdsPrompt(at) {
			warm = min(warm, before)
		} else {
			cold = min(cold, before)
		}
	}
	if warm < math.Inf(1) && !(warm-cold > limit) {
		kept := v.candidates[:0]
		for _, at := range v.candidates {
			if v.holdsPrompt(at) {
				kept = append(kept, at)
			}
		}
		v.candidates = kept
	}
	return v.pickCheapest(nearTieSlack)
}

func (v *WorkerView) holdsPrompt(at int32) bool {
	return v.cachedTokens[at] > 0 && v.hitTokensOn(at) >= stickyMinHit*v.promptTokens
}
