package pick

import (
	"fmt"
	"math"
	"strings"

	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// The cost of policy predictive is a sum of terms in seconds. loadTerms computes those that follow from a worker's rates
// and load; predictTerms adds the two rare ones. Everything else derives from them: predictCost is their sum, the
// pruner's bound is the sum of loadTerms without lateness, a group's bound that of the most favourable inputs of its
// members, and an explanation shows them one by one.

// loadTerms are the terms of a worker's cost that follow from its rates and its load, in seconds.
type loadTerms struct {
	wait         float64 // prefill accepted before this request
	prefill      float64 // this request's own uncached prefill
	later        float64 // delay that it causes later requests
	interference float64 // delay that it and the worker's other sequences cause each other
}

// costTerms are all terms of a worker's cost, in seconds.
type costTerms struct {
	loadTerms
	loadSum float64 // of the terms above
	kvWait  float64 // until KV cache is free for the request
	adapter float64 // until the model's adapter is loaded
}

// totalSeconds returns the cost.
func (t *costTerms) totalSeconds() float64 { return t.loadSum + t.kvWait + t.adapter }

// ttftSeconds returns the terms that delay the request's own first token.
func (t *costTerms) ttftSeconds() float64 { return t.wait + t.prefill + t.kvWait + t.adapter }

// loadTerms returns the terms by rates and load, with lateTokens added to the backlog, and their sum. Once the sum without
// interference exceeds enough, interference stays zero: a bound that is over the limit needs no more. Nearly all of a
// choice's time is spent here, which is why the sum is returned and not computed again.
func (p *placement) loadTerms(b *costInputs, lateTokens, enough float64) (t loadTerms, sum float64) {
	a := p.Ledger.TotalsOf(b.id)
	if a == nil {
		return t, 0 // checkRoom finds that the worker has no slot in the ledger
	}
	wait := (a.BacklogAt(p.ledgerClock, b.prefillRate) + lateTokens) * b.secondsPerToken
	t, own, sum := prefillTerms(&p.request, b, float64(p.match.tokensOn(b.id))*b.hitRate, wait)
	if sum > enough {
		return t, sum
	}
	t.interference = interferenceSeconds(&p.request, b, own, wait, float64(a.Sequences()), float64(a.HeldKV())/kilo)
	return t, sum + t.interference
}

// prefillTerms returns the terms of a prompt of which cached tokens are cached and before which a backlog takes wait
// seconds, their sum, and the seconds of the request's own prefill.
func prefillTerms(r *request, b *costInputs, cached, wait float64) (t loadTerms, own, sum float64) {
	own = perfmodel.AttentionWork(r.promptTokens-cached, cached, b.attentionSlope) * b.secondsPerToken
	t.wait = wait
	t.prefill = b.prefillBase + own
	t.later = perfmodel.QueueingExternality(own, wait, float64(b.queueingFactor))
	return t, own, t.wait + t.prefill + t.later
}

// interferenceSeconds returns the delay that the request and seqs sequences with held thousands of tokens of KV cache cause
// each other. Each of the sequences stalls while the request's prompt is prefilled (and during the backlog before it, on
// any worker). Each of their steps is lengthened by the request's context while it decodes, and each of its own steps by
// theirs.
func interferenceSeconds(r *request, b *costInputs, own, wait, seqs, held float64) float64 {
	stall := seqs * (stallWeight*own + backlogWeight*wait)
	steps := seqs*(b.seqSlope+b.contextSlope*r.meanContext) + b.seqSlope*seqs + b.contextSlope*held
	return stall + stallWeight*r.outputTokens*steps
}

// predictTerms returns the terms of a candidate's cost.
func (p *placement) predictTerms(at int32) costTerms {
	t, sum := p.loadTerms(&p.costInputs[at], p.loads[at].lateTokens, math.Inf(1))
	return costTerms{loadTerms: t, loadSum: sum, kvWait: p.kvWaitOn(at), adapter: p.adapterSeconds(at)}
}

// kvWaitOn returns the predicted time until a worker's KV cache has room for the request, in seconds. What exceeds
// kvSoftLimit is freed as running answers end, in proportion to what they hold.
func (p *placement) kvWaitOn(at int32) float64 {
	b := &p.roomInputs[at]
	if b.kvTotal <= 0 {
		return 0
	}
	a := p.Ledger.TotalsOf(b.id)
	seqs, held := float64(a.Sequences()), float64(a.HeldKV())
	over := held + p.promptTokens + p.outputTokens - kvSoftLimit*float64(b.kvTotal)
	if !(over > 0 && held > 0 && seqs > 0) {
		return 0
	}
	over = max(over-float64(p.sharedKVWith(int(at))), 0)
	return min(over/held, 1) * p.outputTokens * p.Workers[at].Rates.StepSeconds(seqs, held)
}

// adapterSeconds returns the time to load the model's adapter, in seconds.
func (p *placement) adapterSeconds(at int32) float64 {
	if !p.hasAdapters {
		return 0
	}
	switch p.Workers[at].Adapter {
	case AdapterSlotFree:
		return adapterLoadSeconds
	case AdapterSlotsFull:
		return adapterSwapSeconds
	}
	return 0
}

// predictCost returns the cost of a candidate, in seconds.
func (p *placement) predictCost(at int32) float64 {
	t := p.predictTerms(at)
	return t.totalSeconds()
}

// boundedTTFT returns ttftSeconds within the bounds of a prediction.
func (t *costTerms) boundedTTFT() float64 {
	s := t.ttftSeconds()
	if math.IsNaN(s) {
		return perfmodel.MaxPredictedSeconds
	}
	return max(0, min(s, perfmodel.MaxPredictedSeconds))
}

// choiceTerms returns the terms as an explanation shows them. A term that is not a number, from invalid learned parameters, is the
// longest time that is predicted.
func (t *costTerms) choiceTerms() ChoiceTerms {
	bound := func(s float64) float64 {
		if math.IsNaN(s) {
			return perfmodel.MaxPredictedSeconds
		}
		return s
	}
	return ChoiceTerms{Wait: bound(t.wait), Prefill: bound(t.prefill), KVWait: bound(t.kvWait), Decode: bound(t.later + t.interference), Adapter: bound(t.adapter)}
}

// nearTieSlack is how much worse than the best cost a worker may be and still be drawn at random.
func nearTieSlack(best float64) float64 { return max(nearTieSeconds, nearTiePart*best) }

// choosePredictive picks the worker with the least predicted cost in seconds; near-ties at random.
func choosePredictive(p *placement) int32 {
	if math.IsInf(p.pruner.best, 1) { // else screening has computed the costs
		for _, at := range p.candidates {
			p.costs[at] = p.predictCost(at)
		}
	}
	if len(p.Workers) >= searchedFrom {
		return drawNearTie(p)
	}
	return pickCheapest(p, nearTieSlack)
}

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
