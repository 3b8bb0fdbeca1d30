package pick

import (
	"github.com/spillway-lb/spillway/internal/explain"
)

// roundRobin takes the workers in turn, stepping over those that have no room.
func (v *View) roundRobin(q *Query, rec *explain.Record) int32 {
	n := uint32(len(v.Workers))
	chosen := v.cands[0]
	for _, at := range v.cands {
		if uint32(at) >= v.cursor%n {
			chosen = at
			break
		}
	}
	v.cursor = (uint32(chosen) + 1) % n
	v.record(q, rec)
	return chosen
}

// record writes down the predicted seconds of every candidate, for policies that do not look at them.
func (v *View) record(q *Query, rec *explain.Record) {
	if !rec.On() {
		return
	}
	for _, at := range v.cands {
		t := v.cost(q, at)
		h := rec.Candidate(v.Workers[at].Name)
		h.Term("wait", t.wait)
		h.Term("prefill", t.prefill)
		h.Term("kv_wait", t.kvWait)
		h.Term("decode", t.decode)
	}
}
