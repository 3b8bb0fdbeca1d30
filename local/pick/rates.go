package pick

import "time"

// Rates is how fast one worker is, as the chooser uses it.
type Rates struct {
	// PrefillBase is the part of a time to first token that does not depend on the prompt, in seconds.
	PrefillBase float64
	// PrefillRate is uncached prompt tokens per second where nothing is before them.
	PrefillRate float64
	// Attention is by how much a thousand tokens before it make a prompt token slower, as a part: each is compared with them all.
	Attention float64
	// StepBase, StepSlope and StepContext give the seconds between two tokens of a sequence:
	// StepBase + StepSlope x sequences + StepContext x thousands of tokens of context of all of them.
	StepBase, StepSlope, StepContext float64
	// Trust is the part of believed prefix hits that turned out to be true, 0..1; 0 means not known, taken as 1.
	Trust float64
}

func (r *Rates) trust() float64 {
	if !(r.Trust > 0 && r.Trust <= 1) {
		return 1
	}
	return r.Trust
}

// Work is what a prompt takes of which so much is cached, in uncached tokens with nothing before them: what is deep in a long
// prompt counts for several of those.
func (r *Rates) Work(prompt, cached int64) int64 {
	return int64(bent(float64(max(prompt-cached, 1)), float64(cached), r.Attention/kilo))
}

// bent is the work of n tokens after so many others, each of which makes a token slower by a part bend.
func bent(n, after, bend float64) float64 { return n + n*bend*(after+n/2) }

// Step is the seconds between two tokens of one of so many sequences, with so many tokens of context between them.
func (r *Rates) Step(seqs, context float64) float64 {
	return r.StepBase + r.StepSlope*seqs + r.StepContext*context/kilo
}

// DecodeRate is output tokens per second at so many sequences together, of a thousand tokens of context each.
func (r *Rates) DecodeRate(seqs float64) float64 {
	step := r.Step(seqs, kilo*seqs)
	if !(step > 0) {
		return 0
	}
	return seqs / step
}

// Learner learns one worker's Rates from its own answers by recursive least squares with forgetting. An observation
// far from what was expected pulls no harder than one at the edge of the believable, so a stalled answer or a
// clock jump cannot spoil the rates; and they stay within spread of the prior, so that nothing absurd can be learned.
type Learner struct {
	prefill   fit
	step      fit     // seconds by load: see burden
	slope     float64 // of a step, per sequence and per thousand tokens of context: the prior's
	context   float64
	attention float64 // the prior's
	trust     float64
	faded     time.Time // when it last faded, or might have
	half      time.Duration
	since     time.Time // when a doubted worker had come to its peers' pace; zero before
	crowd     [2]crowd  // what its peers take for prefill and for steps
}

const (
	spread = 16.0 // learned slopes stay within prior/spread and prior x spread
	kilo   = 1000.0
)

// NewLearner starts from a prior.
func NewLearner(prior Rates) *Learner {
	return &Learner{
		prefill: newFit(vector{prior.PrefillBase, kilo / prior.PrefillRate}),
		step:    newFit(vector{prior.StepBase, prior.StepSlope + prior.StepContext}),
		slope:   prior.StepSlope, context: prior.StepContext,
		attention: prior.Attention, trust: 1,
	}
}

// Rates returns what is believed now: what the worker's peers have shown, unless it stands apart from them.
func (l *Learner) Rates() Rates {
	return l.rates(l.crowd[0].temper(&l.prefill), l.crowd[1].temper(&l.step))
}

// Learned returns what the worker's own answers have shown.
func (l *Learner) Learned() Rates { return l.rates(l.prefill.w, l.step.w) }

func (l *Learner) rates(p, s vector) Rates {
	k := s[1] / (l.slope + l.context)
	return Rates{
		PrefillBase: p[0], PrefillRate: kilo / p[1], Attention: l.attention,
		StepBase: s[0], StepSlope: k * l.slope, StepContext: k * l.context, Trust: max(l.trust, 0.01),
	}
}

// burden is how many times a sequence of a thousand tokens' context a step bears. Sequences and context are one quantity
// to the fit, in the proportion of the prior, which is the GPU's (FLOP/s to bytes/s) more than the worker's: a worker's
// contexts grow with its sequences, so that two slopes would not be told apart, and either would be anything.
func (l *Learner) burden(seqs, context float64) float64 {
	return (l.slope*seqs + l.context*context/kilo) / (l.slope + l.context)
}

// FirstToken learns from a time to first token: seconds after dispatch, with work in front of it as Work reckons it, its own
// included. Absurd observations are ignored.
func (l *Learner) FirstToken(work, seconds float64) {
	if !(work >= 1) || work > maxAsk || !(seconds > 0) || seconds > 600 {
		return
	}
	doubted := l.prefill.doubted
	l.crowd[0].seen, l.crowd[1].seen = true, true
	l.prefill.observe(work/kilo, seconds)
	l.prefill.steepen(&vector{1, work / kilo})
	l.settle(&l.prefill, doubted)
}

// Step learns from the mean time between tokens of one sequence, with so many sequences running and so many tokens of
// context between them. Absurd observations are ignored.
func (l *Learner) Step(seqs, context, seconds float64) {
	if !(seqs >= 1) || seqs > maxSeqs || !(context >= 0) || context > maxAsk || !(seconds > 0) || seconds > 60 {
		return
	}
	x := l.burden(seqs, context)
	l.step.observe(x, seconds)
	l.step.lean(&vector{1, x})
}

// Hit learns how much of a believed prefix hit was true; both in tokens.
func (l *Learner) Hit(believed, actual float64) {
	if !(believed >= 64) || !(actual >= 0) {
		return
	}
	l.trust += 0.05 * (min(actual/believed, 1) - l.trust)
}
