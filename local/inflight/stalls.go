package inflight

import (
	"math"

	"github.com/spillway-lb/spillway/local/perfmodel"
)

// prefillStalls counts what a worker has prefilled recently, decaying over stallWindow. Steps that contain a prompt are
// longer, so the tokens of an answer arrive further apart than its batch alone explains, by the part of the worker's
// time that prompts take.
type prefillStalls struct {
	tokens, prompts float64
	updatedAt       int64 // by the ledger's clock, in nanoseconds
}

// addPrefill adds one finished prefill.
func (s *prefillStalls) addPrefill(tokens, now int64) {
	fade := s.decayFactor(now)
	s.tokens, s.prompts, s.updatedAt = s.tokens*fade+float64(tokens), s.prompts*fade+1, now
}

func (s *prefillStalls) decayFactor(now int64) float64 {
	return math.Exp(-max(float64(now-s.updatedAt)*1e-9, 0) / stallWindow)
}

// stalledPart returns the part of a worker's time that prompts took recently beyond the steps that they shared.
func (s *prefillStalls) stalledPart(r *perfmodel.Rates, now int64) float64 {
	if s.tokens == 0 {
		return 0
	}
	f := s.decayFactor(now) / stallWindow
	p := f * r.PrefillStall(s.tokens, s.prompts)
	if !(p > 0) {
		return 0
	}
	return min(p, maxStalledPart)
}
