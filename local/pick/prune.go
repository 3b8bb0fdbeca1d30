package pick

import "github.com/spillway-lb/spillway/local/perfmodel"

// The predictive policy minimizes predicted seconds, and checking a worker's room takes longer than computing a lower
// bound of its cost. So while no explanation is recorded, a worker whose bound is above the best cost found so far is
// skipped before any other check: of a thousand workers about a dozen are evaluated.

// boundInputs are the inputs of a worker's lower bound. They fill a cache line.
type boundInputs struct {
	prefillRate     float64 // prefill tokens/s
	secondsPerToken float64
	prefillBase     float64
	hitRate         float64
	seqSlope        float64
	contextSlope    float64
	attentionSlope  float64
	queueingFactor  float32 // WorkerSnapshot.QueueingFactor
	id              int32
}

// pruneMargin is the factor by which a bound must exceed the limit, so that the order of floating-point sums decides
// nothing.
const pruneMargin = 1 + 1e-9

// costLowerBound returns a lower bound of the worker's cost: without lateness, KV cache and adapter. It also stores the
// worker's cached tokens of the prompt.
func (v *WorkerView) costLowerBound(at int) float64 {
	b := &v.boundInputs[at]
	a := v.Ledger.TotalsOf(b.id)
	if a == nil {
		return 0 // no ledger slot: checkRoom finds this
	}
	cached := v.cachedTokensOn(b.id)
	v.cachedTokens[at] = cached
	had := float64(cached) * b.hitRate
	own := perfmodel.AttentionWork(v.promptTokens-had, had, b.attentionSlope) * b.secondsPerToken
	wait := a.BacklogAt(v.ledgerClock, b.prefillRate) * b.secondsPerToken
	alone := b.prefillBase + wait + own + perfmodel.QueueingExternality(own, wait, float64(b.queueingFactor))
	if alone > v.pruneLimit { // over the limit already, before interference
		return alone
	}
	return alone + v.interferenceCost(own, wait, float64(a.Sequences()), float64(a.HeldKV())/kilo, b.seqSlope, b.contextSlope)
}

// lowerPruneLimit lowers the limit to a candidate's cost.
func (v *WorkerView) lowerPruneLimit(at int32) {
	if c := v.predictCost(at); c < v.bestCost {
		v.bestCost = c
		v.pruneLimit = (c + nearTieSlack(c)) * pruneMargin
	}
}
