package perfmodel

import (
	"math"
	"time"
)

const (
	// minDecayHalfLife is the half-life of a pessimistic estimate while no answer arrives. It doubles, up to
	// maxDecayHalfLife, each time an answer confirms the pessimistic estimate.
	minDecayHalfLife = 15 * time.Second
	maxDecayHalfLife = 4 * time.Minute
	// decayedWithin is the ratio to the target within which a decay counts as complete.
	decayedWithin = 1.05
	// probationFactor is the ratio by which a decayed estimate must be faster than the last observed one for the worker
	// to be on probation, which admits one request at a time.
	probationFactor = 1.25
)

// Reference loads at which a worker's rates are compared with its prior's: a prompt of 1,000 tokens, and 8 sequences of
// 1,000 tokens.
var (
	referencePrompt = vector{1, 1}
	referenceStep   = vector{1, 8}
)

// RelativePace returns the time of the reference prompt and the reference step as multiples of the prior's. ok is false
// when nothing was observed since the last DecayToCohort.
func (l *RateLearner) RelativePace() (prefill, step float64, ok bool) {
	return l.prefill.relativePace(&referencePrompt), l.step.relativePace(&referenceStep), l.prefill.observed || l.step.observed
}

// DecayToCohort decays pessimistic estimates of a worker that answers nothing toward prefill and step, its peers' paces
// as multiples of their priors. A worker estimated as slow gets no traffic, so its estimate could never recover without
// this. Optimistic estimates do not decay. changed is true when a rate has changed.
func (l *RateLearner) DecayToCohort(prefill, step float64, now time.Time) (changed bool) {
	dt := now.Sub(l.decayedAt)
	first := l.decayedAt.IsZero()
	l.decayedAt = now
	l.decayHalfLife = min(max(l.decayHalfLife, minDecayHalfLife), maxDecayHalfLife)
	heard := l.prefill.observed || l.step.observed
	l.prefill.observed, l.step.observed = false, false
	if heard || first || dt <= 0 {
		return false
	}
	k := math.Exp2(-float64(dt) / float64(l.decayHalfLife))
	a, b := l.prefill.decayToCohort(&referencePrompt, prefill, k), l.step.decayToCohort(&referenceStep, step, k)
	return a || b || l.endStaleProbation(now)
}

// endStaleProbation ends a probation that no answer has ended within maxDecayHalfLife. Answers that are not streamed
// give no timing.
func (l *RateLearner) endStaleProbation(now time.Time) (ended bool) {
	switch {
	case !l.prefill.decayed && !l.step.decayed:
		l.probationSince = time.Time{}
	case l.probationSince.IsZero():
		l.probationSince = now
	case now.Sub(l.probationSince) > maxDecayHalfLife:
		l.prefill.decayed, l.step.decayed, l.probationSince = false, false, time.Time{}
		return true
	}
	return false
}

// OnProbation reports whether the worker's estimate is much faster than its last observation. Such a worker gets one
// request at a time until an answer confirms or refutes the estimate.
func (l *RateLearner) OnProbation() bool {
	return l.prefill.isOnProbation(&referencePrompt) || l.step.isOnProbation(&referenceStep)
}

// settleProbation adjusts the half-life according to whether the decayed estimate was right.
func (l *RateLearner) settleProbation(f *linearFit, wasDoubted bool) {
	switch {
	case !wasDoubted:
	case f.weights[1] >= f.weightsBeforeDecay[1]/2 && f.weights[0] >= f.weightsBeforeDecay[0]/2:
		l.decayHalfLife = min(2*max(l.decayHalfLife, minDecayHalfLife), maxDecayHalfLife)
	default:
		l.decayHalfLife = minDecayHalfLife
	}
}

func (f *linearFit) relativePace(at *vector) float64 {
	return f.weights.dotProduct(at) / f.priorWeights.dotProduct(at)
}

func (f *linearFit) isOnProbation(at *vector) bool {
	return f.decayed && f.weightsBeforeDecay.dotProduct(at) > probationFactor*f.weights.dotProduct(at)
}

func (f *linearFit) decayToCohort(at *vector, peers, k float64) bool {
	if !(peers > 0) {
		return false
	}
	peers = max(1/maxPriorFactor, min(peers, maxPriorFactor))
	is, to := f.weights.dotProduct(at), peers*f.priorWeights.dotProduct(at)
	if !(is > to*(1+1e-9)) {
		return false
	}
	if !f.decayed {
		f.weightsBeforeDecay, f.decayed = f.weights, true
	}
	if is <= decayedWithin*to {
		k = 0
	}
	for i := range f.weights {
		target := peers * f.priorWeights[i]
		f.weights[i] = target + k*(f.weights[i]-target)
	}
	return true
}

// restoreDecayed is called with the first answer after a decay. It restores the old weights when they fit the answer
// better, and otherwise resets the covariance so that new observations count fully.
func (f *linearFit) restoreDecayed(x *vector, y float64) {
	f.observed = true
	if !f.decayed {
		return
	}
	f.decayed = false
	if math.Abs(y-f.weightsBeforeDecay.dotProduct(x)) < math.Abs(y-f.weights.dotProduct(x)) {
		f.weights = f.weightsBeforeDecay
		return
	}
	f.resetCovariance()
}
