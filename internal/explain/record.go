package explain

// CostTerm is one part of a candidate's cost.
type CostTerm struct {
	Name    string  `json:"name"`    // "rtt", "wait", "prefill", "kv_wait", "decode", "egress", "bias", "credit"
	Seconds float64 `json:"seconds"` // negative where it is a credit
}

// Candidate is one child that a decision looked at.
type Candidate struct {
	Name             string     `json:"name"`
	IneligibleReason string     `json:"dropped,omitempty"` // why it could not be chosen; empty when it could
	Terms            []CostTerm `json:"terms,omitempty"`
}

// Explanation is one decision at one tier.
type Explanation struct {
	Tier       string      `json:"tier"`            // "global", "regional" or "local"
	Node       string      `json:"node"`            // the instance that decided
	Query      string      `json:"query"`           // what was asked, in words: never a prompt
	Policy     string      `json:"policy"`          // which rule decided
	Candidates []Candidate `json:"candidates"`      // in the order they were looked at
	Chosen     string      `json:"chosen"`          // empty when none may serve
	Reason     string      `json:"reason"`          // one of the decider's stable reason words
	Notes      []string    `json:"notes,omitempty"` // ages, versions, anything that qualifies the verdict
}

// IsRecording reports whether somebody will read the record. Deciders need it only before work that exists for the reader alone.
func (r *Explanation) IsRecording() bool { return r != nil }

// AddCandidate adds a candidate and returns a handle for its terms. The handle is a value, and free when r is nil.
func (r *Explanation) AddCandidate(name string) CandidateHandle {
	if r == nil {
		return CandidateHandle{}
	}
	r.Candidates = append(r.Candidates, Candidate{Name: name})
	return CandidateHandle{explanation: r, index: len(r.Candidates) - 1}
}

// SetChosen writes the verdict down.
func (r *Explanation) SetChosen(name, reason string) {
	if r == nil {
		return
	}
	r.Chosen, r.Reason = name, reason
}

// AddNote adds a remark that qualifies the verdict. Build its text only under On.
func (r *Explanation) AddNote(text string) {
	if r == nil {
		return
	}
	r.Notes = append(r.Notes, text)
}

// CandidateHandle adds to one candidate of a Record; the zero Handle does nothing.
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

// MarkIneligible says why the candidate cannot be chosen.
func (h CandidateHandle) MarkIneligible(reason string) {
	if h.explanation == nil {
		return
	}
	h.explanation.Candidates[h.index].IneligibleReason = reason
}

// TotalSeconds is the candidate's whole cost: the sum of its terms.
func (c Candidate) TotalSeconds() float64 {
	var sum float64
	for _, t := range c.Terms {
		sum += t.Seconds
	}
	return sum
}
