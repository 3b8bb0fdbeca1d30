package pick

// Rates is how fast one worker is, as the chooser uses it.
type Rates struct {
	// PrefillBase is the part of a time to first token that does not depend on the prompt, in seconds.
	PrefillBase float64
	// PrefillRate is uncached prompt tokens per second.
	PrefillRate float64
	// StepBase and StepSlope give the seconds between two tokens of a sequence: StepBase + StepSlope x sequences.
	StepBase, StepSlope float64
	// Trust is the part of believed prefix hits that turned out to be true, 0..1; 0 means not known, taken as 1.
	Trust float64
}

func (r *Rates) trust() float64 {
	if r.Trust <= 0 || r.Trust > 1 {
		return 1
	}
	return r.Trust
}

// DecodeRate is output tokens per second at so many sequences together.
func (r *Rates) DecodeRate(seqs float64) float64 {
	step := r.StepBase + r.StepSlope*seqs
	if step <= 0 {
		return 0
	}
	return seqs / step
}

// Learner learns one worker's Rates from its own answers by recursive least squares with forgetting. An observation
// far from what was expected pulls no harder than one at the edge of the believable, so a stalled answer or a
// clock jump cannot spoil the rates; and they stay within spread of the prior, so that nothing absurd can be learned.
type Learner struct {
	prior   Rates
	prefill fit
	step    fit
	trust   float64
}

const (
	spread = 16.0 // learned slopes stay within prior/spread and prior x spread
	kilo   = 1000.0
)

// NewLearner starts from a prior.
func NewLearner(prior Rates) *Learner {
	l := &Learner{prior: prior, trust: 1}
	l.prefill = newFit(prior.PrefillBase, kilo/prior.PrefillRate)
	l.step = newFit(prior.StepBase, prior.StepSlope)
	return l
}

// Rates returns what is believed now.
func (l *Learner) Rates() Rates {
	pb, ps := l.prefill.bounded()
	sb, ss := l.step.bounded()
	return Rates{PrefillBase: pb, PrefillRate: kilo / ps, StepBase: sb, StepSlope: ss, Trust: max(l.trust, 0.01)}
}

// FirstToken learns from a time to first token: seconds after dispatch, with work uncached prompt tokens in front of
// it, its own included. Absurd observations are ignored.
func (l *Learner) FirstToken(work, seconds float64) {
	if !(work >= 1) || !(seconds > 0) || seconds > 600 {
		return
	}
	l.prefill.observe(work/kilo, seconds)
}

// Step learns from the mean time between tokens of one sequence, with so many sequences running.
func (l *Learner) Step(seqs, seconds float64) {
	if !(seqs >= 1) || !(seconds > 0) || seconds > 60 {
		return
	}
	l.step.observe(seqs, seconds)
}

// Hit learns how much of a believed prefix hit was true; both in tokens.
func (l *Learner) Hit(believed, actual float64) {
	if !(believed >= 64) || !(actual >= 0) {
		return
	}
	l.trust += 0.05 * (min(actual/believed, 1) - l.trust)
}
