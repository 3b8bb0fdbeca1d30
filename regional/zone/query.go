package zone

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// Query is one request, as far as it matters for where it goes.
type Query struct {
	Model string
	// PromptTokens is the estimated prompt and MaxTokens the expected output, in tokens.
	PromptTokens, MaxTokens int
	// Choices is in how many answers MaxTokens come, all at one time; 0 counts as 1.
	Choices int
	Class   spec.Class
	// Residency lists the jurisdictions that may serve the tenant; empty means anywhere.
	Residency []string
	// Regions lists the regions that may serve the tenant; empty means any.
	Regions []string
	// Hops counts the regions that passed the request on. One is the limit.
	Hops int
	// Spill says whether policy lets the request leave the region at all.
	Spill bool
	// Asks says that a peer is asked before the request's body is sent, which takes a round trip more.
	Asks bool
	// Margin is how much sooner a peer must be, round trip included, before a request that could be served here leaves.
	Margin time.Duration
	// Pool is the pool of workers that the request is of, and Overflow says that others may serve it too; empty: anybody's.
	Pool     string
	Overflow bool
	// Spills is what this gateway may still send to its peers; nil: whatever there is headroom for.
	Spills *Spills
	// SpillShare is the part of a peer's headroom that this gateway may spill into.
	SpillShare float64
	// Barred is a peer region that has refused this request, or BarAll; empty for none.
	Barred string
	// Prefix holds the hashes of the prompt's beginnings as sketches name them, the shortest first. Empty: none is known.
	Prefix []uint64
	// Home is where the request's session was served last, and HomeTokens how long its prompt was then: that much may still
	// be cached there.
	Home       capacity.Path
	HomeTokens int
	// Session is a hash by which all gateways of a region send a new session to the same one of near-equal zones; 0: none.
	Session uint64
	// Exclude lists endpoints that have already failed this request.
	Exclude [2]string
	// Ledger is what this gateway has under way; nil means nothing.
	Ledger *Ledger
}

func (q *Query) excluded(endpoint string) bool {
	return endpoint == "" || endpoint == q.Exclude[0] || endpoint == q.Exclude[1]
}

// permits reports whether a peer region may serve the query's tenant.
func (q *Query) permits(p *Peer) bool {
	return spec.Fenced(q.Regions, q.Residency, p.Region, p.Residency)
}
