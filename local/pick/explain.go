package pick

import (
	"fmt"
	"strings"

	"github.com/spillway-lb/spillway/internal/explain"
)

// recordCosts records the predicted seconds of every candidate, and the policy's own costs where they have another
// unit.
func (p *placement) recordCosts(r *policyRule, rec *explain.Explanation) {
	for _, at := range p.candidates {
		t := p.predictTerms(at)
		h := rec.AddCandidate(p.Workers[at].Name)
		h.AddTerm("wait", t.wait)
		h.AddTerm("prefill", t.prefill)
		h.AddTerm("kv_wait", t.kvWait)
		h.AddTerm("decode", t.later+t.interference)
		if t.adapter > 0 {
			h.AddTerm("adapter", t.adapter)
		}
	}
	if r.unit == "" {
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, "decided by %s:", r.unit)
	for i, at := range p.candidates {
		if i == maxNotedCosts {
			fmt.Fprintf(&text, " and %d more", len(p.candidates)-i)
			break
		}
		fmt.Fprintf(&text, " %s=%.4g", p.Workers[at].Name, p.costs[at])
	}
	rec.AddNote(text.String())
}
