package pick

import "github.com/spillway-lb/spillway/internal/explain"

// timely leaves the candidates on which the answer's tokens would come as close together as was asked for, by what a step
// takes there once the request is part of it. Where they would nowhere all candidates stay: slowly is better than not at
// all, and the policy knows best where it is least slow.
func (v *View) timely(rec *explain.Record) {
	if v.q.Step <= 0 {
		return
	}
	most, some := v.q.Step.Seconds(), false
	for _, at := range v.cands {
		some = some || v.step(at) <= most
	}
	if !some {
		return
	}
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

// step is the seconds between two tokens on a worker that has taken the request, as predicted.
func (v *View) step(at int32) float64 {
	r := &v.Workers[at].Rates
	a := v.Ledger.account(v.gates[at].id)
	return r.Step(float64(a.seqs())+1, float64(a.heldKV())+kilo*v.context)
}
