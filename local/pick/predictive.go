package pick

import (
	"math"

	"github.com/spillway-lb/spillway/local/perfmodel"
)

// kvSoftLimit is the part of a worker's KV cache above which a new request is expected to wait or to cause preemption.
// WorkerView.checkRoom applies it in whole tokens.
const kvSoftLimit = 0.9

// Cost of an adapter that is not in the GPU's memory, in seconds.
const (
	adapterLoadSeconds = 0.5 // into a free slot
	adapterSwapSeconds = 1.5 // in place of another adapter
)

// costTerms are the terms of a worker's cost, in seconds.
type costTerms struct {
	wait         float64 // prefill accepted before this request
	prefill      float64 // this request's own uncached prefill
	kvWait       float64 // until KV cache is free for it
	interference float64 // delay that it and the worker's other sequences cause each other, and that it causes later requests
	adapter      float64 // until the model's adapter is loaded
}

func (t *costTerms) totalSeconds() float64 {
	return t.wait + t.prefill + t.kvWait + t.interference + t.adapter
}

// choosePredictive picks the worker with the least predicted cost in seconds; near-ties at random.
func (v *WorkerView) choosePredictive() int32 {
	for _, at := range v.candidates {
		v.costs[at] = v.predictCost(at)
	}
	return v.pickCheapest(nearTieSlack)
}

// predictCost returns the sum of a worker's cost terms. Nearly all of a choice's time is spent here, so the terms are
// stored separately only for an explanation.
func (v *WorkerView) predictCost(at int32) float64 {
	load := &v.loads[at]
	if v.hasAdapters || load.kvTight {
		t := v.predictTerms(at)
		return t.totalSeconds()
	}
	b := &v.costInputs[at]
	own := v.uncachedWorkOn(at) * b.secondsPerToken
	wait := load.backlogTokens * b.secondsPerToken
	return b.prefillBase + wait + own + perfmodel.QueueingExternality(own, wait, float64(b.queueingFactor)) + v.interferenceCost(own, wait, load.seqs, load.heldKilotokens, b.seqSlope, b.contextSlope)
}

// Weights of a second of delay other than time to first token, relative to a second of the request's own or a later
// request's TTFT. They are the middle of the range that was best on the public traces; the order of policies changes
// little within a factor of two.
const (
	// stallWeight weighs a second by which a running answer stalls during a prefill on its worker, or by which the
	// request and other sequences lengthen each other's steps. An answer of some 200 tokens may take 100 ms for each,
	// ten times what a first token may.
	stallWeight = 0.1
	// backlogWeight weighs the backlog before the prompt, for each running sequence. It is no cost of this choice,
	// because those sequences wait for the backlog anyhow, but a predictor: more prompts tend to arrive where a backlog
	// is.
	backlogWeight = 0.03
)

// interferenceCost returns the delay, in seconds, that the request and the worker's running sequences cause each other.
// Each sequence stalls while the request's prompt is prefilled (and during the backlog before it, on any worker). Each
// of their steps is lengthened by the request's context while it decodes, and each of its own steps by theirs.
func (v *WorkerView) interferenceCost(own, wait, count, held, slope, context float64) float64 {
	return count*(stallWeight*own+backlogWeight*wait) + stallWeight*v.outputTokens*(count*(slope+context*v.meanContext)+slope*count+context*held)
}

// nearTieSlack is how much worse than the best cost a worker may be and still be drawn at random. Without it, every
// instance that reads the same numbers would use equal workers in the same order.
func nearTieSlack(best float64) float64 { return max(0.001, 0.005*best) }

func (v *WorkerView) predictTerms(at int32) (t costTerms) {
	b := &v.costInputs[at]
	a := v.Ledger.TotalsOf(b.id)
	seqs := float64(a.Sequences())
	t.wait = v.loads[at].backlogTokens * b.secondsPerToken
	t.prefill = b.prefillBase + v.uncachedWorkOn(at)*b.secondsPerToken
	own := t.prefill - b.prefillBase
	t.interference = perfmodel.QueueingExternality(own, t.wait, float64(b.queueingFactor)) + v.interferenceCost(own, t.wait, seqs, float64(a.HeldKV())/kilo, b.seqSlope, b.contextSlope)
	if b.kvTotal > 0 && seqs > 0 {
		held := float64(a.HeldKV())
		if over := held + v.promptTokens + v.outputTokens - kvSoftLimit*float64(b.kvTotal); over > 0 && held > 0 {
			over = max(over-float64(v.sharedKVOn(int(at), true)), 0)
			life := v.outputTokens * (b.stepBase + b.seqSlope*seqs + b.contextSlope*held/kilo)
			t.kvWait = min(over/held, 1) * life
		}
	}
	if v.hasAdapters {
		switch v.Workers[at].Adapter {
		case AdapterSlotFree:
			t.adapter = adapterLoadSeconds
		case AdapterSlotsFull:
			t.adapter = adapterSwapSeconds
		}
	}
	return t
}

// predictTTFT returns the predicted time to first token on one worker, for every policy.
func (v *WorkerView) predictTTFT(at int32) float64 {
	t := v.predictTerms(at)
	s := t.wait + t.prefill + t.kvWait + t.adapter
	if math.IsNaN(s) {
		return perfmodel.MaxPredictedSeconds
	}
	return max(0, min(s, perfmodel.MaxPredictedSeconds))
}
