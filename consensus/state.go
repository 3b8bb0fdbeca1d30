package consensus

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"time"
)

// Bounds of the content of the state.
const (
	maxSpecHistory   = 10
	maxHistoryBytes  = 16 << 20 // bytes of specs in the history; the current one and the one before stay at any size
	maxDrains        = 4096
	maxTicketKeys    = 3
	maxOutcomes      = 256
	maxPendingVoters = 64
)

// State is everything that is committed and applied, up to one log index. It is immutable: do not write to anything
// reached from it.
type State struct {
	// Generation rises with every restore of an archive and every recovery from a lost majority, after which log
	// indexes may be lower. It is Unix time in seconds, and at least one more than before. 0: neither has happened.
	Generation    uint64
	Index         uint64        // raft index of the last command applied
	Term          uint64        // raft term of that command
	SpecVersion   uint64        // 0: no spec yet
	Spec          []byte        // the operator's text, unchanged
	Rollout       *Rollout      // a staged spec; nil: none
	SpecHistory   []SpecEntry   // newest first, the current one included, at most 10 and 16 MiB
	PlanEpoch     uint64        // 0: no plan yet
	Plan          []byte        // as encoded by the leader
	PlanTerm      uint64        // the term whose leader made it
	PlanOrigin    PlanOrigin    // who made it and why; zero for a plan of an earlier release
	Drains        []Drain       // sorted by path
	TicketKeys    []TicketKey   // newest first, at most 3; the first signs
	Signing       *ZoneSigning  // of the zone; nil: it is not signed
	Audit         []AuditRecord // oldest first, at most 256: the operators' changes
	Switch        *RegionSwitch // the switch in progress, or the last one; nil: none yet
	StopLever     *StopLever    // forbids new drains; nil: they are allowed
	PendingVoters []string      // members that get a vote when they keep up, sorted, at most 64

	outcomes []writeOutcome // oldest first: recent writes with an idempotency key
}

// nextGeneration returns the generation that starts at now and is greater than before. It uses the time, because an
// archive may be older than the last restore and then lacks the latest generation.
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

// PlanOrigin describes the origin of a plan. It is set by the leader that computed it.
type PlanOrigin struct {
	Actor  string    `json:"actor,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Detail string    `json:"detail,omitempty"` // opaque here
	At     time.Time `json:"at,omitzero"`      // by the leader's clock
}

// writeOutcome keeps the outcome of a write, for a proposer that did not get the answer.
type writeOutcome struct {
	ID    string `json:"id"`
	Index uint64 `json:"index"`
	Value uint64 `json:"value"`
}

// Hash is equal on two nodes exactly when their states are equal; empty for a state that cannot be encoded.
func (s *State) Hash() string {
	b, err := encodeState(s)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Drain takes one region, zone or worker out of service.
type Drain struct {
	Path   string    // "region", "region/zone" or "region/zone/worker"
	Until  time.Time // when it ends by itself; zero: when an operator removes it
	Reason string
	Actor  string
	At     time.Time // by the proposing node's clock
	// Over is the time over which traffic leaves, from At on; 0: it leaves at once. Nodes of earlier releases drop
	// the field and drain at once.
	Over time.Duration `json:",omitzero"`
	// Drill is the drill that the drain belongs to; empty: none.
	Drill string `json:",omitzero"`
	// Takes is the share of each model's capacity that the drain takes away, as measured when it was proposed.
	Takes []ModelShare `json:",omitempty"`
}

// hasExpired reports whether the drain has an end and the end has passed.
func (d Drain) hasExpired(now time.Time) bool { return !d.Until.IsZero() && !now.Before(d.Until) }

// drainsVersion is a number that changes with the list of drains and is never 0. It is a hash of the list, because
// nodes of earlier releases would not keep a counter in the state.
func drainsVersion(drains []Drain) uint64 {
	h := fnv.New64a()
	for i := range drains {
		d := &drains[i]
		var times [3 * 8]byte
		for k, n := range [...]int64{d.At.UnixNano(), d.Until.UnixNano(), int64(d.Over)} {
			binary.LittleEndian.PutUint64(times[8*k:], uint64(n))
		}
		h.Write(append([]byte(d.Path), 0)) // never fails
		h.Write(times[:])
	}
	return max(h.Sum64(), 1)
}
