package perfmodel

import (
	"math"
	"time"
)

// Rates is how fast one worker is, as the cost model uses it.
type Rates struct {
	// PrefillBase is the part of a time to first token that does not depend on the prompt, in seconds.
	PrefillBase float64
	// PrefillRate is uncached prompt tokens per second at the beginning of a prompt.
	PrefillRate float64
	// AttentionSlope is the relative slowdown of a prompt token per thousand tokens before it, because attention
	// compares it with all of them.
	AttentionSlope float64
	// StepBase, StepSlope and StepContext give the seconds between two tokens of a sequence:
	// StepBase + StepSlope x sequences + StepContext x thousands of tokens of context of all of them.
	StepBase, StepSlope, StepContext float64
	// HitRate is the measured part of predicted prefix hits that was cached, 0 to 1; 0 means unknown and counts as 1.
	HitRate float64
}

// IsValid reports whether every rate is finite and not negative, and the prefill rate over zero.
func (r *Rates) IsValid() bool {
	sum := r.PrefillBase + r.PrefillRate + r.AttentionSlope + r.StepBase + r.StepSlope + r.StepContext + r.HitRate
	return r.PrefillRate > 0 && 1/r.PrefillRate < 1e6 && r.PrefillBase >= 0 && r.StepBase >= 0 && r.StepSlope >= 0 && r.StepContext >= 0 &&
		!math.IsNaN(sum) && !math.IsInf(sum, 0)
}

// EffectiveHitRate returns HitRate, or 1 when it is unknown.
func (r *Rates) EffectiveHitRate() float64 {
	if !(r.HitRate > 0 && r.HitRate <= 1) {
		return 1
	}
	return r.HitRate
}

// PrefillWork returns the work of a prompt of which cached tokens are cached, in tokens at the beginning of a prompt. A
// token deep in a long prompt counts for several of those.
func (r *Rates) PrefillWork(prompt, cached int64) int64 {
	return int64(AttentionWork(float64(max(prompt-cached, 1)), float64(cached), r.AttentionSlope/kilo))
}

// AttentionWork returns the work of n tokens after so many others, where each token before adds a relative cost of
// bend.
func AttentionWork(n, after, bend float64) float64 { return n + n*bend*(after+n/2) }

// StepSeconds returns the seconds between two tokens of one of seqs sequences that have so many tokens of context
// together.
func (r *Rates) StepSeconds(seqs, context float64) float64 {
	return r.StepBase + r.StepSlope*seqs + r.StepContext*context/kilo
}

// DecodeRate returns output tokens per second of seqs sequences together, with a thousand tokens of context each.
func (r *Rates) DecodeRate(seqs float64) float64 {
	step := r.StepSeconds(seqs, kilo*seqs)
	if !(step > 0) {
		return 0
	}
	return seqs / step
}

// RateLearner learns one worker's Rates from its answers by recursive least squares with forgetting. Residuals are
// clipped, so a stalled answer or a clock jump cannot spoil the rates, and learned slopes stay within maxPriorFactor of
// the prior.
type RateLearner struct {
	prefill           linearFit
	step              linearFit // seconds by load: see stepLoad
	priorSeqSlope     float64   // the prior's slopes of a step, per sequence and per thousand tokens of context
	priorContextSlope float64
	attentionSlope    float64 // the prior's
	hitRate           float64
	decayedAt         time.Time // last call of DecayToCohort
	decayHalfLife     time.Duration
	probationSince    time.Time // when a decayed worker reached its peers' pace; zero before
	cohorts           [2]cohort // of its peers, for prefill and for steps
}

const (
	maxPriorFactor = 16.0 // learned slopes stay within prior/maxPriorFactor and prior*maxPriorFactor
	// kilo is the tokens in the unit of Rates.AttentionSlope and Rates.StepContext.
	kilo = 1000.0
)

// NewRateLearner returns a learner that starts from a prior.
func NewRateLearner(prior Rates) *RateLearner {
	return &RateLearner{
		prefill:       newLinearFit(vector{prior.PrefillBase, kilo / prior.PrefillRate}),
		step:          newLinearFit(vector{prior.StepBase, prior.StepSlope + prior.StepContext}),
		priorSeqSlope: prior.StepSlope, priorContextSlope: prior.StepContext,
		attentionSlope: prior.AttentionSlope, hitRate: 1,
	}
}

