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

const (
	// overShareMaxPrefill is the maximum prefill in an engine when a request over fair share joins it, in tokens,
	// including the uncached part of its own prompt, as far as the clock estimates it as not yet done. It is what a
	// step takes in about twice the time it needs to read the weights (peak FLOP/s over bytes/s: 150 to 300 tokens from
	// A100 to H200). A longer prompt must have the engine's prefill to itself and leaves some workers without any
	// prefill (WorkerView.countIdlePrefill).
	overShareMaxPrefill = 450
	// overShareStepFactor is the maximum step time of a worker, as a multiple of a lone sequence's, up to which it
	// admits requests over fair share.
	overShareStepFactor = 2.0
	// overShareHolderStepFactor is the same where the prompt is cached. There the request costs others only step time,
	// and on any other worker a prefill.
	overShareHolderStepFactor = 3.0
	// overShareMinSeqs is the number of sequences that are always admitted, independent of the estimated step time.
	overShareMinSeqs = 4
)

// filterOverShare keeps the candidates that have room for a request over fair share.
func (v *WorkerView) filterOverShare(rec *explain.Explanation) {
	kept, keeper := v.candidates[:0], v.prefixHolder()
	idle, wanted := v.countIdlePrefill()
	for _, at := range v.candidates {
		if v.admitsOverShare(at, int(at) == keeper, idle > wanted) && v.mayLeaveHolder(int(at), keeper) {
			kept = append(kept, at)
		} else if rec.IsRecording() {
			rec.AddCandidate(v.Workers[at].Name).MarkIneligible(ineligibleOverShare.String())
		}
	}
	v.candidates = kept
}

// countIdlePrefill returns the number of workers that may take the request and have no prefill, and how many of them
// long requests over fair share must leave so. Square-root staffing (Halfin and Whitt) asks for the square root of all
// as spare servers; half of it is used here, and none below four workers.
func (v *WorkerView) countIdlePrefill() (n, wanted int) {
	up := 0
	for i := range v.admissionInputs {
		a := v.Ledger.TotalsOf(v.admissionInputs[i].id)
		if v.admissionInputs[i].down || a == nil || v.poolsMatter && v.poolIneligibility(i) != eligible {
			continue
		}
		up++
		if !a.HasPrefill() {
			n++
		}
	}
	return n, int(math.Sqrt(float64(up)) / 2)
}

// admitsOverShare reports whether a worker that has room admits a request over fair share. keeps is set if the worker
// holds the prompt, othersIdle if enough others are without prefill for a long one.
func (v *WorkerView) admitsOverShare(at int32, keeps, othersIdle bool) bool {
	b := &v.costInputs[at]
	a := v.Ledger.TotalsOf(b.id)
	own := v.promptTokens - float64(v.cachedTokensOn(b.id))*b.hitRate
	back := a.BacklogAt(v.ledgerClock, v.admissionInputs[at].prefillRate)
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
	alone := b.stepBase + b.seqSlope + b.contextSlope*v.meanContext
	return seqs < overShareMinSeqs || !(alone+b.seqSlope*seqs+b.contextSlope*float64(a.HeldKV())/kilo > most*alone)
}

// prefixHolder returns the worker that is up and holds the most of the prompt, at least half of it; -1 when there is
// none.
func (v *WorkerView) prefixHolder() int {
	best, most := -1, int32(v.promptCount/2)
	if !v.prefixKnown {
		return best
	}
	for i := range v.admissionInputs {
		if n := v.cachedTokensOn(v.admissionInputs[i].id); n > most && !v.admissionInputs[i].down {
			best, most = i, n
		}
	}
	return best
}

// mayLeaveHolder reports whether a request over fair share may be computed on another worker than the one that holds
// its prompt. It may once it has waited for the holder for as long as computing the difference takes. Earlier it would
// take that time from others and evict another prefix there, whose requests would then do the same.
func (v *WorkerView) mayLeaveHolder(at, keeper int) bool {
	if keeper < 0 || at == keeper {
		return true
	}
	more := v.cachedWorkOn(keeper, v.admissionInputs[keeper].id) - v.cachedWorkOn(at, v.admissionInputs[at].id)
	return v.query.Waited.Seconds()*v.admissionInputs[at].prefillRate >= more
}
