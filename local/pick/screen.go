package pick

import (
	"github.com/spillway-lb/spillway/internal/explain"
)

// screenPools screens the workers that the request may use: those of its pools or, if it has none, those in no pool. A
// request that may overflow also uses workers in no pool once its own have no room.
func (p *placement) screenPools(rec *explain.Explanation) string {
	p.unpooledAllowed = p.query.Pools == 0
	p.poolsMatter = p.anyPooled || !p.unpooledAllowed || p.query.Only != nil
	p.searching = p.pruner.enabled && p.groups != nil
	if p.query.Overflow && !p.unpooledAllowed {
		p.screenWorkers(nil)
		p.unpooledAllowed = len(p.candidates) == 0
	}
	return p.screenWorkers(rec)
}

// poolIneligibility returns why worker at may not take the request at all, by its pools or by PlacementQuery.Only.
func (p *placement) poolIneligibility(at int) ineligibility {
	switch pools := p.Workers[at].Pools; {
	case p.query.Only != nil && !p.query.Only.HasWorker(p.Workers[at].ID):
		return ineligibleNotAllowed
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
	if p.searching {
		return p.searchWorkers()
	}
	p.resetScreening()
	for i := range p.roomInputs {
		p.screenWorker(i, rec)
	}
	return p.finishScreening(rec)
}

func (p *placement) resetScreening() {
	p.candidates, p.invalidParams, p.drainHeldBack = p.candidates[:0], p.invalidParams[:0], p.drainHeldBack[:0]
	p.pruner.forgetBest()
	p.noneReason, p.anyPooledRoom = ReasonNoWorker, len(p.roomInputs) == 0
}

// screenWorker adds a worker to p.candidates if it has room and may be near the best, and otherwise notes why not.
func (p *placement) screenWorker(i int, rec *explain.Explanation) {
	pruning := p.pruner.enabled
	if pruning {
		if _, bound := p.loadTerms(&p.costInputs[i], 0, p.pruner.limit); bound > p.pruner.limit {
			return
		}
	}
	drop := eligible
	if p.poolsMatter {
		drop = p.poolIneligibility(i)
	}
	if drop == eligible {
		drop = p.checkRoom(i)
		p.anyPooledRoom = true
	}
	room := &p.roomInputs[i]
	if drop == eligible && room.draining && !p.drains.mayTake(i) {
		p.drainHeldBack, drop = append(p.drainHeldBack, int32(i)), ineligibleDraining
	}
	switch drop {
	case eligible:
		if room.invalid {
			p.invalidParams = append(p.invalidParams, int32(i))
			return
		}
		p.candidates = append(p.candidates, int32(i))
		if pruning {
			p.costs[i] = p.predictCost(int32(i))
			p.pruner.lowerLimit(p.costs[i])
		}
		return
	case ineligibleSlots, ineligibleKV, ineligibleLongShare, ineligibleBacklog, ineligibleTrial:
		p.noneReason = ReasonBusy
	case ineligibleTooLong:
		if p.noneReason == ReasonNoWorker {
			p.noneReason = ReasonTooLong
		}
	}
	if rec.IsRecording() {
		rec.AddCandidate(p.Workers[i].Name).MarkIneligible(p.ineligibilityText(i, drop))
	}
}

// finishScreening returns the reason of a choice without a worker, after it has resorted to workers that are candidates
// only where no other is.
func (p *placement) finishScreening(rec *explain.Explanation) string {
	reason := p.noneReason
	if !p.anyPooledRoom {
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

// ineligibility is the reason why a worker is not a candidate.
type ineligibility uint8

const (
	eligible           ineligibility = iota // it has room
	ineligibleDown                          // WorkerSnapshot.DownReason has the reason
	ineligibleExcluded                      // it failed this request
	ineligibleTrial
	ineligibleSlots
	ineligibleKV
	ineligibleLongShare
	ineligibleBacklog
	ineligibleTooLong
	ineligibleInvalid
	ineligibleNotInLedger
	ineligibleReserved  // the worker is dedicated to another pool
	ineligibleWrongPool // the worker is not in the request's pool
	ineligibleOverShare // the tenant is above its fair share and the request would slow others down
	ineligibleTPOT      // time per output token would exceed the request's target
	ineligibleDraining
	ineligibleNotAllowed // the proxy that asks for an endpoint cannot send the request to it
)

// String returns the reason as explanations show it.
func (d ineligibility) String() string {
	return [...]string{
		"", "down", "failed this request", "on trial", "no free sequence", "no free KV cache", "long requests use their share of KV cache",
		"prefill backlog over the target", "longer than the worker's context", "invalid learned parameters", "not in the ledger",
		"dedicated to another pool", "not of the request's pool",
		"tenant over its fair share", "time per output token over the request's target", "draining: this request goes to another worker",
		"not in the proxy's subset, or without an IP address",
	}[d]
}

func (p *placement) ineligibilityText(at int, d ineligibility) string {
	if d == ineligibleDown {
		return p.Workers[at].DownReason
	}
	return d.String()
}

// filterByTPOT keeps the candidates that would meet the requested time per output token, by the predicted step with the
// request in it. When none would, all candidates stay, since a slow answer is better than none and the policy then
// picks the least slow. The exception is a request that may wait for a smaller batch (SLO.WaitForTPOT) when
// some worker would meet the target with one: each request that joins too large a batch makes it too slow for all in
// it. It reports whether any candidate is left.
func filterByTPOT(p *placement, rec *explain.Explanation) bool {
	asked := p.query.SLO.TPOT.Seconds()
	if asked <= 0 {
		return true
	}
	most := tpotHeadroom * asked
	if p.query.Share.ReserveHeadroom {
		most -= most / headroomDivisor
	}
	alone, some, slow := false, false, false
	for _, at := range p.candidates {
		s := predictStepOn(p, at)
		some, slow = some || s <= most, slow || s <= asked
		alone = alone || p.Workers[at].Rates.StepSeconds(1, kilo*p.meanContext) <= most
	}
	switch {
	case some:
		filterByStep(p, most, rec)
	case p.query.SLO.WaitForTPOT && alone:
		filterByStep(p, 0, rec)
		return false
	case slow:
		filterByStep(p, asked, rec)
	}
	return true
}

// filterByStep keeps the candidates whose steps take at most so many seconds.
func filterByStep(p *placement, most float64, rec *explain.Explanation) {
	keepCandidates(p, ineligibleTPOT, rec, func(at int32) bool { return predictStepOn(p, at) <= most })
}

// predictStepOn returns the predicted seconds between two tokens on a worker that has taken the request: the step of
// its batch, plus the part of the time that prefills took recently.
func predictStepOn(p *placement, at int32) float64 {
	r := &p.Workers[at].Rates
	id := p.roomInputs[at].id
	a := p.Ledger.TotalsOf(id)
	batch := r.StepSeconds(float64(a.Sequences())+1, float64(a.HeldKV())+kilo*p.meanContext)
	return batch / (1 - p.Ledger.StalledPart(id, r, p.ledgerClock))
}
