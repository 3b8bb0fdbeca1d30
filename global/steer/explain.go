package steer

import (
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/spec"
)

// PickReason is the rule that picked the region.
type PickReason uint8

// Reasons for a choice.
const (
	ReasonNone           PickReason = iota
	ReasonNearest                   // cheapest by RTT, wait, bias and price
	ReasonPlanned                   // by the plan's row for the cell
	ReasonWeight                    // by the service's declared weights
	ReasonOrder                     // first of the failover order
	ReasonSpread                    // location unknown: spread by capacity
	ReasonAllDrained                // every available region is drained: one of those
	ReasonAllUnavailable            // every region is unavailable: answered anyway
	ReasonCanary                    // within the fraction of clients that the canary region takes
	ReasonPinned                    // by a pin of the plan's row for the cell: the client's network has much demand
)

var reasonNames = [...]string{"none", "nearest", "planned", "weight", "order", "spread", "all_drained", "all_lost", "canary", "pinned"}

// String is the stable name for metrics and answers.
func (r PickReason) String() string { return reasonNames[r] }

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
		if why := ineligibleReason(st, q, &open, &may, r); why != "" {
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

// ineligibleReason is the first rule that excludes region r, empty for an eligible one.
func ineligibleReason(st *serviceTable, q *PickQuery, open, may *RegionSet, r int) string {
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
