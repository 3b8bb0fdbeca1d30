package sched

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/poison"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/queue"
)

// Request is one request as the scheduler sees it: what it asks for, and how far it has come.
type Request struct {
	// Owner is for the caller's use.
	Owner any
	// ID is the request's id in the decision log.
	ID string

	Tenant    string
	Flow      string // the flow of a trusted tenant, for fairness among them; empty otherwise
	Class     spec.Class
	Model     string
	PathShape openai.Shape // shape of the request by its path
	Envelope  openai.Envelope
	Body      []byte // nil once it is released
	// Ticket is the entry in the ledger of the gateway that sent the request; zero without a gateway.
	Ticket             capacity.LedgerAck
	EstimatedTokens    int64 // prompt tokens as estimated by the gateway or here, before correction
	EstimateIsExact    bool  // EstimatedTokens is exact, as stated in an explain request
	LongestInputTokens int64 // tokens of the longest input when there are several, each a sequence of its own; 0 otherwise
	// AffinityText is the text by which the policy consistent_hash keeps requests together: a session, a user or a header.
	// Empty: the beginning of the prompt.
	AffinityText     string
	ArrivedAt        time.Time
	Deadline         time.Time // the caller's own deadline; zero when none
	FirstTokenDue    time.Time // when the caller wants its first token; zero when not stated
	OfSeveralTenants bool      // it stands for requests of several tenants

	Query           pick.PlacementQuery
	blockBuffer     [16]uint64 // buffer for the blocks of most prompts
	Landmarks       []uint64   // hashes of the prompt's beginnings in sketches; backed by landmarkBuffer
	landmarkBuffer  [capacity.MaxLandmarks]uint64
	Destinations    *DestinationLimit // where the proxy that asks for an endpoint can send it; nil where this tier sends it
	onlyBuffer      [2]uint64         // buffer for Query.Only of most zones
	ExcludedWorkers [2]int32
	unfitWorkers    []int32 // workers that cannot serve it, such as those whose engines cannot continue an answer
	RetriesLeft     int
	Continuing      bool          // the client has the beginning of the answer, and the rest is appended to it
	demandCounted   bool          // it was counted as demand
	loadWait        time.Duration // additional wait because its model must be loaded
	QueueItem       queue.Item[*Request]
	WaitResult      WaitResult // how its last wait in the queue ended

	Fingerprints   []uint64            // fingerprints of the requests merged into it; none where no body was read
	DeathVerdict   poison.DeathVerdict // the worst verdict since a worker died while serving it
	SuspectAttempt bool                // it is the one further attempt of a request during which a worker died
}

// WaitResult is the end of a wait: an attempt or a refusal.
type WaitResult struct {
	Attempt *Attempt
	Refusal *openai.Error
}

// ExcludeWorker excludes a worker that failed this request from its further attempts.
func (v *Request) ExcludeWorker(id int32) {
	v.ExcludedWorkers[0], v.ExcludedWorkers[1] = id, v.ExcludedWorkers[0]
	v.UpdateExclusions()
}

// UpdateExclusions sets the workers that are ineligible for the request.
func (v *Request) UpdateExclusions() {
	v.Query.Exclude = append(v.ExcludedWorkers[:2:2], v.unfitWorkers...)
}

// TenantOfAnswer is the tenant that an answer to the request counts for; empty where it stands for requests of several.
func (v *Request) TenantOfAnswer() string {
	if v.OfSeveralTenants {
		return ""
	}
	return v.Tenant
}

// fairnessKey is the key that the request's share of the queue counts for: its tenant, or with a trusted tenant the flow that it
// names.
func (v *Request) fairnessKey() string {
	if v.Flow == "" {
		return v.Tenant
	}
	return v.Tenant + " " + v.Flow // neither contains a space
}

// isSheddable reports whether a request is refused rather than answered late. That holds for class batch, which is shed first
// under overload, if its client stated when the answer is due. Work on a late answer could serve another request in time.
func (v *Request) isSheddable() bool { return v.Class == spec.Batch && !v.FirstTokenDue.IsZero() }

// ExpectedOutputTokens is the expected length of the answer; the reservation for it is half as much again.
func (v *Request) ExpectedOutputTokens() int64 { return v.Query.OutputTokens * 2 / 3 }

// isPastDeadline reports whether the caller's own deadline has passed.
func (v *Request) isPastDeadline(now time.Time) bool {
	return !v.Deadline.IsZero() && !now.Before(v.Deadline)
}

// SetSLO sets the target for the first token (TTFT), from the arrival on, and the target for the interval between later
// tokens (TPOT); 0 for none.
func (v *Request) SetSLO(ttft, tpot time.Duration) {
	v.Query.SLO.TTFT, v.Query.SLO.TPOT = ttft, tpot
	if ttft > 0 {
		v.FirstTokenDue = v.ArrivedAt.Add(ttft)
	}
}

// SetNoPrefix marks a request whose prompt has no prefix in common with others.
func (v *Request) SetNoPrefix() { v.Query.Blocks = v.blockBuffer[:0] }
