package perfmodel

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
