package pick

import "math"

// stalls are what a worker has prefilled lately: counts that forget over stallWindow. Steps in which a prompt is computed are
// longer, so the tokens of an answer come further apart than its batch alone would have them, by the part of the worker's time
// that prompts take.
type stalls struct {
	tokens, prompts float64
	at              int64 // by the ledger's clock, in nanoseconds
}

const (
	stallWindow = 2.0 // seconds
	stallMost   = 0.9 // of the time, is believed at most
)

// count takes one prefill in that is done.
func (s *stalls) count(tokens, now int64) {
	fade := s.fade(now)
	s.tokens, s.prompts, s.at = s.tokens*fade+float64(tokens), s.prompts*fade+1, now
}

func (s *stalls) fade(now int64) float64 {
	return math.Exp(-max(float64(now-s.at)*1e-9, 0) / stallWindow)
}

// part of a worker's time that prompts took lately beyond the steps that they shared.
func (s *stalls) part(r *Rates, now int64) float64 {
	if s.tokens == 0 {
		return 0
	}
	f := s.fade(now) / stallWindow
	p := f * (s.tokens/r.PrefillRate - hidden*r.StepBase*s.prompts)
	if !(p > 0) {
		return 0
	}
	return min(p, stallMost)
}
