package steer

import (
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/spec"
)

// Explain writes down every region for the query with its cost terms and what dropped it, and returns what Pick picks.
// wait is the queue wait by region as the caller sees it now, in seconds; nil means as the plan knew it.
func (t *Table) Explain(s *spec.Spec, q *Query, wait []float64, rec *explain.Record) Choice {
	c := t.Pick(q)
	if !rec.On() {
		return c
	}
	st := &t.services[q.Service]
	rec.Policy = policyName(st.mode)
	may, _ := st.candidates(q)
	if wait == nil {
		wait = st.wait
	}
	rtt := t.geo.Row(q.Cell)
	for r := range s.Regions {
		h := rec.Candidate(s.Regions[r].Name)
		if rtt != nil {
			h.Term("rtt", float64(rtt[r]))
		}
		h.Term("wait", wait[r])
		bend := 0.0
		if rtt != nil {
			bend = float64(rtt[r]) * (st.stretch[r] - 1)
		}
		h.Term("bias", st.bias[r]+bend)
		if st.price[r] > 0 {
			h.Term("price", st.price[r])
		}
		if why := st.dropped(q, &may, r); why != "" {
			h.Drop(why)
		}
	}
	if c.Region >= 0 {
		rec.Choose(s.Regions[c.Region].Name, c.Reason.String())
	} else {
		rec.Choose("", "residency")
	}
	return c
}

func policyName(m mode) string {
	return [...]string{"latency", "geo", "weighted", "failover"}[m]
}

// dropped names the first rule that keeps region r out.
func (st *serviceTable) dropped(q *Query, may *Set, r int) string {
	switch {
	case may.Has(r):
		return ""
	case !st.allowed.Has(r):
		return "not_of_service"
	case q.Barred.Has(r):
		return "residency"
	case q.Drained.Has(r):
		return "drained"
	case q.Lost.Has(r):
		return "lost"
	}
	return "worse_state"
}
