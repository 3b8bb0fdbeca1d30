package decision

import "github.com/spillway-lb/spillway/internal/explain"

// Term is a part of a candidate's cost.
type Term uint8

// The terms. Their values are part of the file format.
const (
	TermRTT Term = iota
	TermWait
	TermPrefill
	TermKVWait
	TermDecode
	TermAdapter
	TermLoad
	TermCredit
	numTerms
)

// termNames are the names of the terms in explanations.
var termNames = [numTerms]string{"rtt", "wait", "prefill", "kv_wait", "decode", "adapter", "load", "credit"}

// String returns the name of the term in explanations.
func (t Term) String() string { return termNames[t] }

// Candidate is one region, zone or worker that a decision considered, with the terms of its cost.
type Candidate struct {
	Name       string
	Ineligible string // why it could not be chosen; empty when it could
	present    uint8  // the terms that it has, one bit each
	seconds    [numTerms]float32
}

// SetTerm sets one term of the cost, in seconds.
func (c *Candidate) SetTerm(t Term, seconds float64) {
	c.present |= 1 << t
	c.seconds[t] = float32(seconds)
}

// TotalSeconds returns the sum of the terms.
func (c *Candidate) TotalSeconds() float64 {
	var sum float64
	for t := range numTerms {
		sum += float64(c.seconds[t])
	}
	return sum
}

// Explain returns the candidate as explanations show it.
func (c *Candidate) Explain() explain.Candidate {
	out := explain.Candidate{Name: c.Name, IneligibleReason: c.Ineligible}
	for t := range numTerms {
		if c.present&(1<<t) != 0 {
			out.Terms = append(out.Terms, explain.CostTerm{Name: t.String(), Seconds: float64(c.seconds[t])})
		}
	}
	return out
}
