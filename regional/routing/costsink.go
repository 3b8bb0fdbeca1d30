package routing

import (
	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/internal/explain"
)

// costSink gets the candidates of a choice with the terms of their costs. The zero costSink records nothing.
type costSink struct {
	rec *explain.Explanation
	log *decision.Record
}

// isRecording reports whether candidates are recorded.
func (s costSink) isRecording() bool { return s.rec != nil || s.log != nil }

// addCandidate adds a candidate and returns a handle for its terms.
func (s costSink) addCandidate(name string) costHandle {
	h := costHandle{explained: s.rec.AddCandidate(name)}
	if s.log != nil {
		s.log.NewCandidate(name)
		h.log, h.index = s.log, len(s.log.Candidates)-1
	}
	return h
}

// costHandle adds to one candidate. The zero costHandle does nothing.
type costHandle struct {
	explained explain.CandidateHandle
	log       *decision.Record
	index     int
}

// addTerm adds one cost term in seconds.
func (h costHandle) addTerm(t decision.Term, seconds float64) {
	h.explained.AddTerm(t.String(), seconds)
	if h.log != nil {
		h.log.Candidates[h.index].SetTerm(t, seconds)
	}
}

// markIneligible records why the candidate cannot be chosen.
func (h costHandle) markIneligible(reason string) {
	h.explained.MarkIneligible(reason)
	if h.log != nil {
		h.log.Candidates[h.index].Ineligible = reason
	}
}
