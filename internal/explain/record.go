package explain

// Term is one part of a candidate's cost.
type Term struct {
	Name    string  `json:"name"`    // "rtt", "wait", "prefill", "kv_wait", "decode", "egress", "bias", "credit"
	Seconds float64 `json:"seconds"` // negative where it is a credit
}

// Candidate is one child that a decision looked at.
type Candidate struct {
	Name    string `json:"name"`
	Dropped string `json:"dropped,omitempty"` // why it could not be chosen; empty when it could
	Terms   []Term `json:"terms,omitempty"`
}

// Record is one decision at one tier.
type Record struct {
	Tier       string      `json:"tier"`            // "global", "regional" or "local"
	Node       string      `json:"node"`            // the instance that decided
	Query      string      `json:"query"`           // what was asked, in words: never a prompt
	Policy     string      `json:"policy"`          // which rule decided
	Candidates []Candidate `json:"candidates"`      // in the order they were looked at
	Chosen     string      `json:"chosen"`          // empty when none may serve
	Reason     string      `json:"reason"`          // one of the decider's stable reason words
	Notes      []string    `json:"notes,omitempty"` // ages, versions, anything that qualifies the verdict
}

// On reports whether somebody will read the record. Deciders need it only before work that exists for the reader alone.
func (r *Record) On() bool { return r != nil }

// Candidate adds a candidate and returns a handle for its terms. The handle is a value, and free when r is nil.
func (r *Record) Candidate(name string) Handle {
	if r == nil {
		return Handle{}
	}
	r.Candidates = append(r.Candidates, Candidate{Name: name})
	return Handle{r: r, i: len(r.Candidates) - 1}
}

// Choose writes the verdict down.
func (r *Record) Choose(name, reason string) {
	if r == nil {
		return
	}
	r.Chosen, r.Reason = name, reason
}

// Note adds a remark that qualifies the verdict. Build its text only under On.
func (r *Record) Note(text string) {
	if r == nil {
		return
	}
	r.Notes = append(r.Notes, text)
}

// Handle adds to one candidate of a Record; the zero Handle does nothing.
type Handle struct {
	r *Record
	i int
}

// Term adds one cost term in seconds.
func (h Handle) Term(name string, seconds float64) {
	if h.r == nil {
		return
	}
	c := &h.r.Candidates[h.i]
	c.Terms = append(c.Terms, Term{Name: name, Seconds: seconds})
}

// Drop says why the candidate cannot be chosen.
func (h Handle) Drop(reason string) {
	if h.r == nil {
		return
	}
	h.r.Candidates[h.i].Dropped = reason
}

// Seconds is the candidate's whole cost: the sum of its terms.
func (c Candidate) Seconds() float64 {
	var sum float64
	for _, t := range c.Terms {
		sum += t.Seconds
	}
	return sum
}
