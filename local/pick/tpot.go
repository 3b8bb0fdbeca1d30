package pick

import "github.com/spillway-lb/spillway/internal/explain"

// tpotHeadroom is the part of the requested time per output token that a batch may take when the request joins it.
// Requests that join later, and prefills, make steps longer.
const tpotHeadroom = 0.9

// filterByTPOT keeps the candidates that would meet the requested time per output token, by the predicted step with the
// request in it. When none would, all candidates stay, since a slow answer is better than none and the policy then
// picks the least slow. The exception is a request that may wait for a smaller batch (PlacementQuery.WaitForTPOT) when
// some worker would meet the target with one: each request that joins too large a batch makes it too slow for all in
// it. It reports whether any candidate is left.
func (v *WorkerView) filterByTPOT(rec *explain.Explanation) bool {
	asked := v.query.TPOT.Seconds()
	if asked <= 0 {
		return true
	}
	most := tpotHeadroom * asked
	if v.query.ReserveHeadroom {
		most -= most / headroomDivisor
	}
	alone, some, slow := false, false, false
	for _, at := range v.candidates {
		s := v.predictStepOn(at)
		some, slow = some || s <= most, slow || s <= asked
		alone = alone || v.Workers[at].Rates.StepSeconds(1, kilo*v.meanContext) <= most
	}
	switch {
	case some:
		v.filterByStep(most, rec)
	case v.query.WaitForTPOT && alone:
		v.filterByStep(0, rec)
		return false
	case slow:
		v.filterByStep(asked, rec)
	}
	return true
}

// filterByStep keeps the candidates whose steps take at most so many seconds.
func (v *WorkerView) filterByStep(most float64, rec *explain.Explanation) {
	kept := v.candidates[:0]
	for _, at := range v.candidates {
		if v.predictStepOn(at) <= most {
			kept = append(kept, at)
		} else if rec.IsRecording() {
			rec.AddCandidate(v.Workers[at].Name).MarkIneligible(ineligibleTPOT.String())
		}
	}
	v.candidates = kept
}

// predictStepOn returns the predicted seconds between two tokens on a worker that has taken the request: the step of
// its batch, plus the part of the time that prefills took recently.
func (v *WorkerView) predictStepOn(at int32) float64 {
	r := &v.Workers[at].Rates
	id := v.admissionInputs[at].id
	a := v.Ledger.TotalsOf(id)
	batch := r.StepSeconds(float64(a.Sequences())+1, float64(a.HeldKV())+kilo*v.meanContext)
	return batch / (1 - v.Ledger.StalledPart(id, r, v.ledgerClock))
}
