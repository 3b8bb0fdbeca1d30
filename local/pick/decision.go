package pick

import "github.com/spillway-lb/spillway/internal/decision"

// FillDecision adds to rec the chosen worker of the last choice and the others with the lowest costs, with the terms of their
// costs. It uses what the choice has computed and must be called before anything else changes the view or the ledger.
func FillDecision(v *WorkerView, choice Choice, rec *decision.Record) {
	p := &v.placement
	rule := p.Policy.ruleOf()
	rec.Policy, rec.Reason, rec.Chosen, rec.Considered = rule.name, choice.Reason, p.Workers[choice.Index].Name, len(p.Workers)
	rec.PredictedTTFT, rec.CachedTokens = choice.PredictedTTFT, choice.CachedTokens
	addCandidate(p, int32(choice.Index), rec)
	comparable := p.Policy == Predictive || rule.unit != "" // otherwise the policy has no costs
	var best [decision.MaxCandidates - 1]int32
	n := 0
	for _, at := range p.candidates {
		if at == int32(choice.Index) || n == len(best) && !(comparable && p.costs[at] < p.costs[best[n-1]]) {
			continue
		}
		if n < len(best) {
			n++
		}
		i := n - 1
		for ; comparable && i > 0 && p.costs[at] < p.costs[best[i-1]]; i-- {
			best[i] = best[i-1]
		}
		best[i] = at
	}
	for _, at := range best[:n] {
		addCandidate(p, at, rec)
	}
}

// addCandidate adds a worker with the terms of its cost in seconds.
func addCandidate(p *placement, at int32, rec *decision.Record) {
	t := p.predictTerms(at)
	c := rec.NewCandidate(p.Workers[at].Name)
	c.SetTerm(decision.TermWait, t.wait)
	c.SetTerm(decision.TermPrefill, t.prefill)
	c.SetTerm(decision.TermDecode, t.later+t.interference)
	if t.kvWait > 0 {
		c.SetTerm(decision.TermKVWait, t.kvWait)
	}
	if t.adapter > 0 {
		c.SetTerm(decision.TermAdapter, t.adapter)
	}
}
