package consensus

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Bounds of what the state keeps.
const (
	maxSpecs   = 10
	maxHistory = 16 << 20 // bytes of specs in the history; the current one and the one before stay whatever they have
	maxDrains  = 4096
	maxKeys    = 3
	maxOutcome = 256
	maxWanted  = 64
)

// State is everything that was agreed, as of one log index. It is immutable: do not write to anything reached from it.
type State struct {
	// Generation rises with every restore of an archive and every recovery from a lost majority, after which log indices may
	// begin again lower: Unix time in seconds, and at least one more than before. 0: there was none.
	Generation  uint64
	Index       uint64      // raft index of the last command applied
	Term        uint64      // raft term of that command
	SpecVersion uint64      // 0: none was ever put
	Spec        []byte      // the operator's text as it was put
	Stage       *Stage      // a spec on trial; nil: none
	SpecHistory []SpecEntry // newest first, the current one included, at most 10 and 16 MiB
	PlanEpoch   uint64      // 0: none was ever put
	Plan        []byte      // as the leader encoded it
	PlanTerm    uint64      // the term whose leader made it
	PlanOrigin  Origin      // who made it and why; zero for one of an earlier release
	Drains      []Drain     // sorted by path
	TicketKeys  []Key       // newest first, at most 3; the first signs
	Signing     *Signing    // of the zone; nil: it is not signed
	Audit       []Record    // oldest first, at most 256: what operators changed
	Wanted      []string    // members that get a vote once they keep up, sorted, at most 64

	done []outcome // oldest first: recent writes with an idempotency key
}

// nextGeneration is the generation that begins at now and follows on those before it. It is made from the time, since an
// archive may be older than the last restore, and then does not tell which generations there were.
func nextGeneration(before uint64, now time.Time) uint64 {
	return max(before+1, uint64(max(0, now.Unix())))
}

// SpecEntry is one version of the spec.
type SpecEntry struct {
	Version uint64
	Index   uint64 // raft index at which it took force
	Body    []byte
	Actor   string
	At      time.Time // by the proposing node's clock
}

// Origin says where a plan comes from. Only the leader that solved it knows.
type Origin struct {
	Actor  string    `json:"actor,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Detail string    `json:"detail,omitempty"` // opaque here
	At     time.Time `json:"at,omitzero"`      // by the leader's clock
}

// outcome remembers a write that took place, for a proposer that did not hear so.
type outcome struct {
	ID    string `json:"id"`
	Index uint64 `json:"index"`
	Value uint64 `json:"value"`
}

// Hash is equal on two nodes exactly when their states are; empty for a state that cannot be written down.
func (s *State) Hash() string {
	b, err := encodeState(s)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