// Rates returns the current rates: those of the worker's cohort, unless the worker diverges from it.
func (l *RateLearner) Rates() Rates {
	return l.ratesFrom(l.cohorts[0].blendWeights(&l.prefill), l.cohorts[1].blendWeights(&l.step))
}

// LearnedRates returns the rates learned from the worker's own answers alone.
func (l *RateLearner) LearnedRates() Rates { return l.ratesFrom(l.prefill.weights, l.step.weights) }

func (l *RateLearner) ratesFrom(p, s vector) Rates {
	k := s[1] / (l.priorSeqSlope + l.priorContextSlope)
	return Rates{
		PrefillBase: p[0], PrefillRate: kilo / p[1], AttentionSlope: l.attentionSlope,
		StepBase: s[0], StepSlope: k * l.priorSeqSlope, StepContext: k * l.priorContextSlope, HitRate: max(l.hitRate, 0.01),
	}
}

// stepLoad returns the load of a step in sequences of a thousand tokens of context. The fit treats sequences and
// context as one quantity, in the ratio of the prior. That ratio depends on the GPU (FLOP/s to bytes/s) more than on
// the worker. A worker's context grows with its sequences, so two separate slopes could not be determined.
func (l *RateLearner) stepLoad(seqs, context float64) float64 {
	return (l.priorSeqSlope*seqs + l.priorContextSlope*context/kilo) / (l.priorSeqSlope + l.priorContextSlope)
}

// LearnFirstToken learns from a time to first token: seconds after dispatch, with work before it as PrefillWork counts
// it, including its own. Implausible observations are ignored.
func (l *RateLearner) LearnFirstToken(work, seconds float64) {
	if !(work >= 1) || work > MaxRequestTokens || !(seconds > 0) || seconds > 600 {
		return
	}
	doubted := l.prefill.decayed
	l.cohorts[0].hasAnswered, l.cohorts[1].hasAnswered = true, true
	l.prefill.addObservation(work/kilo, seconds)
	l.prefill.raiseSlopeToPrior(&vector{1, work / kilo})
	l.settleProbation(&l.prefill, doubted)
}

// LearnStep learns from the mean time between tokens of one sequence, with so many sequences running that have so many
// tokens of context together. Implausible observations are ignored.
func (l *RateLearner) LearnStep(seqs, context, seconds float64) {
	if !(seqs >= 1) || seqs > MaxScrapedSeqs || !(context >= 0) || context > MaxRequestTokens || !(seconds > 0) || seconds > 60 {
		return
	}
	x := l.stepLoad(seqs, context)
	l.step.addObservation(x, seconds)
	l.step.pullToPriorShape(&vector{1, x})
}

// LearnHit learns how much of a predicted prefix hit was cached; both in tokens.
func (l *RateLearner) LearnHit(expected, actual float64) {
	if !(expected >= 64) || !(actual >= 0) {
		return
	}
	l.hitRate += 0.05 * (min(actual/expected, 1) - l.hitRate)
}

// PrefillCounts counts what a worker has prefilled since it was added: prompts whose first byte has arrived.
// CachedPrompts are those that went where most of them was cached; it is counted only for what was sent.
type PrefillCounts struct{ Tokens, Prompts, CachedPrompts int64 }

// hiddenStepPart is the part of a step without prefill that a step with a whole prompt hides: weights are read while it
// computes.
const hiddenStepPart = 0.85

// PrefillSlowdown returns the seconds by which prefill between two counts has lengthened steps.
func (r *Rates) PrefillSlowdown(from, to PrefillCounts) float64 {
	return max(0, r.PrefillStall(float64(to.Tokens-from.Tokens), float64(to.Prompts-from.Prompts)))
}

// PrefillStall returns the seconds by which so many prompts of so many tokens together lengthen steps:
//
//	tokens/PrefillRate - hiddenStepPart x StepBase x prompts
//
// It is negative when the steps hide more than the prompts take.
func (r *Rates) PrefillStall(tokens, prompts float64) float64 {
	return tokens/r.PrefillRate - hiddenStepPart*r.StepBase*prompts
}
