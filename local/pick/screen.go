package pick

import "github.com/spillway-lb/spillway/internal/explain"

// screenPools screens the workers that the request may use: those of its pools or, if it has none, those in no pool. A
// request that may overflow also uses workers in no pool once its own have no room.
func (p *placement) screenPools(rec *explain.Explanation) string {
	p.unpooledAllowed = p.query.Pools == 0
	p.poolsMatter = p.anyPooled || !p.unpooledAllowed
	if p.query.Overflow && !p.unpooledAllowed {
		p.screenWorkers(nil)
		p.unpooledAllowed = len(p.candidates) == 0
	}
	return p.screenWorkers(rec)
}

// poolIneligibility returns why worker at may not take the request at all, by its pools.
func (p *placement) poolIneligibility(at int) ineligibility {
	switch pools := p.Workers[at].Pools; {
	case pools&p.query.Pools != 0 || pools == 0 && p.unpooledAllowed:
		return eligible
	case pools != 0:
		return ineligibleReserved
	}
	return ineligibleWrongPool
}

// screenWorkers fills p.candidates with the workers that have room. When there is none, it returns the most favourable
// reason found. Workers with invalid learned parameters are candidates only when no other worker is.
func (p *placement) screenWorkers(rec *explain.Explanation) string {
	p.candidates, p.invalidParams, p.drainHeldBack = p.candidates[:0], p.invalidParams[:0], p.drainHeldBack[:0]
	p.pruner.forgetBest()
	reason, pooled := ReasonNoWorker, len(p.roomInputs) == 0
	inputs, pruning := p.costInputs[:len(p.roomInputs)], p.pruner.enabled
	for i := range p.roomInputs {
		if pruning {
			if _, bound := p.loadTerms(&inputs[i], 0, p.pruner.limit); bound > p.pruner.limit {
				continue
			}
		}
		drop := eligible
		if p.poolsMatter {
			drop = p.poolIneligibility(i)
		}
		if drop == eligible {
			drop = p.checkRoom(i)
			pooled = true
		}
		if drop == eligible && p.roomInputs[i].draining && !p.drains.mayTake(i) {
			p.drainHeldBack, drop = append(p.drainHeldBack, int32(i)), ineligibleDraining
		}
		if drop == eligible {
			if p.roomInputs[i].invalid {
				p.invalidParams = append(p.invalidParams, int32(i))
			} else {
				p.candidates = append(p.candidates, int32(i))
				if pruning {
					p.costs[i] = p.predictCost(int32(i))
					p.pruner.lowerLimit(p.costs[i])
				}
			}
			continue
		}
		if rec.IsRecording() {
			rec.AddCandidate(p.Workers[i].Name).MarkIneligible(p.ineligibilityText(i, drop))
		}
		switch drop {
		case ineligibleSlots, ineligibleKV, ineligibleLongShare, ineligibleBacklog, ineligibleTrial:
			reason = ReasonBusy
		case ineligibleTooLong:
			if reason == ReasonNoWorker {
				reason = ReasonTooLong
			}
		}
	}
	if !pooled {
		reason = ReasonNoPool
	}
	if len(p.candidates) == 0 {
		p.candidates, p.invalidParams = p.invalidParams, p.candidates
	}
	if len(p.candidates) == 0 && reason != ReasonBusy { // no other worker will have room
		p.candidates, p.drainHeldBack = p.drainHeldBack, p.candidates
	}
	for _, at := range p.invalidParams {
		if rec.IsRecording() {
			rec.AddCandidate(p.Workers[at].Name).MarkIneligible(ineligibleInvalid.String())
		}
	}
	return reason
}

// keepCandidates keeps the candidates for which keep is true. The others are recorded as ineligible for the reason.
func keepCandidates(p *placement, reason ineligibility, rec *explain.Explanation, keep func(at int32) bool) {
	kept := p.candidates[:0]
	for _, at := range p.candidates {
		if keep(at) {
			kept = append(kept, at)
		} else if rec.IsRecording() {
			rec.AddCandidate(p.Workers[at].Name).MarkIneligible(p.ineligibilityText(int(at), reason))
		}
	}
	p.candidates = kept
}

// filterByAdapter keeps the candidates with the best AdapterState of any.
func filterByAdapter(p *placement) {
	best := AdapterSlotsFull
	for _, at := range p.candidates {
		best = min(best, p.Workers[at].Adapter)
	}
	keepCandidates(p, eligible, nil, func(at int32) bool { return p.Workers[at].Adapter == best })
}

// IsBlockedByPool reports, after a choice without a worker, that the request's own workers have no room while workers
// of other pools may have some. The request is then not waiting for the share of long requests.
func IsBlockedByPool(v *WorkerView) bool {
	p := &v.placement
	if !p.poolsMatter {
		return false
	}
	for i := range p.roomInputs {
		if p.poolIneligibility(i) == eligible && p.checkRoom(i) == ineligibleLongShare {
			return false
		}
	}
	return true
}

// IsHeldBack reports, after a choice without a worker, whether some worker had room except for the share of long
// requests or except for its pool. Such a request waits for its share and not for room, so others may overtake it.
func IsHeldBack(v *WorkerView) bool {
	p := &v.placement
	for i := range p.roomInputs {
		switch drop := p.checkRoom(i); {
		case drop == ineligibleLongShare:
			return true
		case drop == eligible && p.poolsMatter && p.poolIneligibility(i) != eligible:
			return true
		}
	}
	return false
}
