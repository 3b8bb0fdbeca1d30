package pick

import (
	"slices"

	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// checkRoom returns why worker at has no room for the request now, or eligible. It stores the load that it found.
func (p *placement) checkRoom(at int) ineligibility {
	b := &p.roomInputs[at]
	if b.down {
		return ineligibleDown
	}
	if len(p.query.Exclude) > 0 && slices.Contains(p.query.Exclude, b.id) {
		return ineligibleExcluded
	}
	if p.certainPrompt >= b.maxPrompt {
		return ineligibleTooLong
	}
	a := p.Ledger.TotalsOf(b.id)
	if a == nil {
		return ineligibleNotInLedger
	}
	load := screenedLoad{backlogTokens: a.BacklogAt(p.ledgerClock, b.prefillRate)}
	if late := a.LateSeconds(p.ledgerClock, b.prefillRate, b.prefillBase); late > 0 {
		load.lateTokens = late * b.prefillRate
		load.backlogTokens += load.lateTokens
	}
	p.loads[at] = load
	if b.maxTrials > 0 && a.Running() >= b.maxTrials {
		return ineligibleTrial
	}
	seqs := a.Sequences()
	if seqs == 0 {
		return eligible
	}
	if seqs >= int64(b.slots) {
		return ineligibleSlots
	}
	if b.kvTotal > 0 {
		if drop := p.checkKVRoom(at, b, a); drop != eligible {
			return drop
		}
	}
	if p.backlogLimit > 0 && load.backlogTokens-p.cachedWorkOn(at) > p.maxBacklogSeconds(b)*b.trustedRate {
		return ineligibleBacklog
	}
	return eligible
}

// checkKVRoom returns why a worker's KV cache has no room for the request now, or eligible.
func (p *placement) checkKVRoom(at int, b *roomInputs, a *inflight.WorkerTotals) ineligibility {
	most := b.kvLimit(a.ForeignKV())
	if p.query.SLO.TTFT > 0 || p.query.Share.ReserveHeadroom {
		most = min(most, b.kvTotal)
	}
	if p.query.Share.ReserveHeadroom {
		most -= most / headroomDivisor
	}
	if need := a.HeldKV() + p.kvNeed; need > most && need-p.sharedKVWith(at) > most {
		return ineligibleKV
	}
	if inflight.IsLong(p.kvNeed, b.kvTotal) {
		if l := p.Ledger.LongKV(b.id); l > 0 && l+p.kvNeed-p.cachedKVOn(at) > p.longKVLimit(b.kvTotal) {
			return ineligibleLongShare
		}
	}
	return eligible
}

// longKVLimit returns how much of a worker's KV cache long requests may hold together, in tokens.
func (v *WorkerView) longKVLimit(total int64) int64 {
	if v.LongShare > 0 && v.LongShare <= 1 {
		return int64(v.LongShare * float64(total))
	}
	return total / longShareDivisor
}

// maxBacklogSeconds returns how long a worker's backlog may be, in seconds. While other requests wait it is just long
// enough to keep the engine busy, because no request can overtake what is inside an engine. A worker that holds most of
// the prompt may have a longer backlog.
func (p *placement) maxBacklogSeconds(b *roomInputs) float64 {
	if !p.query.Share.Contended || p.match.holdsHalf(b.id, p.query.PromptBytes) {
		return p.backlogLimit
	}
	return min(p.backlogLimit, contendedBacklog)
}

// cachedWorkOn returns the part of the prompt that the worker holds, as prefill work, scaled by its measured hit rate.
// Waiting that long for the holder is worthwhile: on another worker the same time is spent on recomputing the prefix,
// and more cache on a second copy.
func (p *placement) cachedWorkOn(at int) float64 {
	if p.match.index == nil {
		return 0
	}
	b := &p.costInputs[at]
	had := float64(p.match.tokensOn(b.id)) * b.hitRate
	return perfmodel.AttentionWork(p.promptTokens, 0, b.attentionSlope) - perfmodel.AttentionWork(p.promptTokens-had, had, b.attentionSlope)
}

// cachedKVOn returns how much of a long prompt the worker holds already, in tokens, scaled by its hit rate. It does not
// count against the share. The bound keeps room for short requests; a long conversation that is sent away from its
// cache needs as much room for a second copy on another worker, and the time to compute it.
func (p *placement) cachedKVOn(at int) int64 {
	b := &p.costInputs[at]
	return int64(float64(p.match.tokensOn(b.id)) * b.hitRate)
}

// sharedKVOn returns how much less KV cache a worker's sequences hold than is reserved for them, in tokens, scaled by
// its hit rate.
func (p *placement) sharedKVOn(at int) int64 {
	b := &p.costInputs[at]
	return int64(float64(p.Ledger.SharedKV(b.id)) * b.hitRate)
}

// sharedKVWith is sharedKVOn with the request among the worker's sequences.
func (p *placement) sharedKVWith(at int) int64 {
	b := &p.costInputs[at]
	return int64(float64(p.Ledger.SharedKVWith(b.id, p.query.PromptPrefix())) * b.hitRate)
}
