package steer

import (
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/spec"
)

// ExplainPick records every region for the query with its cost terms and the reason that excluded it, and returns the
// choice of PickRegion. wait is the current queue wait by region, in seconds; nil means that of the plan.
func (t *Table) ExplainPick(s *spec.Spec, q *PickQuery, wait []float64, rec *explain.Explanation) Choice {
	c := t.PickRegion(q)
	if !rec.IsRecording() {
		return c
	}
	st := &t.services[q.Service]
	rec.Policy = modeName(st.mode)
	may, _ := st.eligibleRegions(q)
	open := may
	st.thinClients(q, &may)
	if wait == nil {
		wait = st.wait
	}
	rtt := t.geo.RTTRow(q.Cell)
	for r := range s.Regions {
		h := rec.AddCandidate(s.Regions[r].Name)
		if rtt != nil {
			h.AddTerm("rtt", float64(rtt[r]))
		}
		h.AddTerm("wait", wait[r])
		bend := 0.0
		if rtt != nil {
			bend = float64(rtt[r]) * (st.stretch[r] - 1)
		}
		h.AddTerm("bias", st.bias[r]+bend)
		if st.price[r] > 0 {
			h.AddTerm("price", st.price[r])
		}
		if why := st.ineligibleReason(q, &open, &may, r); why != "" {
			h.MarkIneligible(why)
		}
	}
	if c.Region >= 0 {
		rec.SetChosen(s.Regions[c.Region].Name, c.Reason.String())
	} else {
		rec.SetChosen("", "residency")
	}
	return c
}

func modeName(m steeringMode) string {
	return [...]string{"latency", "geo", "weighted", "failover"}[m]
}

// ineligibleReason is the first rule that excludes region r.
func (st *serviceTable) ineligibleReason(q *PickQuery, open, may *RegionSet, r int) string {
	switch {
	case may.Has(r):
		return ""
	case open.Has(r) && r < len(q.DrainRemaining) && q.DrainRemaining[r] > 0:
		return "drain_under_way"
	case open.Has(r):
		return "returning"
	case !st.allowed.Has(r):
		return "not_of_service"
	case q.Excluded.Has(r):
		return "residency"
	case q.Drained.Has(r):
		return "drained"
	case q.Unavailable.Has(r):
		return "lost"
	}
	return "worse_state"
}
