package sched

import (
	"cmp"
	"time"

	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// learner learns from answers: the speed of workers, the lengths of outputs, and how far predictions were off.
type learner struct {
	*zoneState
	outputLengths *perfmodel.OutputLengths
}

// maxLengthEntries bounds the entries for the prediction of output lengths, about 300 bytes each.
const maxLengthEntries = 8192

// KV cache reserved for an answer: a quantile of the output lengths seen.
const (
	reservedOutputQuantile = 0.8
	defaultOutputTokens    = 384 // in tokens, for a model without answers so far
	minReservedTokens      = 16
)

// predictOutputTokens returns the predicted output length in tokens, within the limits of the request.
func (l *learner) predictOutputTokens(v *Request) int64 {
	if !v.PathShape.GeneratesText() || v.LongestInputTokens > 0 {
		return 0
	}
	limit := int64(v.Envelope.MaxTokens)
	if limit <= 0 {
		limit = l.policy.maxOutputTokens(v.Model)
	}
	likely := l.outputLengths.PredictOutput(v.Model, v.Tenant, v.Query.PromptTokens, reservedOutputQuantile, defaultOutputTokens)
	return min(limit, max(likely, minReservedTokens)) * int64(max(v.Envelope.N, 1))
}

// minTokensForRatio is the smallest estimate, in tokens, from which the ratio of counted to estimated tokens is
// learned. A shorter prompt consists mostly of its chat template (ten tokens and more), so its ratio does not apply
// to longer ones.
const minTokensForRatio = 64

// learnFromAnswer updates the learned rates of the worker and the output lengths of the model from a finished answer.
func (l *learner) learnFromAnswer(at *Attempt, o *AttemptOutcome, atEnd inflight.WorkerLoad) {
	w, p, v := at.Worker, at.group, at.Request
	usage := &o.Usage
	out := float64(o.Events)
	if usage.Stated {
		out = float64(usage.Completion)
		if usage.Prompt > 0 && v.EstimatedTokens >= minTokensForRatio && v.Envelope.Images == 0 {
			p.countRatio.addSample(float64(usage.Prompt) / float64(v.EstimatedTokens))
		}
		w.reportsCached = w.reportsCached || usage.Cached > 0
		if w.reportsCached {
			w.learner.LearnHit(float64(at.Choice.KnownTokens), float64(usage.Cached))
			if at.Choice.LongestHolder {
				p.suffixHitRate.LearnSuffix(at.Choice.SoleHolder, at.Choice.KnownTokens, int64(usage.Cached), int64(usage.Prompt))
			}
		}
		at.learnDeferredTTFT(cmp.Or(int64(usage.Prompt), v.Query.PromptTokens), int64(usage.Cached))
	}
	if out > 0 {
		l.outputLengths.ObserveOutput(v.Model, v.Tenant, v.Query.PromptTokens, int64(out)/int64(max(v.Envelope.N, 1)))
	}
	if !o.IsEventStream || at.firstByteAt.IsZero() {
		return
	}
	if out >= 8 {
		seqs := float64(atEnd.Running + atEnd.ForeignSeqs)
		held := float64(atEnd.KV + atEnd.ForeignKV)
		w.learner.LearnStep((at.sequencesAtSend+seqs)/2, (at.kvTokensAtSend+held)/2, l.decodeSeconds(at)/(out-1))
	}
}

// decodeSeconds is how long a stream's worker has decoded since the first byte, in seconds. Time spent on the prefill
// of other prompts is subtracted (to no less than a quarter of the total); otherwise a busy worker would be estimated
// as a slow decoder.
func (l *learner) decodeSeconds(at *Attempt) float64 {
	all := at.lastByteAt.Sub(at.firstByteAt).Seconds()
	r := at.Worker.learner.Rates()
	return max(all-r.PrefillSlowdown(at.prefilledBefore, l.ledger.PrefilledCounts(at.Worker.ledgerID)), all/4)
}

// predictFirstByte returns the predicted time to an attempt's first byte, in seconds. An answer that is not a stream
// has its first byte at its end.
func (l *learner) predictFirstByte(at *Attempt) float64 {
	if at.Request.Envelope.Stream {
		return at.Choice.PredictedTTFT
	}
	r := at.Worker.learner.Rates()
	return at.Choice.PredictedTTFT + float64(at.Request.ExpectedOutputTokens())*(r.StepBase+r.StepSlope*at.sequencesAtSend)
}

// recordPredictionError records how long an attempt's first byte took. For an attempt that lost the race, the time
// until then is a lower bound.
func (l *learner) recordPredictionError(at *Attempt, o *AttemptOutcome, now time.Time) {
	began := at.firstByteAt
	if o.LostRace && !at.IsHedge {
		began = now
	}
	if !began.IsZero() && (o.LostRace || o.Status/100 == 2) {
		at.group.predictionErrorFor(at.Request).ObserveTTFT(began.Sub(at.SentAt).Seconds(), at.predictedFirstByte)
	}
}
