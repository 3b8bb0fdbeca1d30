// Package explain holds the Explanation of one decision: every candidate, why it was ineligible, and its cost terms in
// seconds. All three tiers use the same type, so that a request can be followed from the DNS resolver to the GPU.
//
// A nil *Explanation is the normal case: every method works on nil and allocates nothing, so deciders record their
// reasons unconditionally.
//
// An Explanation holds no prompt, no key and no token.
package explain

// CostTerm is one part of a candidate's cost.
type CostTerm struct {
	Name    string  `json:"name"`    // "rtt", "wait", "prefill", "kv_wait", "decode", "egress", "bias", "credit"
	Seconds float64 `json:"seconds"` // negative where it is a credit
}

// Candidate is one region, zone or worker that a decision considered.
type Candidate struct {
	Name             string     `json:"name"`
	IneligibleReason string     `json:"dropped,omitempty"` // why it could not be chosen; empty when it could
	Terms            []CostTerm `json:"terms,omitempty"`
}

// Explanation is one decision at one tier.
type Explanation struct {
	Tier       string      `json:"tier"`            // "global", "regional" or "local"
	Node       string      `json:"node"`            // the instance that decided
	Query      string      `json:"query"`           // description of the request, without its prompt
	Policy     string      `json:"policy"`          // name of the policy that decided
	Candidates []Candidate `json:"candidates"`      // in the order of consideration
	Chosen     string      `json:"chosen"`          // empty if there was no eligible candidate
	Reason     string      `json:"reason"`          // one of the decider's stable reasons
	Notes      []string    `json:"notes,omitempty"` // ages, versions, anything that qualifies the verdict
}

// IsRecording reports whether the explanation will be read. Deciders need it only to skip work whose result goes only
// into the explanation.
func (r *Explanation) IsRecording() bool { return r != nil }

// AddCandidate adds a candidate and returns a handle for its terms. The handle is a value; with a nil r it costs
// nothing.
func (r *Explanation) AddCandidate(name string) CandidateHandle {
	if r == nil {
		return CandidateHandle{}
	}
	r.Candidates = append(r.Candidates, Candidate{Name: name})
	return CandidateHandle{explanation: r, index: len(r.Candidates) - 1}
}

// SetChosen records the chosen candidate and the reason.
func (r *Explanation) SetChosen(name, reason string) {
	if r == nil {
		return
	}
	r.Chosen, r.Reason = name, reason
}

// AddNote adds a remark that qualifies the decision. Callers build its text only if IsRecording.
func (r *Explanation) AddNote(text string) {
	if r == nil {
		return
	}
	r.Notes = append(r.Notes, text)
}

// CandidateHandle adds to one candidate of an Explanation. The zero CandidateHandle does nothing.
type CandidateHandle struct {
	explanation *Explanation
	index       int
}

// AddTerm adds one cost term in seconds.
func (h CandidateHandle) AddTerm(name string, seconds float64) {
	if h.explanation == nil {
		return
	}
	c := &h.explanation.Candidates[h.index]
	c.Terms = append(c.Terms, CostTerm{Name: name, Seconds: seconds})
}

// MarkIneligible records why the candidate cannot be chosen.
func (h CandidateHandle) MarkIneligible(reason string) {
	if h.explanation == nil {
		return
	}
	h.explanation.Candidates[h.index].IneligibleReason = reason
}

// TotalSeconds returns the candidate's cost: the sum of its terms.
func (c Candidate) TotalSeconds() float64 {
	var sum float64
	for _, t := range c.Terms {
		sum += t.Seconds
	}
	return sum
}
