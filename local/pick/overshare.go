package pick

import (
	"math"

	"github.com/spillway-lb/spillway/internal/explain"
)

// A request is over fair share when its tenant uses more than its part of a zone while others wait (see package queue).
// Such a request slows others down in only two ways, because an engine shares each step among its sequences: other
// prefills wait for the running step and share the next one, and every step takes as long as the sequences decoded in
// it require. So such requests enter an engine in pieces that keep both small: a prompt only when the one before it is
// nearly done, and a bounded batch. The rest waits in the queue, where others can overtake it. This is Sarathi-Serve's
// bound on a step (OSDI'24, "stall-free batching": chunks of a few hundred tokens, decodes first), enforced from
// outside, because only the engine chooses its chunks.
//
// Engines must be kept busy all the same, or the zone serves less for being fair. A step without any prompt takes the
// time to read the weights, independent of its batch. So the next prompt is sent before the first token of the last one
// has come back, and batches may grow to the size that consecutive prompts produce. Also, arriving requests need a
// choice of workers: a long prompt over fair share is admitted only while some other workers have no prefill at all.
//
// A request over fair share whose prompt is cached on a worker waits for that worker for as long as computing it on
// another would take. Agents whose turns are recomputed on any worker with room take all engines' time and evict each
// other's caches and those of other tenants.
//
// The bounds on prefill are in tokens and not in seconds: rates are learned from answers, and answers under overload
// are least informative.

// filterOverShare keeps the candidates that have room for a request over fair share.
func filterOverShare(p *placement, rec *explain.Explanation) {
	holder := prefixHolder(p)
	idle, wanted := countIdlePrefill(p)
	keepCandidates(p, ineligibleOverShare, rec, func(at int32) bool {
		return admitsOverShare(p, at, int(at) == holder, idle > wanted) && mayLeaveHolder(p, int(at), holder)
	})
}

// countIdlePrefill returns the number of workers that may take the request and have no prefill, and how many of them
// long requests over fair share must leave so: see overShareIdleFactor.
func countIdlePrefill(p *placement) (n, wanted int) {
	up := 0
	for i := range p.roomInputs {
		a := p.Ledger.TotalsOf(p.roomInputs[i].id)
		if p.roomInputs[i].down || a == nil || p.poolsMatter && p.poolIneligibility(i) != eligible {
			continue
		}
		up++
		if !a.HasPrefill() {
			n++
		}
	}
	return n, int(overShareIdleFactor * math.Sqrt(float64(up)))
}

// admitsOverShare reports whether a worker that has room admits a request over fair share. keeps is set if the worker
// holds the prompt, othersIdle if enough others are without prefill for a long one.
func admitsOverShare(p *placement, at int32, keeps, othersIdle bool) bool {
	b := &p.costInputs[at]
	a := p.Ledger.TotalsOf(b.id)
	own := p.promptTokens - float64(p.match.tokensOn(b.id))*b.hitRate
	back := a.BacklogAt(p.ledgerClock, p.roomInputs[at].prefillRate)
	switch {
	case back > 0 && !(back+own <= overShareMaxPrefill):
		return false
	case own > overShareMaxPrefill && !othersIdle:
		return false
	}
	most := overShareStepFactor
	if keeps {
		most = overShareHolderStepFactor
	}
	seqs := float64(a.Sequences())
	alone := p.Workers[at].Rates.StepBase + b.seqSlope + b.contextSlope*p.meanContext
	return seqs < overShareMinSeqs || !(alone+b.seqSlope*seqs+b.contextSlope*float64(a.HeldKV())/kilo > most*alone)
}

// prefixHolder returns the worker that is up and holds the most of the prompt, at least half of it; -1 when there is
// none.
func prefixHolder(p *placement) int {
	best, most := -1, int32(p.promptCount/2)
	if p.match.index == nil {
		return best
	}
	for i := range p.roomInputs {
		if n := p.match.tokensOn(p.roomInputs[i].id); n > most && !p.roomInputs[i].down {
			best, most = i, n
		}
	}
	return best
}

// mayLeaveHolder reports whether a request over fair share may be computed on another worker than the one that holds
// its prompt. It may once it has waited for the holder for as long as computing the difference takes. Earlier it would
// take that time from others and evict another prefix there, whose requests would then do the same.
func mayLeaveHolder(p *placement, at, holder int) bool {
	if holder < 0 || at == holder {
		return true
	}
	more := p.cachedWorkOn(holder) - p.cachedWorkOn(at)
	return p.query.Waited.Seconds()*p.roomInputs[at].prefillRate >= more
}
