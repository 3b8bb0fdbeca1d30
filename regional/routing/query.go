package routing

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// RouteQuery is the part of a request that routing depends on.
type RouteQuery struct {
	Model string
	// PromptTokens is the estimated prompt and MaxTokens the expected output, in tokens.
	PromptTokens, MaxTokens int
	// Choices is the number of parallel responses that share MaxTokens; 0 counts as 1.
	Choices int
	Class   spec.Class
	// Residency lists the jurisdictions that may serve the tenant; empty means anywhere.
	Residency []string
	// Regions lists the regions that may serve the tenant; empty means any.
	Regions []string
	// Hops counts the regions that forwarded the request. The limit is one.
	Hops int
	// Spill is set when the policy lets the request leave the region.
	Spill bool
	// ExpectContinue is set when a peer must admit the request before its body is sent, which takes another round trip.
	ExpectContinue bool
	// Margin is how much sooner a peer must be, round trip included, before a request leaves that its own region could
	// serve.
	Margin time.Duration
	// Pool is the worker pool of the request, and Overflow lets workers outside it serve the request too. Empty: any
	// worker.
	Pool     string
	Overflow bool
	// ExcludedPeer is a peer region that has refused this request, or ExcludeAllPeers; empty for none.
	ExcludedPeer string
	// FailedEndpoints lists endpoints that have already failed this request, the newest first.
	FailedEndpoints [2]string
	// Prefix holds the hashes of the prompt's prefixes as sketches contain them, the shortest first. Empty: unknown.
	Prefix []uint64
	// Session is a hash of the request's session; 0: none. All gateways of a region send a new session to the same one
	// of near-equal zones.
	Session uint64
	// TTFTTarget is the latest predicted first token that Dispatch accepts, in seconds; 0: any.
	TTFTTarget float64
	// Deadline is when the client gives up: Dispatch accepts no later first token, unless a model must be loaded first.
	// Zero: none.
	Deadline time.Time
	// RetryCredit is the part of a retry that the request earns. The first Dispatch sets it to 0.
	RetryCredit float64

	// AffinityPath is the child that served the request's session last, and AffinityTokens how much of its prompt may
	// still be cached there. Dispatch sets both.
	AffinityPath   capacity.Path
	AffinityTokens int
	// SpillBudgets is what this gateway may still send to its peers; nil: anything within their headroom. SpillShare is
	// the part of a peer's headroom that this gateway may use. Ledger is its in-flight ledger; nil is empty. A Router
	// sets all three.
	SpillBudgets *SpillBudgets
	SpillShare   float64
	Ledger       *Ledger

	affinityKnown  bool // AffinityPath and AffinityTokens are set
	affinityTokens int  // tokens of the prompt that were cached there when the session was served last
	// drainDraw decides, between 0 and 1, which draining zones the query may still use; 0: not drawn yet.
	drainDraw float64
}

// isDrainedAway reports whether a drain in progress keeps the query away from the zone. The draw is made once for each
// query. It is the same for all requests of a session, so that a session leaves once and does not return.
func (q *RouteQuery) isDrainedAway(l *LocalInstance, rng *rand.Rand) bool {
	if l.DrainedShare <= 0 {
		return false
	}
	if q.drainDraw == 0 && q.Session != 0 {
		q.drainDraw = unitInterval(q.Session * 0x9e3779b97f4a7c15)
	} else if q.drainDraw == 0 {
		q.drainDraw = unitInterval(rng.Uint64())
	}
	return q.drainDraw < l.DrainedShare
}

// unitInterval maps 64 bits to a number between 0 and 1, both excluded.
func unitInterval(h uint64) float64 {
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	return (float64(h>>11) + 0.5) / (1 << 53)
}

// ExcludeEndpoint excludes an endpoint that failed the request.
func (q *RouteQuery) ExcludeEndpoint(endpoint string) {
	q.FailedEndpoints[1], q.FailedEndpoints[0] = q.FailedEndpoints[0], endpoint
}

func (q *RouteQuery) isExcluded(endpoint string) bool {
	return endpoint == "" || endpoint == q.FailedEndpoints[0] || endpoint == q.FailedEndpoints[1]
}

// permitsPeer reports whether a peer region may serve the query's tenant.
func (q *RouteQuery) permitsPeer(p *PeerRegion) bool {
	return spec.ResidencyPermits(q.Regions, q.Residency, p.Region, p.Residency)
}
