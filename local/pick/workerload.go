package pick

import (
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// What policies read of a candidate: its load, and what it would have to compute for the request.

// totalsOn returns the ledger's totals of a candidate.
func (p *placement) totalsOn(at int32) *inflight.WorkerTotals {
	return p.Ledger.TotalsOf(p.costInputs[at].id)
}

// sequencesOn returns the sequences on a worker, our own and foreign ones.
func (p *placement) sequencesOn(at int32) float64 { return float64(p.totalsOn(at).Sequences()) }

// seqsForWeight returns the sequences for the worker's weight. It includes the new request, so that weights matter
// between idle workers.
func (p *placement) seqsForWeight(at int32) float64 {
	return (p.sequencesOn(at) + 1) / p.weights[at]
}

// queuedRequestsOn returns the requests on a worker whose answer has not begun, our own and foreign ones.
func (p *placement) queuedRequestsOn(at int32) float64 {
	return float64(p.Ledger.QueuedRequests(p.costInputs[at].id))
}

// queueForWeight returns a worker's queue including the request, divided by its weight.
func (p *placement) queueForWeight(at int32) float64 {
	return (p.queuedRequestsOn(at) + 1) / p.weights[at]
}

// hitTokensOn returns the part of the prompt that a worker has cached, in tokens, scaled by its hit rate.
func (p *placement) hitTokensOn(at int32) float64 {
	b := &p.costInputs[at]
	return float64(p.match.tokensOn(b.id)) * b.hitRate
}

// uncachedTokensOn returns the part of the prompt that a worker would have to compute, in tokens.
func (p *placement) uncachedTokensOn(at int32) float64 { return p.promptTokens - p.hitTokensOn(at) }

// pendingTokensOn returns the prompt tokens that a worker would compute before this request's first token. The accepted
// backlog counts as work.
func (p *placement) pendingTokensOn(at int32) float64 {
	return p.loads[at].backlogTokens + p.uncachedTokensOn(at)
}

// prefillSecondsOn returns the predicted seconds of the backlog and the request's own prefill.
func (p *placement) prefillSecondsOn(at int32) float64 {
	b := &p.costInputs[at]
	cached := p.hitTokensOn(at)
	work := perfmodel.AttentionWork(p.promptTokens-cached, cached, b.attentionSlope)
	return b.prefillBase + (p.loads[at].backlogTokens+work)*b.secondsPerToken
}

// peakSecondsOn returns the peak EWMA of a worker's times to first token, in seconds.
func (p *placement) peakSecondsOn(at int32) float64 {
	return p.Workers[at].Latency.PeakSeconds(p.costInputs[at].prefillBase, p.wallClock)
}

// gpuBusyOn returns how busy a worker's GPU is, from 0. It is the scraped value plus what was sent there since, so that
// one scrape does not direct all requests to the same worker. Without a scraped value it is estimated from the ledger.
func (p *placement) gpuBusyOn(at int32) float64 {
	w, b := &p.Workers[at], &p.costInputs[at]
	batch := float64(defaultBatch)
	if w.Slots > 0 {
		batch = float64(w.Slots)
	}
	if w.GPUBusy > 0 {
		return min(w.GPUBusy, 1) + float64(p.Ledger.SentSinceScrape(b.id))/batch
	}
	return p.sequencesOn(at)/batch + p.loads[at].backlogTokens/b.prefillRate
}

// kvUsageOn returns the part of a worker's KV cache that its sequences hold, at most 1; 0 when its size is unknown.
func (p *placement) kvUsageOn(at int32) float64 {
	total := p.roomInputs[at].kvTotal
	if total <= 0 {
		return 0
	}
	held := p.totalsOn(at).HeldKV() - p.sharedKVOn(int(at))
	return min(float64(max(held, 0))/float64(total), 1)
}
