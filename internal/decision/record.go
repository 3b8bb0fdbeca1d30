package decision

import (
	"encoding/binary"
	"math"
	"time"
)

// Record is one event of a request.
type Record struct {
	Event     RecordKind
	At        time.Time
	RequestID string
	Tenant    string
	Model     string
	Class     string

	// Of a choice or a refusal.
	PromptTokens, OutputTokens int64 // estimated
	CachedTokens               int64 // expected in the cache of the chosen candidate
	Waited                     time.Duration
	Considered                 int    // all candidates, of which Candidates has the best
	Policy                     string // that decided; empty where there is only one
	Chosen                     string
	Reason                     string // of the choice, or the code of the refusal
	PredictedTTFT              float64
	Candidates                 []Candidate

	// Of an end. Chosen has the endpoint, Reason why it failed, and the tokens are those that the engine reported.
	Outcome   string
	Status    int
	Attempts  int           // of the request at a gateway; 0 elsewhere
	FirstByte time.Duration // after the attempt, or at a gateway the request, began; 0: there was none
	Duration  time.Duration

	// Inputs are what a replay needs besides the fields above, in the encoding of the tier. Of a state, they are all of it.
	Inputs []byte
}

// NewCandidate adds a candidate that the caller fills in. The result is valid until the next call.
func (r *Record) NewCandidate(name string) *Candidate {
	r.Candidates = append(r.Candidates, Candidate{Name: name})
	return &r.Candidates[len(r.Candidates)-1]
}

// Reset empties the record and keeps its memory.
func (r *Record) Reset() { *r = Record{Candidates: r.Candidates[:0], Inputs: r.Inputs[:0]} }

// KeepBest keeps the chosen candidate and, of the others, the eligible ones with the lowest cost before the ineligible ones. Considered
// becomes the number of all.
func (r *Record) KeepBest() {
	r.Considered = max(r.Considered, len(r.Candidates))
	before := func(x, y *Candidate) bool {
		if chosen := x.Name == r.Chosen; chosen != (y.Name == r.Chosen) {
			return chosen
		}
		if eligible := x.Ineligible == ""; eligible != (y.Ineligible == "") {
			return eligible
		}
		return x.TotalSeconds() < y.TotalSeconds()
	}
	n := min(len(r.Candidates), MaxCandidates)
	for i := range n {
		best := i
		for j := i + 1; j < len(r.Candidates); j++ {
			if before(&r.Candidates[j], &r.Candidates[best]) {
				best = j
			}
		}
		r.Candidates[i], r.Candidates[best] = r.Candidates[best], r.Candidates[i]
	}
	r.Candidates = r.Candidates[:n]
}

// appendTo appends the record. Its id comes first, so that a search skips other requests without decoding them.
func (r *Record) appendTo(b []byte) []byte {
	b = append(b, byte(r.Event))
	b = appendText(b, r.RequestID)
	b = binary.AppendVarint(b, r.At.UnixNano())
	if r.Event == EventState {
		return append(b, r.Inputs...)
	}
	b = appendText(b, r.Tenant)
	b = appendText(b, r.Model)
	b = appendText(b, r.Class)
	b = appendText(b, r.Chosen)
	b = appendText(b, r.Reason)
	b = appendCount(appendCount(appendCount(b, r.PromptTokens), r.OutputTokens), r.CachedTokens)
	if r.Event == EventEnd {
		b = appendText(b, r.Outcome)
		b = appendCount(appendCount(b, int64(r.Status)), int64(r.Attempts))
		return appendCount(appendCount(b, int64(r.FirstByte)), int64(r.Duration))
	}
	b = appendText(b, r.Policy)
	b = appendCount(appendCount(b, int64(r.Waited)), int64(r.Considered))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(r.PredictedTTFT))
	n := min(len(r.Candidates), MaxCandidates)
	b = append(b, byte(n))
	for i := range n {
		c := &r.Candidates[i]
		b = append(appendText(appendText(b, c.Name), c.Ineligible), c.present)
		for t := range numTerms {
			if c.present&(1<<t) != 0 {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(c.seconds[t]))
			}
		}
	}
	return append(b, r.Inputs...)
}

// DecodeRecord decodes one record.
func DecodeRecord(b []byte) (Record, error) {
	c := cursor{b: b}
	r := Record{Event: RecordKind(c.takeByte())}
	if r.Event == 0 || r.Event > lastEvent {
		return Record{}, errMalformed
	}
	r.RequestID, r.At = c.takeString(), c.takeTime()
	if r.Event == EventState {
		r.Inputs = c.b
		return r, c.failure()
	}
	r.Tenant, r.Model, r.Class, r.Chosen, r.Reason = c.takeString(), c.takeString(), c.takeString(), c.takeString(), c.takeString()
	r.PromptTokens, r.OutputTokens, r.CachedTokens = c.takeCount(), c.takeCount(), c.takeCount()
	if r.Event == EventEnd {
		r.Outcome = c.takeString()
		r.Status, r.Attempts = int(c.takeCount()), int(c.takeCount())
		r.FirstByte, r.Duration = time.Duration(c.takeCount()), time.Duration(c.takeCount())
		return r, c.failure()
	}
	r.Policy = c.takeString()
	r.Waited, r.Considered = time.Duration(c.takeCount()), int(c.takeCount())
	r.PredictedTTFT = math.Float64frombits(binary.LittleEndian.Uint64(c.takeBytes(8)))
	n := int(c.takeByte())
	if n > MaxCandidates {
		return Record{}, errMalformed
	}
	for range n {
		r.Candidates = append(r.Candidates, c.takeCandidate())
	}
	r.Inputs = c.b
	return r, c.failure()
}

// recordHead returns the id and the time of a record.
func recordHead(b []byte) (id []byte, at time.Time, ok bool) {
	c := cursor{b: b}
	c.takeByte()
	id, at = c.takeText(), c.takeTime()
	return id, at, !c.bad
}

// NextRecord splits the first record off the bytes of a ring or a file. It returns false at the end, and before a record that is
// incomplete.
func NextRecord(b []byte) (record, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n == 0 || n > uint64(len(b)-size) {
		return nil, b, false
	}
	return b[size : size+int(n)], b[size+int(n):], true
}
