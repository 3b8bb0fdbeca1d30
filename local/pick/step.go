package pick

import "github.com/spillway-lb/spillway/internal/explain"

// foreseeable is the part of the time between tokens that was asked for which a batch may take when the request joins it: what
// joins later makes its steps longer, and so do prompts, by chance.
const foreseeable = 0.9

// timely leaves the candidates on which the answer's tokens would come as close together as was asked for, by what a step
// takes there once the request is part of it. Where they would nowhere all candidates stay: slowly is better than not at
// all, and the policy knows best where it is least slow. Unless the request may wait for a smaller batch (Query.Steady) and
// some worker would do it with one: each that joins too large a batch makes it too slow for all who are in it. It says
// whether any is left.
func (v *View) timely(rec *explain.Record) bool {
	asked := v.q.Step.Seconds()
	if asked <= 0 {
		return true
	}
	most := foreseeable * asked
	if v.q.Spare {
		most -= most / spare
	}
	alone, some, slow := false, false, false
	for _, at := range v.cands {
		s := v.step(at)
		some, slow = some || s <= most, slow || s <= asked
		alone = alone || v.Workers[at].Rates.Step(1, kilo*v.context) <= most
	}
	switch {
	case some:
		v.within(most, rec)
	case v.q.Steady && alone:
		v.within(0, rec)
		return false
	case slow:
		v.within(asked, rec)
	}
	return true
}

// within leaves the candidates whose steps take so many seconds at most.
func (v *View) within(most float64, rec *explain.Record) {
	kept := v.cands[:0]
	for _, at := range v.cands {
		if v.step(at) <= most {
			kept = append(kept, at)
		} else if rec.On() {
			rec.Candidate(v.Workers[at].Name).Drop(dropStep.String())
		}
	}
	v.cands = kept
}

// step is the seconds between two tokens on a worker that has taken the request, as predicted: what its batch takes, and as
// much of the time as prompts have taken lately.
func (v *View) step(at int32) float64 {
	r := &v.Workers[at].Rates
	id := v.gates[at].id
	a := v.Ledger.account(id)
	batch := r.Step(float64(a.seqs())+1, float64(a.heldKV())+kilo*v.context)
	return batch / (1 - v.Ledger.slots[id].stalls.part(r, v.now))
}
