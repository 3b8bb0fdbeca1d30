package pick

import "github.com/spillway-lb/spillway/internal/explain"

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
